"""A data pipeline: one child workflow for each file of sales, all at once, and a report of what they found.

    python examples/pipeline.py sales      # sales/north.csv, sales/south.csv, ... become sales/report.md

Kill it in the middle and start it again: files that were summed up are not read again. A file that cannot be summed up does not
stop the others; the report names it. Once the report is there, starting again only prints it: give the run another name, as in
`python examples/pipeline.py sales 2025-06`, to make another one.
"""

from __future__ import annotations

import asyncio
import csv
import sys
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

from perdure import Context, FatalError, GatherError, Perdure, step, workflow


@dataclass
class Summary:
    region: str
    sales: int
    total: Decimal


@dataclass
class Report:
    path: Path
    summaries: list[Summary]
    failures: dict[str, str] = field(default_factory=dict[str, str])


@step
def find(folder: Path) -> list[Path]:
    # Sorted, so that people find their way about. What comes of it is recorded: a file that appears later is not in this run.
    return sorted(folder.glob("*.csv"))


@step(max_attempts=3)
def sum_up(path: Path) -> Summary:
    print(f"reading {path.name}", flush=True)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        return Summary(path.stem, len(rows), sum((Decimal(row["amount"]) for row in rows), Decimal(0)))
    except (KeyError, InvalidOperation) as error:
        # The file will be as wrong at the next attempt. Any other error, such as a disk that stutters, is tried again.
        raise FatalError(f"{path.name} is no table of sales: {type(error).__name__}") from error


@step
def write(folder: Path, report: Report) -> Report:
    lines = ["# Sales", "", "| region | sales | total |", "|---|--:|--:|"]
    lines += [f"| {one.region} | {one.sales} | {one.total} |" for one in report.summaries]
    lines += [f"\n{name}: {reason}" for name, reason in report.failures.items()]
    report.path.write_text("\n".join(lines) + "\n")  # The same again if it is cut off and made again.
    return report


@workflow
async def region(ctx: Context, path: Path) -> Summary:
    return await ctx.step(sum_up, path)


@workflow
async def sales_report(ctx: Context, folder: Path) -> Report:
    paths = await ctx.step(find, folder)
    report = Report(folder / "report.md", [])
    try:
        report.summaries = await ctx.all(region, paths)
    except GatherError as error:
        report.summaries = [one for one in error.results if one is not None]
        report.failures = {paths[index].name: str(reason.__cause__) for index, _, reason in error.failures}
    return await ctx.step(write, folder, report)


async def main(folder: Path, name: str) -> None:
    # What a killed process was at work on is taken up again when its lease is over. 30 seconds is the default.
    async with Perdure("sqlite:///pipeline.db", lease=3) as app:
        run = await app.start(sales_report, folder, id=f"sales:{name}")
        report = await run.result()
    print(f"{len(report.summaries)} regions, {len(report.failures)} failures: {report.path}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "first"))
