"""A nightly import: rows arrive as events, are written to a database in batches, and at the end somebody is told how many.

    python examples/nightly_import.py customers.csv      # its rows come into warehouse.db; prints what was imported

Kill it in the middle and start it again: each line of the file is an event with an id of its own, so none is imported twice,
and what was collected already goes on where it was. Rows that are none are counted, and do not stop the others.
"""

from __future__ import annotations

import asyncio
import csv
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from perdure import Batch, Context, Perdure, current_step, step, workflow

# What a killed process was at work on is taken up again when its lease is over. 30 seconds is the default.
app = Perdure("sqlite:///nightly.db", lease=3)


@dataclass
class Row:
    """An event: one line of a file."""

    file: str
    line: int
    name: str
    city: str


@dataclass
class Rows:
    events: list[Row]


@dataclass
class Imported:
    """An event: some rows of a file are in the warehouse."""

    file: str
    rows: int
    rejected: int


@step(max_attempts=5)
def write(rows: list[Row]) -> Imported:
    print(f"writing {len(rows)} rows, from line {rows[0].line}", flush=True)
    good = [row for row in rows if row.name and row.city]
    with closing(sqlite3.connect("warehouse.db")) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS customers (line INTEGER PRIMARY KEY, name TEXT, city TEXT)")
        # Cut off and made again, the step writes the same rows to the same places.
        database.executemany(
            "INSERT OR REPLACE INTO customers VALUES (?, ?, ?)", [(r.line, r.name, r.city) for r in good]
        )
    return Imported(rows[0].file, len(good), len(rows) - len(good))


@step(max_attempts=5)
async def tell(imported: Imported) -> None:
    # The key is the same for every attempt: whoever waits hears of these rows once.
    await app.publish("rows.imported", imported, id=current_step().key)


@workflow(on_event=Batch("row.arrived", max=100, window=timedelta(seconds=2), key="file"))
async def import_rows(ctx: Context, batch: Rows) -> Imported:
    imported = await ctx.step(write, batch.events)
    await tell(imported)
    return imported


@workflow
async def night(ctx: Context, file: str, lines: int) -> Imported:
    total = Imported(file, 0, 0)
    while total.rows + total.rejected < lines:
        # One that came while nobody waited is kept, and is there at once.
        part = await ctx.wait_for_event(
            "rows.imported", match={"file": file}, type=Imported, timeout=timedelta(hours=6)
        )
        total.rows += part.rows
        total.rejected += part.rejected
    return total


async def main(path: Path) -> None:
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    async with app:
        run = await app.start(night, path.name, len(lines), id=f"night:{path.name}")
        app.register(import_rows)
        for number, line in enumerate(lines, start=1):
            row = Row(path.name, number, line.get("name") or "", line.get("city") or "")
            await app.publish("row.arrived", row, id=f"{path.name}:{number}")
        print(f"{len(lines)} rows have arrived", flush=True)
        total = await run.result()
    print(f"{total.file}: {total.rows} rows imported, {total.rejected} rejected")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
