"""The fleet: who works on the file, and which runs nobody among them can take."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from perdure.model.endings import unserved_failure
from perdure.model.failure import encode_failure
from perdure.model.run import RunKey
from perdure.ports.fleet import Member, Process
from perdure.ports.store import MOST_UNSERVED, Finding
from perdure.stores.sqlite.claims import due_groups
from perdure.stores.sqlite.rows import BLOCKED, PENDING, RUNNING, SUSPENDED
from perdure.stores.sqlite.sized import execute_sized, parts
from perdure.stores.sqlite.transaction import Transaction

_BEAT: Final = "INSERT OR REPLACE INTO processes (owner, process, seen_at, expires_at) VALUES (?, ?, ?, ?)"
_MEMBERS: Final = "SELECT process, seen_at, expires_at FROM processes WHERE expires_at > ?"
#: The index holds all that is compared but the status, so that of a backlog that is served no row is looked at.
_UNSERVED: Final = f"""
    SELECT json_group_array(json_array(incarnation, id, workflow, version)) FROM (
        SELECT incarnation, id, workflow, version FROM runs INDEXED BY runs_due
        WHERE wake_at IS NOT NULL AND paused_at IS NULL AND namespace = ? AND urgency = ? AND wake_at <= ? {{served}}
        AND status IN ({PENDING}, {RUNNING}, {SUSPENDED}) ORDER BY incarnation LIMIT {MOST_UNSERVED}
    )
"""
_BLOCK: Final = f"""
    UPDATE runs SET epoch = epoch + (status = {RUNNING}), status = {BLOCKED}, owner = NULL, wake_at = NULL, listening = 0,
        error = ?, fingerprint = '', updated_at = ?
    WHERE incarnation IN (@rows)
"""

#: Incarnation, id, workflow, version.
_Found: TypeAlias = tuple[int, str, str, str]

_decode_process = msgspec.json.Decoder(Process).decode
_decode_found = msgspec.json.Decoder(list[_Found]).decode


def beat(tx: Transaction, process: Process, ttl: int) -> None:
    """The process is a member for another `ttl`."""
    tx.execute("DELETE FROM processes WHERE expires_at <= ?", (tx.now,))
    tx.execute(_BEAT, (process.owner, msgspec.json.encode(process), tx.now, tx.now + ttl))


def depart(tx: Transaction, owner: str) -> None:
    tx.execute("DELETE FROM processes WHERE owner = ?", (owner,))


def fleet(connection: sqlite3.Connection, now: int) -> list[Member]:
    """Those that have not expired, the oldest first. One whose row cannot be read is passed over."""
    members = [member for member in _members(connection, now) if member is not None]
    return sorted(members, key=lambda member: (member.process.started_at, member.process.owner))


def _members(connection: sqlite3.Connection, now: int) -> Iterator[Member | None]:
    for process, seen_at, expires_at in connection.execute(_MEMBERS, (now,)).fetchall():
        try:
            yield Member(_decode_process(process), seen_at, expires_at)
        except (msgspec.MsgspecError, TypeError):
            yield None  # one odd row must not hide the others


def unserved(connection: sqlite3.Connection, now: int, grace: int) -> list[_Found]:
    """The runs that have been due for `grace` and that nobody can take, by incarnation; not more than are blocked at once."""
    members: list[Member] = []
    for member in _members(connection, now):
        if member is None:
            return []  # what it serves cannot be known
        members.append(member)
    found: list[_Found] = []
    for namespace, urgency in due_groups(connection, now - grace):
        served = dict.fromkeys(
            (each.workflow, each.version)
            for member in members
            if member.process.namespaces is None or namespace in member.process.namespaces
            for each in member.process.serves
        )
        rows = ",".join(["(?,?)"] * len(served))
        text = _UNSERVED.format(served=f"AND (workflow, version) NOT IN (VALUES {rows})" if served else "")
        values = [namespace, urgency, now - grace, *(part for pair in served for part in pair)]
        found += _decode_found(connection.execute(text, values).fetchone()[0])
    return sorted(found)[:MOST_UNSERVED]


def block_unserved(tx: Transaction, grace: int) -> list[Finding]:
    """Block them."""
    found = unserved(tx.connection, tx.now, grace)
    by_definition: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for incarnation, _, workflow, version in found:
        by_definition[workflow, version].append(incarnation)
    for (workflow, version), incarnations in by_definition.items():
        error = encode_failure(unserved_failure(workflow, version))
        for part in parts([(incarnation,) for incarnation in incarnations]):
            execute_sized(tx.connection, _BLOCK, 1, part, error, tx.now)
    tx.touched.update(incarnation for incarnation, *_ in found)
    return [
        Finding(RunKey(run_id, incarnation), unserved_failure(workflow, version).message)
        for incarnation, run_id, workflow, version in found
    ]
