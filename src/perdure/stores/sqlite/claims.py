"""Claims and leases: who may run what, and until when."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from perdure.model.messages import Message
from perdure.model.run import Run, Status
from perdure.ports.fleet import Serves
from perdure.ports.store import Claimed, ClaimRequest, Held, Renewal
from perdure.stores.sqlite import gaterows, gates
from perdure.stores.sqlite.rows import RUNNING, SELECT_MESSAGES, SELECT_RUNS, STATUSES, to_messages, to_runs
from perdure.stores.sqlite.sized import execute_sized, parts
from perdure.stores.sqlite.transaction import Transaction

_HEAD: Final = """(
    SELECT s.incarnation FROM runs AS s INDEXED BY runs_due WHERE s.wake_at IS NOT NULL AND s.paused_at IS NULL {condition}
    ORDER BY s.namespace, s.urgency, s.wake_at LIMIT 1
)"""
#: Each (namespace, urgency) with its earliest wake time: one seek in the index each, however many runs there are. (A
#: comparison of both columns at once would walk through all runs of a namespace.)
_GROUPS: Final = """
    WITH RECURSIVE heads (incarnation) AS (
        SELECT {first}
        UNION ALL
        SELECT {next} FROM heads AS h JOIN runs AS r ON r.incarnation = h.incarnation
    )
    SELECT json_group_array(json_array(r.namespace, r.urgency, r.wake_at))
    FROM heads AS h JOIN runs AS r ON r.incarnation = h.incarnation
"""
_NEXT_URGENCY: Final = _HEAD.format(condition="AND s.namespace = r.namespace AND s.urgency > r.urgency")
_NEXT_NAMESPACE: Final = _HEAD.format(condition="AND s.namespace > r.namespace")
_ALL_GROUPS: Final = _GROUPS.format(
    first=_HEAD.format(condition=""), next=f"coalesce({_NEXT_URGENCY}, {_NEXT_NAMESPACE})"
)
_GROUPS_OF: Final = _GROUPS.format(first=_HEAD.format(condition="AND s.namespace = ?"), next=_NEXT_URGENCY)

_IN_GROUP: Final = """
    SELECT json_group_array(json_array(incarnation, wake_at, status, fingerprint)) FROM (
        SELECT incarnation, wake_at, status, fingerprint FROM runs INDEXED BY runs_due
        WHERE wake_at IS NOT NULL AND paused_at IS NULL AND namespace = ? AND urgency = ? AND wake_at <= ? AND format <= ?
        AND (workflow, version) IN (VALUES {serves}) ORDER BY wake_at, incarnation LIMIT ?
    )
"""
_CLAIM: Final = f"""
    UPDATE runs SET owner = ?, wake_at = ?, updated_at = ?, recoveries = recoveries + (status = {RUNNING}),
        status = {RUNNING}, epoch = epoch + 1, listening = 0, fingerprint = NULL
    WHERE incarnation IN (@rows)
"""
_TAKEN: Final = SELECT_RUNS + " runs WHERE incarnation IN (@rows)"
_INBOXES: Final = (
    SELECT_MESSAGES + " (SELECT * FROM messages WHERE incarnation IN (@rows) ORDER BY incarnation, number)"
)
_RENEW: Final = f"""
    UPDATE runs SET wake_at = ? FROM (VALUES @rows) AS v
    WHERE runs.incarnation = v.column2 AND runs.epoch = v.column3 AND runs.owner = v.column1 AND runs.status = {RUNNING}
"""
_HOLDERS: Final = """
    SELECT json_group_array(json_array(incarnation, epoch, owner, inbox)) FROM runs
    WHERE incarnation IN (@rows) AND status = 1
"""
_RELEASE: Final = f"""
    UPDATE runs SET status = 0, wake_at = ?, updated_at = ?, owner = NULL, epoch = epoch + 1 FROM (VALUES @rows) AS v
    WHERE runs.incarnation = v.column2 AND runs.epoch = v.column3 AND runs.owner = v.column1 AND runs.status = {RUNNING}
