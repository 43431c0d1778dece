"""Runs and their kin: children that start, are joined, cancelled and deleted, and what the end of a run does to others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from perdure.model.commit import Join, NewChild
from perdure.model.endings import start_failure
from perdure.model.failure import encode_failure
from perdure.model.run import REQUEUABLE, Parent, Run, RunKey, Status
from perdure.stores.sqlite import gates, inboxes, waits
from perdure.stores.sqlite.inboxes import Notice
from perdure.stores.sqlite.newruns import insert_run
from perdure.stores.sqlite.rows import FIRST_TERMINAL, SELECT_RUNS, STATUS_CODES, to_runs
from perdure.stores.sqlite.sized import execute_sized, parts
from perdure.stores.sqlite.transaction import Transaction

_COMPLETED: Final = STATUS_CODES[Status.COMPLETED]
_REQUEUABLE: Final = frozenset(STATUS_CODES[status] for status in REQUEUABLE)
_CANCELLED: Final = STATUS_CODES[Status.CANCELLED]

_CANCEL: Final = f"""
    UPDATE runs SET status = {_CANCELLED}, owner = NULL, epoch = epoch + 1, wake_at = NULL, listening = 0, output = NULL,
        error = ?, fingerprint = NULL, updated_at = ?, ended_at = ?
    WHERE incarnation IN (@rows)
"""
#: What parents that live are to hear of these runs' ends.
_NOTICES: Final = f"""
    SELECT r.incarnation, r.parent, r.awaited_as, r.status, r.output, r.error
    FROM runs AS r JOIN runs AS p ON p.incarnation = r.parent
    WHERE r.incarnation IN (@rows) AND r.awaited_as IS NOT NULL AND p.status < {FIRST_TERMINAL}
"""
_RUNS: Final = SELECT_RUNS + " runs WHERE incarnation IN (@rows)"
#: UNION, not UNION ALL: a cycle of parents ends.
_TREE: Final = """
    WITH RECURSIVE tree (incarnation, parent) AS (
        SELECT ?, NULL
        UNION
        SELECT r.incarnation, r.parent FROM tree AS t JOIN runs AS r ON r.parent = t.incarnation
    )
    SELECT t.incarnation, t.parent, r.status FROM tree AS t JOIN runs AS r USING (incarnation) ORDER BY t.incarnation
"""


def start_child(tx: Transaction, parent: RunKey, child: NewChild) -> None:
    existing = tx.execute("SELECT parent FROM runs WHERE id = ?", (child.run.id,)).fetchone()
    if existing is None:
        new = insert_run(tx, child.run, Parent(parent.id, parent.incarnation, child.seq))
        if child.run.gate is not None:
            gates.ask_for_new(tx, new, child.run.namespace, child.run.gate)
    elif existing[0] != parent.incarnation or child.run.awaited_as is not None:
        join(tx, parent, Join(child.seq, child.run.id, child.again))


def join(tx: Transaction, parent: RunKey, asked: Join) -> None:
    """Let the parent hear of the child's end: in its time, or at once where there is nothing to wait for."""
    child = tx.execute("SELECT incarnation, parent FROM runs WHERE id = ?", (asked.child_id,)).fetchone()
    if child is None or child[1] != parent.incarnation:
        error = encode_failure(start_failure(asked.child_id, taken=child is not None))
        inboxes.tell(tx, [Notice(parent.incarnation, asked.child_id, error, True)])
        return
    last = tx.last_link(child[0])
    status, output, error = tx.execute(
        "SELECT status, output, error FROM runs WHERE incarnation = ?", (last,)
    ).fetchone()
    if status < FIRST_TERMINAL:
        tx.touched.add(last)
        tx.execute(
            "UPDATE runs SET awaited_as = ?, updated_at = ? WHERE incarnation = ?", (asked.child_id, tx.now, last)
        )
        return
    failed = status != _COMPLETED
    if asked.again and status in _REQUEUABLE:
        return
    inboxes.tell(tx, [Notice(parent.incarnation, asked.child_id, error if failed else output, failed)])


