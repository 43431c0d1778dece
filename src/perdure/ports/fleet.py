"""What processes that work on a store say of themselves."""

from __future__ import annotations

from msgspec import Struct


class Serves(Struct, frozen=True, gc=False):
    """A workflow definition that a process can run."""

    workflow: str
    version: str
    fingerprint: str


class Process(Struct, frozen=True, kw_only=True):
    """A process that works on the store, as it describes itself."""

    #: Its name in leases.
    owner: str
    host: str
    pid: int
    #: The version of Perdure.
    perdure: str
    #: Whose runs it drives; None: of all.
    namespaces: tuple[str, ...] | None
    serves: tuple[Serves, ...]
    #: Runs that it holds now, and at most.
    held: int
    limit: int
    #: Microseconds: the worst delay of its event loop since the beat before.
    lag: int
    started_at: int
    #: It takes no more runs, and leaves when those it holds have come to rest.
    draining: bool


class Member(Struct, frozen=True):
    """A process of the fleet."""

    process: Process
    #: When it last beat.
    seen_at: int
    expires_at: int
