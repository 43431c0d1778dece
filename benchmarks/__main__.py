"""`python -m benchmarks`: measure, print beside raw limits and targets, and write a flat object of numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks import report
from benchmarks.figures import IMPORT
from benchmarks.importing import import_ms, interpreter_ms
from benchmarks.postgres import NoServer, Postgres, server
from benchmarks.sizes import Sizes
from benchmarks.sqlite import Sqlite
from benchmarks.subject import Say, Subject, machine, measure
from benchmarks.table import bare_line, number, store_table


def run(sizes: Sizes, output: Path, say: Say) -> Mapping[str, float]:
    """Measure everything, print it, and put the numbers into `output`, whose numbers of other subjects stay."""
    output.parent.mkdir(parents=True, exist_ok=True)
    flat: dict[str, float] = {}
    print(machine())
    # Beside the output, not in the system's folder for temporary files: that may lie in memory, where nothing is durable.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=output.parent) as folder, ExitStack() as stack:
        subjects: list[Subject] = [Sqlite(Path(folder))]
        try:
            subjects.append(stack.enter_context(Postgres(stack.enter_context(server()))))
        except NoServer as error:
            print(f"SQLite only: {error}")
        settings = {subject.name: subject.settings() for subject in subjects}
        for subject in subjects:
            measured = measure([subject], sizes, say)[subject.name]
            say("")
            print(f"\n{settings[subject.name]}")
            print(bare_line(measured.raw), end="\n\n")
            print(store_table(subject.figures(sizes), measured.samples, measured.raw))
            flat |= measured.flat(subject.name)
    flat[IMPORT.name] = import_ms(sizes.imports)
    bare = interpreter_ms(sizes.imports)
    print(
        f"\n{IMPORT.what}: {number(flat[IMPORT.name], 'ms')} (target {IMPORT.goal()}), beside an interpreter that starts and "
        f"ends: {number(bare, 'ms')}, ratio {flat[IMPORT.name] / bare:.2f}"
    )
    report.write(output, flat)
    return flat


def main() -> None:
    run(*report.options("python -m benchmarks", "Measure Perdure on this machine.", rounds=Sizes().repeats), report.say)


if __name__ == "__main__":
    main()
