"""Working within a transaction of the user's own: what a store asks for there, and how it is done with his driver.

A store knows statements, a driver knows how to have them executed; neither knows the other. So what a store wants is written
as a *script*: a generator that yields requests and is sent what came of each (or has thrown into it what was raised). Whoever
performs it (`Databases`) does so in a blocking or an asynchronous way, as the connection is; the script is the same.

Nothing here commits but `Commit`: whatever else ends a script rolls back what was begun for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from perdure.model.commit import Create, Send
from perdure.model.run import RunKey, Status

T = TypeVar("T")


class Ask(Struct, frozen=True):
    """A statement of one text parameter, which stands between `head` and `tail`; comes of it: the one text it gives."""

    head: str
    parameter: str
    tail: str


class Hands(Protocol):
    """A SQLite connection, as rules use it that were not written for a script."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Any:
        """A cursor, whose rows are tuples."""
        ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def autocommit(self) -> bool:
        """True: it begins no transaction by itself."""
        ...


class Within(Struct, frozen=True):
    """Statements on SQLite that depend on each other; comes of it: what `work` returns."""

    work: Callable[[Hands], Any]


class Pause(Struct, frozen=True):
    """Wait for so many seconds."""

    seconds: float


class Begin(Struct, frozen=True):
    """Begin a transaction."""


class Call(Struct, frozen=True):
    """Comes of it: what the user's function returns for the connection or session."""

    fn: Callable[[Any], Any]


class Commit(Struct, frozen=True):
    """Commit what was begun. It is not cut off in the middle."""


#: What may be asked on a connection that a user gave us, within his transaction.
Joining: TypeAlias = Ask | Within | Pause
Request: TypeAlias = Joining | Begin | Call | Commit
Script: TypeAlias = Generator[Request, Any, T]


class Ticket(Struct, frozen=True):
    """The step that a transaction is run for, and who may run it now."""

    run: RunKey
    #: The run's own chance: tells it from a run of the same id in another store.
    seed: int
    seq: int
    name: str
    owner: str
    epoch: int


class Joined(Struct, frozen=True):
    """What became of a write within a user's transaction, if that is committed."""

    #: "applied", "exists" or "full" (Create only), "missing" or "ended" (Send, and Create with messages).
    answer: str
    #: The run that was created, exists or has ended, or whose inbox the message went to.
    key: RunKey | None = None
    workflow: str = ""
    status: Status | None = None


class Partner(Protocol):
    """What a store does within a user's transaction. Scripts raise `UsageError` where the connection is to another database,
    or is not in a transaction; `StoreUnavailable` where others are at it for too long."""

    #: True: as long as such a transaction is open, nobody else can write to the store.
    exclusive: bool

    def enter(self, ticket: Ticket) -> Script[bytes | None]:
        """Take the step's row, and return the output that an earlier attempt committed. Whoever else has it is waited for.

        Raises `StoreUnavailable` if the run is not held by the ticket's owner at that epoch.
        """
        ...

    def leave(self, ticket: Ticket, output: bytes) -> Script[None]:
        """Set the output; from then until the transaction ends, nobody else can claim the run. Raises as `enter`."""
        ...

    def write(self, write: Create | Send) -> Script[Joined]:
        """As `Store.write`, for a run without a first turn, or a message. What cannot be stored raises `UsageError`."""
        ...

    def source(self) -> Callable[[], Any]:
        """What opens a connection of the store's own driver to its database, for a user's function."""
        ...


class Databases(Protocol):
    """Performs scripts with whatever driver a user's objects are of. Event loop only."""

    async def transact(
        self,
        on: Any,
        script: Script[T],
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        begun: Callable[[], None],
    ) -> T:
        """On a connection of its own from `on`, in a thread if it blocks. `begun` is called when an asynchronous one begins.

        Raises `UsageError` for what is no source of connections, and what the script and the driver raise.
        """
        ...

    async def join(self, connection: Any, script: Script[T]) -> T:
        """On a connection that is given, within its transaction. `script` makes requests of `Joining` only."""
        ...