"""

_FOREVER: Final = 2**63 - 1

_decode_holders = msgspec.json.Decoder(list[tuple[int, int, str, int]]).decode

#: Runs that can be claimed: incarnation, wake time, status code, fingerprint.
_Candidate: TypeAlias = tuple[int, int, int, "str | None"]

_decode_candidates = msgspec.json.Decoder(list[tuple[int, int, int, str | None]]).decode
_decode_groups = msgspec.json.Decoder(list[tuple[str, int, int]]).decode


def claim(tx: Transaction, request: ClaimRequest) -> list[Claimed]:
    """Greater priority first; within one, the oldest of each namespace, then the second oldest of each, and so on."""
    gates.admit_due(tx)
    chosen: list[_Candidate] = []
    groups = [
        (urgency, namespace) for namespace, urgency, wake_at in _groups(tx.connection, request) if wake_at <= tx.now
    ]
    for urgency in sorted({urgency for urgency, _ in groups}, reverse=True):
        room = request.limit - len(chosen)
        if room <= 0:
            break
        ranked: list[tuple[int, int, _Candidate]] = []
        for namespace in (namespace for each, namespace in groups if each == urgency):
            found = _in_group(tx.connection, request, namespace, urgency, tx.now, room)
            ranked += [(place, candidate[1], candidate) for place, candidate in enumerate(found)]
        ranked.sort(key=lambda entry: (entry[0], entry[1], entry[2][0]))
        chosen += [candidate for _, _, candidate in ranked[:room]]
    return _take(tx, request, chosen)


def next_wake(connection: sqlite3.Connection, request: ClaimRequest) -> int | None:
    """The earliest wake time among what can be claimed, due or not."""
    earliest: int | None = None
    for namespace, urgency, wake_at in _groups(connection, request):
        if earliest is None or wake_at < earliest:
            for candidate in _in_group(connection, request, namespace, urgency, _FOREVER, 1):
                earliest = candidate[1] if earliest is None else min(earliest, candidate[1])
    look = gaterows.next_look(connection)
    return earliest if look is None or (earliest is not None and earliest < look) else look


def due_groups(connection: sqlite3.Connection, until: int) -> list[tuple[str, int]]:
    """Namespace and urgency of every group with a run that has been due since `until`."""
    groups = _decode_groups(connection.execute(_ALL_GROUPS).fetchone()[0])
    return [(namespace, urgency) for namespace, urgency, wake_at in groups if wake_at <= until]


def _groups(connection: sqlite3.Connection, request: ClaimRequest) -> Iterator[tuple[str, int, int]]:
    """Namespace, urgency and earliest wake time of every group the request is for."""
    if request.namespaces is None:
        yield from _decode_groups(connection.execute(_ALL_GROUPS).fetchone()[0])
        return
    for namespace in dict.fromkeys(request.namespaces):
        yield from _decode_groups(connection.execute(_GROUPS_OF, (namespace,)).fetchone()[0])


def _in_group(
    connection: sqlite3.Connection, request: ClaimRequest, namespace: str, urgency: int, until: int, limit: int
) -> list[_Candidate]:
    if not request.serves:
        return []
    served = dict.fromkeys((each.workflow, each.version) for each in request.serves)
    text = _IN_GROUP.format(serves=",".join(["(?,?)"] * len(served)))
    values = [namespace, urgency, until, request.format, *(part for pair in served for part in pair), limit]
    return _decode_candidates(connection.execute(text, values).fetchone()[0])


def _take(tx: Transaction, request: ClaimRequest, chosen: Sequence[_Candidate]) -> list[Claimed]:
    runs: dict[int, Run] = {}
    for part in parts([(incarnation,) for incarnation, *_ in chosen]):
        execute_sized(tx.connection, _CLAIM, 1, part, request.owner, tx.now + request.lease, tx.now)
        [text] = execute_sized(tx.connection, _TAKEN, 1, part).fetchone()
        runs.update((run.incarnation, run) for run in to_runs(tx.connection, text))
    messages = _messages(tx, [run.incarnation for run in runs.values() if run.inbox])
    claimed: list[Claimed] = []
    for incarnation, _, code, fingerprint in chosen:
        was = STATUSES[code]
        run = runs[incarnation]
        if fingerprint is not None:
            run = replace(run, fingerprint=fingerprint)
        claimed.append(Claimed(run, tuple(messages.get(incarnation, ())), was is Status.RUNNING, was))
    return claimed


def _messages(tx: Transaction, incarnations: Sequence[int]) -> Mapping[int, list[Message]]:
    """The unconsumed messages of runs, oldest first."""
    found: dict[int, list[Message]] = {}
    for part in parts([(incarnation,) for incarnation in incarnations]):
        [text] = execute_sized(tx.connection, _INBOXES, 1, part).fetchone()
        for incarnation, message in to_messages(tx.connection, text):
            found.setdefault(incarnation, []).append(message)
    return found


def renew(tx: Transaction, owner: str, lease: int, held: Sequence[Held]) -> list[Renewal]:
    """Push on the leases that are still held at their epoch; an answer for each, in order."""
    holders: dict[int, tuple[int, str, int]] = {}
    for part in parts([(owner, each.incarnation, each.epoch) for each in held]):
        execute_sized(tx.connection, _RENEW, 3, part, tx.now + lease)
        found = execute_sized(tx.connection, _HOLDERS, 1, [row[1:2] for row in part]).fetchone()[0]
        holders.update((each[0], each[1:]) for each in _decode_holders(found))
    return [_renewal(tx, owner, each, holders.get(each.incarnation)) for each in held]


def _renewal(tx: Transaction, owner: str, held: Held, holder: tuple[int, str, int] | None) -> Renewal:
    if holder is None or holder[0] != held.epoch or holder[1] != owner:
        return Renewal(held.incarnation, lost=True)
    if holder[2] <= held.inbox:
        return Renewal(held.incarnation, lost=False)
    messages = _messages(tx, [held.incarnation]).get(held.incarnation, ())
    return Renewal(held.incarnation, lost=False, messages=tuple(each for each in messages if each.number > held.inbox))


def release(tx: Transaction, owner: str, held: Sequence[Held]) -> None:
    """Give back what is still held, due now; not counted as a recovery."""
    for part in parts([(owner, each.incarnation, each.epoch) for each in held]):
        execute_sized(tx.connection, _RELEASE, 3, part, tx.now, tx.now)
    tx.touched.update(each.incarnation for each in held)


def unblock(tx: Transaction, serves: Sequence[Serves]) -> int:
    """Make due the runs that are blocked by other code than is served now; returns how many."""
    blocked: set[int] = set()
    for served in serves:
        found = tx.execute(
            "SELECT incarnation FROM runs WHERE status = 3 AND workflow = ? AND version = ? AND fingerprint <> ?",
            (served.workflow, served.version, served.fingerprint),
        )
        blocked.update(row[0] for row in found)
    make_due(tx, sorted(blocked))
    return len(blocked)


_MAKE_DUE: Final = """
    UPDATE runs SET wake_at = min(coalesce(wake_at, ?), ?), updated_at = ? WHERE incarnation IN (@rows)
"""


def make_due(tx: Transaction, incarnations: Sequence[int]) -> None:
    """Due, or due since longer: who waits already keeps the place in the line."""
    tx.touched.update(incarnations)
    for part in parts([(incarnation,) for incarnation in incarnations]):
        execute_sized(tx.connection, _MAKE_DUE, 1, part, tx.now, tx.now, tx.now)
