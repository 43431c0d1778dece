"""`python -m benchmarks.peers`: the same workloads on Perdure and on DBOS, on the same stores, in one run (`make bench-peers`).

DBOS is run as its documentation has it, with its own default settings; see `dbos_side`. Where it is many times slower it gets
fewer of what is counted one by one; rates and medians stay comparable. The two take turns, workload by workload, so that both
see the same machine. The numbers go where `make bench` puts its own, and, with machine, versions and settings, into a file
beside it, of which `python -m benchmarks.chart` makes the picture and the table.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from time import sleep

from benchmarks import children, report
from benchmarks.figures import Figure
from benchmarks.postgres import NoServer, Postgres, server
from benchmarks.sizes import Sizes, slower
from benchmarks.sqlite import Sqlite
from benchmarks.subject import Measured, Say, Subject, Workload, machine, measure
from benchmarks.table import aligned, number
from benchmarks.workloads import COMPARED, ONCE

_SIDE = "benchmarks.dbos_side"
#: Signals on a file, where DBOS looks for them once a second.
_FEW = 20


def _workload(name: str) -> Workload:
    """A workload of DBOS, in a process of its own."""

    def run(url: str, sizes: Sizes) -> dict[str, float]:
        few = slower(sizes)
        if url.startswith("sqlite:"):
            few = replace(few, signals=min(few.signals, _FEW))
        with children.begin(_SIDE, name, url, json.dumps(asdict(few))) as process:
            return _numbers(children.line(process))

    run.__name__ = name
    return run


def recovery(url: str, sizes: Sizes) -> dict[str, float]:
    """Kill a process that has runs in flight, and measure in the next one."""
    few = json.dumps(asdict(slower(sizes)))
    with children.begin(_SIDE, "hold", url, few) as holder:
        try:
            children.line(holder)
        finally:
            holder.kill()
    sleep(sizes.recovered_lease)  # As ours, whose leases must have run out.
    with children.begin(_SIDE, "recover", url, few) as process:
        return _numbers(children.line(process))


def _numbers(line: str) -> dict[str, float]:
    numbers: dict[str, float] = json.loads(line)
    return numbers


#: In the order of `COMPARED`.
_COMPARED: tuple[Workload, ...] = (
    *map(_workload, ("one_step", "sequential_steps", "runs_of_three", "signal", "parallel_steps")),
    recovery,
)
_ONCE: tuple[Workload, ...] = (_workload("parked"),)


def _settings(url: str) -> str:
    with children.begin(_SIDE, "settings", url, json.dumps(asdict(Sizes()))) as process:
        settings: dict[str, str] = json.loads(children.line(process))
        return settings["settings"]


class DbosOnSqlite(Sqlite):
    """DBOS on fresh files."""

    name = "dbos_sqlite"
    workloads: Sequence[Workload] = _COMPARED
    once: Sequence[Workload] = _ONCE

    def raw(self, count: int, warm: int) -> dict[str, float]:
        """Bare commits as before ours; they are no figures of DBOS."""
        super().raw(count, warm)
        return {}

    def settings(self) -> str:
        return _settings(self.url())


class DbosOnPostgres(Postgres):
    """DBOS in schemas that nobody has used."""

    name = "dbos_postgres"
    workloads: Sequence[Workload] = _COMPARED
    once: Sequence[Workload] = _ONCE

    def raw(self, count: int, warm: int) -> dict[str, float]:
        """Bare commits as before ours; they are no figures of DBOS."""
        super().raw(count, warm)
        return {}

    def settings(self) -> str:
        return _settings(self.url())


def pairs(folder: Path, stack: ExitStack) -> list[tuple[Subject, Subject]]:
    """Perdure and DBOS on each store there is."""
    found: list[tuple[Subject, Subject]] = []
    ours_in_file = Sqlite(folder)
    ours_in_file.workloads, ours_in_file.once = COMPARED, ONCE[:1]
    try:
        database = stack.enter_context(server())
        ours = stack.enter_context(Postgres(database))
        ours.workloads, ours.once = COMPARED, ONCE[:1]
        found.append((ours, stack.enter_context(DbosOnPostgres(database))))
    except NoServer as error:
        print(f"SQLite only: {error}")
    found.append((ours_in_file, DbosOnSqlite(folder)))
    return found


def run(sizes: Sizes, output: Path, say: Say) -> dict[str, float]:
    """Measure both, print them side by side, and write the numbers."""
    output.parent.mkdir(parents=True, exist_ok=True)
    place = machine()
    print(place)
    # On the disk of the output: see `__main__`.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=output.parent) as folder, ExitStack() as stack:
        subjects = pairs(Path(folder), stack)
        flat_subjects = [subject for pair in subjects for subject in pair]
        settings = {subject.name: subject.settings() for subject in flat_subjects}
        measured = measure(flat_subjects, sizes, say)
        say("")
        for ours, theirs in subjects:
            print(f"\n{settings[ours.name]}\n{settings[theirs.name]}\n")
            print(compared(ours.figures(sizes), measured[ours.name], measured[theirs.name]))
    flat = {name: value for subject, each in measured.items() for name, value in each.flat(subject).items()}
    report.write(output, flat)
    beside = output.with_name("peers.json")
    beside.write_text(json.dumps({"machine": place, "settings": settings, "numbers": flat}, indent=2) + "\n")
    print(f"With machine and settings: {beside}")
    return flat


def compared(figures: tuple[Figure, ...], ours: Measured, theirs: Measured) -> str:
    """A table of what both have: a time, rate or size of each, and how many times as good ours is."""
    rows = [("", "Perdure", "DBOS", "")]
    for figure in figures:
        if figure.name not in theirs.samples:
            continue
        our, their = median(ours.samples[figure.name]), median(theirs.samples[figure.name])
        times = our / their if figure.is_rate else their / our
        rows.append((figure.what, number(our, figure.unit), number(their, figure.unit), f"{times:,.1f} x"))
    return aligned(rows, lefts=(0,))


def main() -> None:
    run(*report.options("python -m benchmarks.peers", "Measure Perdure beside DBOS.", rounds=3), report.say)


if __name__ == "__main__":
    main()