def close(tx: Transaction, ended: Sequence[int]) -> None:
    """After the rows of runs that end together were written: give back what came to their tokens, tell waiting parents."""
    waits.end_waits(tx, ended)
    notices: dict[int, Notice] = {}
    for part in parts([(incarnation,) for incarnation in ended]):
        for row in execute_sized(tx.connection, _NOTICES, 1, part).fetchall():
            incarnation, parent, awaited_as, status, output, error = row
            failed = status != _COMPLETED
            notices[incarnation] = Notice(parent, awaited_as, error if failed else output, failed)
    if notices:
        inboxes.tell(tx, [notices[incarnation] for incarnation in ended if incarnation in notices])
    gates.release(tx, ended)


def tree(tx: Transaction, incarnation: int) -> list[tuple[int, bool]]:
    """A run and everything below it, depth first, parents before children; each with whether it is live."""
    below: defaultdict[int, list[int]] = defaultdict(list)
    live: dict[int, bool] = {}
    for child, parent, status in tx.execute(_TREE, (incarnation,)):
        live[child] = status < FIRST_TERMINAL
        if parent is not None:
            below[parent].append(child)
    ordered: dict[int, bool] = {}
    stack = [incarnation]
    while stack:
        top = stack.pop()
        if top not in ordered and top in live:
            ordered[top] = live[top]
            stack.extend(reversed(below[top]))
    return list(ordered.items())


def mark_cancelled(tx: Transaction, incarnations: Sequence[int], error: bytes | None) -> None:
    """Write the rows only; `close` does the rest."""
    tx.touched.update(incarnations)
    for part in parts([(incarnation,) for incarnation in incarnations]):
        execute_sized(tx.connection, _CANCEL, 1, part, error, tx.now, tx.now)


def cancel_tree(tx: Transaction, incarnation: int, error: bytes) -> tuple[Run, ...]:
    """Cancel a run and everything below it that lives; returns the runs that changed, the upper ones first."""
    live = [each for each, alive in tree(tx, incarnation) if alive]
    mark_cancelled(tx, live, error)
    close(tx, live)
    return runs_of(tx, live)


def runs_of(tx: Transaction, incarnations: Sequence[int]) -> tuple[Run, ...]:
    """Those that are there, in this order."""
    found: dict[int, Run] = {}
    for part in parts([(incarnation,) for incarnation in incarnations]):
        [text] = execute_sized(tx.connection, _RUNS, 1, part).fetchone()
        found.update((run.incarnation, run) for run in to_runs(tx.connection, text))
    return tuple(found[incarnation] for incarnation in incarnations if incarnation in found)


#: Everything that hangs on a run, in no table order that matters: nothing of it outlives the transaction.
_BELONGINGS: Final = (
    "history",
    "messages",
    "deliveries",
    "waits",
    "run_values",
    "attributes",
    "chunks",
    "transactions",
    "inputs",
    "runs",
)


def delete_tree(tx: Transaction, incarnation: int, error: bytes) -> tuple[Run, ...]:
    """Cancel what lives of a tree and of those of the links that continue it, then remove all; the runs as they last stood."""
    links = tx.chain(incarnation)
    for link in links:
        cancel_tree(tx, link, error)
    members = list(dict.fromkeys(each for link in links for each, _ in tree(tx, link)))
    gone = runs_of(tx, members)
    tx.flush()  # History that this very transaction wrote goes too.
    tags = [(tag, run.incarnation) for run in gone for tag in run.tags]
    tx.connection.executemany("DELETE FROM tags WHERE tag = ? AND incarnation = ?", tags)
    for part in parts([(member,) for member in members]):
        for table in _BELONGINGS:
            execute_sized(tx.connection, f"DELETE FROM {table} WHERE incarnation IN (@rows)", 1, part)
    tx.touched.update(members)
    return gone
