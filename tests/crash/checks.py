"""What must hold whatever was killed when."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from perdure import Perdure, Status
from perdure.model.history import Entry, Event, Op
from perdure.model.run import TERMINAL, Run
from tests.crash.workers import Line

_RESULTS = (Event.RESOLVED, Event.FAILED)


async def everything(app: Perdure, path: Path, lines: Sequence[Line]) -> list[str]:
    """All problems that the store and the log show, after every run has ended."""
    problems = [f"the audit found: {each.run.id} {each.what}" for each in await app.engine.store.audit(heal=False)]
    runs = await app.runs(limit=1_000_000)
    histories = await app.engine.store.history([run.incarnation for run in runs])
    for run in runs:
        problems += _of_run(run, histories[run.incarnation])
    steps = {(run.id, seq): entries for run in runs for seq, entries in _by_step(histories[run.incarnation])}
    problems += _of_attempts(lines)
    problems += _of_effects(lines, steps)
    problems += _of_file(path)
    return problems


def _of_run(run: Run, history: Sequence[Entry]) -> Iterable[str]:
    """F14: the end is the end. And each operation has one result."""
    if run.status not in TERMINAL:
        yield f"{run.id} is {run.status}"
    ends = [entry for entry in history if entry.event is Event.END]
    if ends and (history[-1].event is not Event.END or history[-1].name != run.status):
        yield f"{run.id} is {run.status}, but its history ends with {history[-1]}"
    if not ends and run.status is not Status.CANCELLED:
        yield f"{run.id} is {run.status}, but its history has no end"
    if len(ends) != 1 + sum(entry.event is Event.REQUEUED for entry in history) and run.status is not Status.CANCELLED:
        yield f"{run.id} has {len(ends)} ends"
    if run.n != len(history):
        yield f"{run.id} has {len(history)} entries, but says {run.n}"
    results = [entry.seq for entry in history if entry.event is Event.RESOLVED]
    if len(results) != len(set(results)):
        yield f"{run.id} has two results of one operation"


def _by_step(history: Sequence[Entry]) -> Iterable[tuple[int, list[Entry]]]:
    steps: defaultdict[int, list[Entry]] = defaultdict(list)
    for entry in history:
        if entry.op is Op.STEP:
            steps[entry.seq].append(entry)
    return steps.items()


def _of_attempts(lines: Sequence[Line]) -> Iterable[str]:
    """In a sequence, a later step begins only after an earlier one's result is durable: so that one must never run again.

    And the number of an attempt must never be used twice.
    """
    furthest: dict[str, int] = {}
    seen: set[tuple[str, int, int]] = set()
    for line in lines:
        if line.what != "begin":
            continue
        attempt = (line.run, line.seq, line.attempt)
        if attempt in seen:
            yield f"attempt {line.attempt} of {line.run}#{line.seq} began twice"
        seen.add(attempt)
        if line.run.startswith("sequence") and line.seq < furthest.get(line.run, 0):
            yield f"{line.run}#{line.seq} ran again after #{furthest[line.run]} had begun"
        furthest[line.run] = max(line.seq, furthest.get(line.run, 0))


def _of_effects(lines: Sequence[Line], steps: dict[tuple[str, int], list[Entry]]) -> Iterable[str]:
    """What was done was asked for, and what is recorded as done was done."""
    done = {(line.run, line.seq) for line in lines if line.what != "begin"}
    for line in lines:
        if (line.run, line.seq) not in steps:
            yield f"step {line.name} of {line.run}#{line.seq} ran, but no history asked for it"
    for key, entries in steps.items():
        if any(entry.event in _RESULTS for entry in entries) and key not in done:
            yield f"{key[0]}#{key[1]} has a result, but never ran to its end"


def _of_file(path: Path) -> Iterable[str]:
    with closing(sqlite3.connect(path)) as connection:
        for (verdict,) in connection.execute("PRAGMA integrity_check"):
            if verdict != "ok":
                yield f"the file is damaged: {verdict}"
        live = "SELECT incarnation FROM runs WHERE status < 4"
        [left] = connection.execute(f"SELECT count(*) FROM waits WHERE incarnation NOT IN ({live})").fetchone()
        if left:
            yield f"{left} waits of ended runs are left"


async def how_it_stands(app: Perdure, run_id: str) -> list[str]:
    """A run that does not end, and those it waits for."""
    now = app.engine.store.now()
    return [
        f"  {run.id} {run.status} n={run.n} inbox={run.inbox} seen={run.seen} listening={run.listening} epoch={run.epoch} "
        f"recoveries={run.recoveries} wakes in {None if run.wake_at is None else (run.wake_at - now) / 1e6} s"
        for run in await app.runs(limit=1_000_000)
        if run.id.split(".")[0].split("~")[0] == run_id
    ]


def who_holds(path: Path) -> list[str]:
    """Who has which lock on the store's files, where the system tells."""
    table = Path("/proc/locks")
    if not table.exists():
        return []
    files = {f"{path}{suffix}" for suffix in ("", "-wal", "-shm")}
    inodes = {str(Path(file).stat().st_ino): file for file in files if Path(file).exists()}
    return [
        f"{inodes[inode]}: {line}"
        for line in table.read_text().splitlines()
        for inode in inodes
        if f":{inode} " in line
    ]
