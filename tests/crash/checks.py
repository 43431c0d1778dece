"""What must hold whatever was killed when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from perdure import Perdure, Status
from perdure.authoring.workflow import WorkflowDefinition
from perdure.model.history import Entry, Event, Op
from perdure.model.run import TERMINAL, NewRun, Run
from perdure.model.steps import State, fold
from perdure.testing import Recording, replay
from tests.crash import load
from tests.crash.report import Report
from tests.crash.sites import Site
from tests.crash.workers import Line

_RESULTS = (Event.RESOLVED, Event.FAILED)

#: Runs whose histories are read at once.
_PAGE = 500

WORKFLOWS: dict[str, WorkflowDefinition[..., Any]] = {
    each.name: each for each in vars(load).values() if isinstance(each, WorkflowDefinition)
}


async def everything(app: Perdure, site: Site, lines: Sequence[Line], slept: set[int], report: Report) -> None:
    """Note all problems that the store and the log show, after every run has ended. `slept`: who was ever paused."""
    problems = report.problems
    problems += [f"the audit found: {each.run.id} {each.what}" for each in await app.engine.store.audit(heal=False)]
    #: By run and position of each step: whether it has a result.
    steps: dict[tuple[str, int], bool] = {}
    before: int | None = None
    while runs := await app.runs(limit=_PAGE, before=before):
        before = runs[-1].incarnation
        histories = await app.engine.store.history([run.incarnation for run in runs])
        for run in runs:
            history = histories[run.incarnation]
            problems += _of_run(run, history)
            problems += _of_replay(run, history)
            if run.workflow == load.sequence.name and run.status is Status.COMPLETED:
                problems += await _of_streams(app, run)
            for seq, entries in _by_step(history):
                steps[run.id, seq] = any(entry.event in _RESULTS for entry in entries)
            report.entries += len(history)
        report.runs += len(runs)
    problems += _of_attempts(lines, slept, report)
    problems += _of_effects(lines, steps)
    problems += await site.left_over()


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
    states = {step.state for step in fold(history)}
    if run.status is Status.COMPLETED and states & {State.PENDING, State.RETRYING}:
        yield f"{run.id} is completed, but its history folds to {states}"


def _of_replay(run: Run, history: Sequence[Entry]) -> Iterable[str]:
    """The body makes of its history what it made of it the first time."""
    if run.started_at is None:
        return
    new = NewRun(
        id=run.id,
        workflow=run.workflow,
        version=run.version,
        input=run.input,
        seed=run.seed,
        namespace=run.namespace,
    )
    try:
        replay(WORKFLOWS[run.workflow], Recording(new, run.started_at, tuple(history)), *load.EVERYTHING)
    except Exception as error:
        yield f"{run.id} does not replay: {type(error).__name__}: {error}"


async def _of_streams(app: Perdure, run: Run) -> Iterable[str]:
    """What the body wrote is there once; of what the step wrote, all that its last attempt did, in order."""
    handle = app.get_run(run.id)
    done = await handle.stream("done").collect()
    said = await handle.stream("said").collect()
    problems: list[str] = []
    if done != [*range(6)]:
        problems.append(f"{run.id} wrote {done} to a stream in its body")
    if len({(n, attempt) for n, attempt, _ in said}) != 1 or [i for *_, i in said] != [*range(5)]:
        problems.append(f"{run.id} wrote {said} to a stream in a step")
    return problems


def _by_step(history: Sequence[Entry]) -> Iterable[tuple[int, list[Entry]]]:
    steps: defaultdict[int, list[Entry]] = defaultdict(list)
    for entry in history:
        if entry.op is Op.STEP:
            steps[entry.seq].append(entry)
    return steps.items()


def _of_attempts(lines: Sequence[Line], slept: set[int], report: Report) -> Iterable[str]:
    """In a sequence, a later step begins only after an earlier one's result is durable: so that one must never run again.

    Except where a process slept between the answer that let it begin and the begin. And the number of an attempt must never be
    used twice.
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
            if line.pid in slept:
                report.stale += 1
            else:
                yield f"{line.run}#{line.seq} ran again after #{furthest[line.run]} had begun"
        furthest[line.run] = max(line.seq, furthest.get(line.run, 0))


def _of_effects(lines: Sequence[Line], steps: dict[tuple[str, int], bool]) -> Iterable[str]:
    """What was done was asked for, and what is recorded as done was done."""
    done = {(line.run, line.seq) for line in lines if line.what != "begin"}
    for line in lines:
        if (line.run, line.seq) not in steps:
            yield f"step {line.name} of {line.run}#{line.seq} ran, but no history asked for it"
    for key, has_result in steps.items():
        if has_result and key not in done:
            yield f"{key[0]}#{key[1]} has a result, but never ran to its end"


async def how_it_stands(app: Perdure, run_id: str) -> list[str]:
    """A run that does not end, and those it waits for."""
    now = app.engine.store.now()
    return [
        f"  {run.id} {run.status} n={run.n} inbox={run.inbox} seen={run.seen} listening={run.listening} epoch={run.epoch} "
        f"owner={run.owner} recoveries={run.recoveries} wakes in {None if run.wake_at is None else (run.wake_at - now) / 1e6} s"
        for run in await app.runs(limit=1_000_000)
        if run.id.split(".")[0].split("~")[0] == run_id
    ]
