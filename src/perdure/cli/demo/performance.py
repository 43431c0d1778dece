"""How the demo goes: start, kill part way, start again, finish, prove."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from time import monotonic  # noqa: TID251  (how long it took, and how long nothing moved)

from msgspec import Struct

from perdure import Perdure, PerdureError, RunHandle
from perdure.cli.demo import sources
from perdure.cli.demo.processes import WorkerProcess
from perdure.cli.demo.proof import Evidence, Proof, prove
from perdure.cli.demo.report import Totals
from perdure.cli.demo.sidelog import Mark, SideLog, ended, in_flight
from perdure.cli.demo.workflows import Job, index, package
from perdure.model.history import Op
from perdure.model.ids import step_id
from perdure.model.steps import State

#: The id of the run that does it all.
RUN_ID = "index"

#: The part of the files after which the worker is killed. After the second part, one step in flight is enough.
_KILL_FROM, _KILL_SOON = 0.4, 0.8
_IN_FLIGHT = 3

#: Seconds between two looks, and without any progress until something must be wrong.
_GLANCE = 0.03
_STALLED = 60.0


class DemoFailed(PerdureError):
    """The demo could not show what it is for."""

    code = "demo_failed"

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        #: The end of the worker's log.
        self.log = log


class Progress(Struct, frozen=True):
    """How far it is, and what has just happened, if anything has."""

    done: int
    total: int
    news: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """How it went."""

    proof: Proof
    totals: Totals
    seconds: float


class Performance:
    """One performance of the demo, in a folder whose earlier one it replaces."""

    def __init__(self, folder: Path, root: Path, title: str, tell: Callable[[Progress], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._files = [file for files in sources.find(str(root)).values() for file in files]
        self._marks = SideLog(folder / "side.log")
        self._job = Job(str(root), title, str(folder / "side.log"), str(folder / "report.html"))
        self._progressed = monotonic()
        #: The URL of the runs.
        self.store = f"sqlite:///{folder / 'demo.db'}"

    @property
    def report(self) -> str:
        """Where the page is."""
        return self._job.report

    async def run(self) -> Outcome:
        """Do it all. Raises `DemoFailed`, and what a run of its own raises if it does not complete."""
        if not self._files:
            raise DemoFailed(f"there is no Python file below {self._job.root}")
        began = self._progressed = monotonic()
        self._clear()
        async with Perdure(self.store, consume=False) as app:
            run = await app.start(index, self._job, id=RUN_ID)
            before = await self._first_worker()
            durable = await _durable(app)
            totals = await self._second_worker(run)
            counted = await _counted(app)
        marks = self._marks.read()
        evidence = Evidence(files=self._files, before=before, marks=marks, durable=durable, counted=counted)
        return Outcome(proof=prove(evidence), totals=totals, seconds=monotonic() - began)

    def _clear(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in ("demo.db", "demo.db-wal", "demo.db-shm", "side.log", "worker.log", "report.html"):
            (self._folder / name).unlink(missing_ok=True)

    def _start_worker(self) -> WorkerProcess:
        return WorkerProcess(self.store, self._folder, self._folder / "worker.log")

    async def _first_worker(self) -> list[Mark]:
        """Let a worker get some way, and kill it while it is at several steps. Returns the side log as it was then."""
        with closing(self._start_worker()) as worker:
            self._say(f"worker {worker.pid} begins")
            while True:
                share = await self._look(worker) / len(self._files)
                needed = _IN_FLIGHT if share < _KILL_SOON else 1
                if share >= 1:
                    raise DemoFailed("the worker had finished before it could be killed in the middle of a step")
                if share >= _KILL_FROM and worker.kill_if(partial(self._is_busy, needed)):
                    break
            marks = list(self._marks.read())
            self._say(f"worker {worker.pid} killed with SIGKILL while at {len(in_flight(marks))} steps")
            return marks

    def _is_busy(self, steps: int) -> bool:
        return len(in_flight(self._marks.read())) >= steps

    async def _second_worker(self, run: RunHandle[Totals]) -> Totals:
        with closing(self._start_worker()) as worker:
            self._say(f"worker {worker.pid} takes over")
            ending = asyncio.ensure_future(run.result())
            try:
                while not ending.done():
                    await self._look(worker)
            finally:
                ending.cancel()
            totals = await ending
            status = worker.drain()
            if status != 0:
                raise DemoFailed(f"worker {worker.pid} did not drain well: it ended with {status}", worker.tail())
            return totals

    async def _look(self, worker: WorkerProcess) -> int:
        """Wait a little, tell the progress, and return how many files are done."""
        before = len(self._marks.marks)
        await asyncio.sleep(_GLANCE)
        marks = self._marks.read()
        done = len(ended(marks))
        self._tell(Progress(done, len(self._files)))
        if worker.gone:
            raise DemoFailed(f"worker {worker.pid} ended by itself", worker.tail())
        now = monotonic()
        if len(marks) > before:
            self._progressed = now
        elif now - self._progressed > _STALLED:
            raise DemoFailed(f"worker {worker.pid} made no progress for {_STALLED:g} s", worker.tail())
        return done

    def _say(self, news: str) -> None:
        self._tell(Progress(len(ended(self._marks.read())), len(self._files), news))


async def _durable(app: Perdure) -> frozenset[str]:
    """The keys of all steps of packages whose result is in the store."""
    keys: set[str] = set()
    for run in await app.runs(workflow=package.name, limit=10_000):
        steps = await app.get_run(run.id).steps()
        keys |= {
            step_id(run.id, run.incarnation, step.seq)
            for step in steps
            if step.op is Op.STEP and step.state is State.COMPLETED
        }
    return frozenset(keys)


async def _counted(app: Perdure) -> list[str]:
    """The files of all results that the report is made of."""
    files: list[str] = []
    for run in await app.runs(workflow=package.name, limit=10_000):
        files += [facts.file for facts in await app.get_run(run.id, package).result()]
    return files
