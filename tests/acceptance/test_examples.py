"""The examples run as their first lines say, each command as a process of its own. One of them is killed in the middle."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sqlite3
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import islice
from pathlib import Path

import pytest

from perdure import Perdure, Status

EXAMPLES = Path(__file__).parents[2] / "examples"


class Program:
    """A process of an example that is running."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self, part: str) -> str:
        """The next line that it writes with `part` in it. Fails with what came instead if there is none."""
        lines: list[str] = []
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            lines.append(line.decode().rstrip())
            if part in lines[-1]:
                return lines[-1]
        raise AssertionError(f"{part!r} never came, only {lines}")

    async def end(self) -> list[str]:
        """Wait until it ends well; what it still wrote."""
        out, _ = await self._process.communicate()
        assert self._process.returncode == 0, out.decode()
        return out.decode().splitlines()

    async def kill(self, how: signal.Signals) -> int:
        """Send it a signal and wait for its end; its exit status."""
        self._process.send_signal(how)
        await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode


@asynccontextmanager
async def running(folder: Path, example: str, *arguments: object) -> AsyncIterator[Program]:
    """`python -W error examples/<example>.py <arguments>` in `folder`. It does not outlive the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(EXAMPLES / f"{example}.py"),
        *map(str, arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run(folder: Path, example: str, *arguments: object) -> list[str]:
    """What the example writes until it ends."""
    async with running(folder, example, *arguments) as program:
        return await program.end()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_tested(path: Path) -> None:
    assert f'"{path.stem}"' in Path(__file__).read_text(encoding="utf-8")


# ---------------------------------------------------------------- checkout


async def test_an_order_is_approved_from_another_process_and_shipped(tmp_path: Path) -> None:
    assert await run(tmp_path, "checkout", "place", 42, 950) == ["checkout:42 is pending"]
    async with running(tmp_path, "checkout", "serve") as serve:
        await serve.line("charged 950 for order 42")
        await serve.line("checkout:42: run.suspended")
        assert await run(tmp_path, "checkout", "show", 42) == [
            "checkout:42 is suspended; paid; waits for approval",
        ]
        await run(tmp_path, "checkout", "approve", 42, "ada")
        await serve.line("printed the label of order 42")
        await serve.line("checkout:42: run.completed")
        assert await run(tmp_path, "checkout", "show", 42) == ["checkout:42 is completed; approved by ada"]
        assert await serve.kill(signal.SIGTERM) == 0


async def test_an_order_waits_while_nobody_serves_it(tmp_path: Path) -> None:
    await run(tmp_path, "checkout", "place", 7, 10)
    async with running(tmp_path, "checkout", "serve") as serve:
        await serve.line("checkout:7: run.suspended")
        await serve.kill(signal.SIGKILL)
    await run(tmp_path, "checkout", "approve", 7, "ada")
    async with running(tmp_path, "checkout", "serve") as serve:
        # Not charged again: the first line about it is of the step after the approval.
        assert await serve.line("order 7") == "printed the label of order 7"
        await serve.line("checkout:7: run.completed")


async def test_an_order_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with running(tmp_path, "checkout", "approve", 1, "ada") as program:
        assert await program.line("run_not_found") == (
            "run_not_found: there is no run 'checkout:1' to send 'approve' to"
        )


# ---------------------------------------------------------------- pipeline


def sales(folder: Path, **amounts: str) -> None:
    folder.mkdir(exist_ok=True)
    for region, lines in amounts.items():
        (folder / f"{region}.csv").write_text("amount\n" + lines.replace(" ", "\n") + "\n")


async def test_a_pipeline_reports_what_it_could_read_and_names_the_rest(tmp_path: Path) -> None:
    sales(tmp_path / "sales", north="10.50 20", south="3", spoilt="10 many")
    lines = await run(tmp_path, "pipeline", "sales")
    report = tmp_path / "sales" / "report.md"
    assert lines[-1] == f"2 regions, 1 failures: {report}"
    assert report.read_text().splitlines()[4:] == [
        "| north | 2 | 30.50 |",
        "| south | 1 | 3 |",
        "",
        "spoilt.csv: spoilt.csv is no table of sales: InvalidOperation",
    ]
    again = await run(tmp_path, "pipeline", "sales")
    assert again == lines[-1:], "the run of that name was there: nothing was done again"


async def test_a_pipeline_that_is_killed_goes_on_with_what_was_left(tmp_path: Path) -> None:
    folder = tmp_path / "sales"
    sales(folder, east="1", north="2", west="4")
    os.mkfifo(folder / "south.csv")  # Reading it takes until somebody writes into it: nobody does.
    async with running(tmp_path, "pipeline", "sales") as first:
        await first.line("reading south.csv")
        await all_done_but_one(tmp_path / "pipeline.db", "sales:first")
        assert await first.kill(signal.SIGKILL) == -signal.SIGKILL
    (folder / "south.csv").unlink()
    sales(folder, south="3")
    lines = await run(tmp_path, "pipeline", "sales")
    assert lines == ["reading south.csv", f"4 regions, 0 failures: {folder / 'report.md'}"]


async def all_done_but_one(path: Path, run_id: str) -> None:
    """Wait until the children for all files but one have ended, as another process sees it."""
    async with Perdure(f"sqlite:///{path}").client() as client:
        history = await client.get_run(run_id).steps()
        children = [one.name for one in history if one.op == "child"]
        ends = [asyncio.ensure_future(client.get_run(child).result()) for child in children]
        for end in islice(asyncio.as_completed(ends), len(ends) - 1):
            await end
        unfinished = [child for child, end in zip(children, ends, strict=True) if not end.done()]
        assert len(unfinished) == 1
        assert await client.get_run(unfinished[0]).status() is Status.RUNNING
        for end in ends:
            end.cancel()


# ---------------------------------------------------------------- nightly import


def customers(path: Path, count: int) -> None:
    lines = [f"{'' if number % 100 == 50 else f'customer {number}'},Berlin" for number in range(1, count + 1)]
    path.write_text("name,city\n" + "\n".join(lines) + "\n")


def warehouse(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "warehouse.db")) as database:
        return [line for [line] in database.execute("SELECT line FROM customers ORDER BY line")]


async def test_a_nightly_import_writes_each_row_once_in_batches(tmp_path: Path) -> None:
    customers(tmp_path / "customers.csv", 250)
    lines = await run(tmp_path, "nightly_import", "customers.csv")
    assert lines[-1] == "customers.csv: 247 rows imported, 3 rejected"
    batches = [int(line.split()[1]) for line in lines if "writing" in line]
    assert sum(batches) == 250
    assert max(batches) <= 100
    assert len(warehouse(tmp_path)) == 247
    again = await run(tmp_path, "nightly_import", "customers.csv")
    assert again == ["250 rows have arrived", lines[-1]], "all were there: nothing was done again"


async def test_a_nightly_import_that_is_killed_goes_on_and_loses_no_row(tmp_path: Path) -> None:
    customers(tmp_path / "customers.csv", 250)
    async with running(tmp_path, "nightly_import", "customers.csv") as first:
        await first.line("writing")
        await first.line("writing")
        assert await first.kill(signal.SIGKILL) == -signal.SIGKILL
    lines = await run(tmp_path, "nightly_import", "customers.csv")
    assert lines[-1] == "customers.csv: 247 rows imported, 3 rejected"
    assert warehouse(tmp_path) == [number for number in range(1, 251) if number % 100 != 50]


# ---------------------------------------------------------------- subscription


async def test_a_subscription_outlives_its_process_hears_changes_and_goes_on_year_after_year(tmp_path: Path) -> None:
    async with running(tmp_path, "subscription", "serve", "ada", 0.02) as serve:
        assert await serve.line("charged") == "subscription:ada: charged ada 5"
        await serve.line("subscription:ada~1: charged ada 5")
        assert await serve.kill(signal.SIGTERM) == 0
    assert await run(tmp_path, "subscription", "change", "ada", "pro") == []
    async with running(tmp_path, "subscription", "serve", "ada", 0.02) as serve:
        await serve.line("charged ada 12")
        await run(tmp_path, "subscription", "change", "ada", "none")
        await serve.line("ada left, having paid")
        assert await serve.end() == []


# ---------------------------------------------------------------- approval


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def fetched(url: str, form: dict[str, str] | None = None) -> tuple[int, str]:
    data = None if form is None else urllib.parse.urlencode(form).encode()
    try:
        with urllib.request.urlopen(url, data, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_an_expense_is_approved_on_its_page_also_after_a_kill(tmp_path: Path) -> None:
    port = free_port()
    arguments = ("approval", port, 950, "ada", "bob")
    async with running(tmp_path, *arguments) as program:
        lines = [await program.line("950?") for _ in range(2)]
        await program.kill(signal.SIGTERM)
    link = next(line for line in lines if line.startswith("bob:")).split()[-1]
    async with running(tmp_path, *arguments) as program:
        await program.line("serving")
        status, page = await asyncio.to_thread(fetched, link)
        assert status == 200
        action = re.findall(r'action="([^"]+)"', page)[0]
        where = f"http://127.0.0.1:{port}{action}"
        assert (await asyncio.to_thread(fetched, where + "x", {"option": "approve"}))[0] == 404
        answer = await asyncio.to_thread(fetched, where, {"option": "approve", "comment": "for the hall"})
        assert answer == (202, "accepted\n")
        assert (await program.end())[-1] == "bob said approve: for the hall"


# ---------------------------------------------------------------- trip


async def test_trips_are_booked_whole_or_not_at_all_whatever_fails_and_whoever_is_killed(tmp_path: Path) -> None:
    async with running(tmp_path, "trip", "agency", 0) as agency:
        url = (await agency.line("listens")).split()[-1]
        async with running(tmp_path, "trip", "travel", url, 20) as first:
            for _ in range(15):
                await agency.line("booked")
            assert await first.kill(signal.SIGKILL) == -signal.SIGKILL
        lines = await run(tmp_path, "trip", "travel", url, 20)
        sold_out = [f"customer-{number}" for number in (3, 7, 13, 17)]
        assert [line for line in lines if "booked" in line] == [
            f"customer-{number}: " + ("not booked, no car left" if f"customer-{number}" in sold_out else "booked")
            for number in range(20)
        ]
        stands = await run(tmp_path, "trip", "bookings", url)
        assert sorted(stands) == sorted(
            f"customer-{n}: 3 bookings" for n in range(20) if f"customer-{n}" not in sold_out
        )
        await agency.kill(signal.SIGINT)


# ---------------------------------------------------------------- bank


async def test_a_bank_that_is_killed_again_and_again_loses_no_cent(tmp_path: Path) -> None:
    for kill in (1, 3, 5):
        async with running(tmp_path, "bank", "run", 5, 80) as program:
            for _ in range(kill):
                await program.line("transfers")
            await program.kill(signal.SIGKILL)
    lines = await run(tmp_path, "bank", "run", 5, 80)
    assert lines[-1].startswith("80 transfers")
    assert await run(tmp_path, "bank", "sum", 5) == ["500 in 5 accounts"]


# ---------------------------------------------------------------- agent


async def test_an_agent_is_watched_word_by_word_through_a_kill_and_asks_before_it_spends(tmp_path: Path) -> None:
    assert await run(tmp_path, "agent", "ask", "dinner", "a table for four") == ["agent:dinner is pending"]
    async with running(tmp_path, "agent", "watch", "dinner") as watch:
        async with running(tmp_path, "agent", "serve") as serve:
            await serve.line("looked for tables tonight")
            await watch.line("(the model hung up, and begins again)")
            await watch.line("[may I book_table the Blue Door?]")
            await serve.kill(signal.SIGKILL)
        await run(tmp_path, "agent", "approve", "dinner", "yes")
        async with running(tmp_path, "agent", "serve") as serve:
            # Not thought again: the first that it does is what it was allowed to.
            assert await serve.line("oo") == "booked the Blue Door under agent"
            assert (await watch.end())[-1] == "=> Done: the Blue Door, at eight."
            assert await serve.kill(signal.SIGTERM) == 0
    # Whoever comes later reads it all.
    lines = await run(tmp_path, "agent", "watch", "dinner")
    assert lines[:5] == ["I", "look", "up", "what", "is"]
    assert lines.count("There") == 2


async def test_an_agent_that_may_not_does_not(tmp_path: Path) -> None:
    await run(tmp_path, "agent", "ask", "lunch", "a table for two")
    await run(tmp_path, "agent", "approve", "lunch", "no")
    async with running(tmp_path, "agent", "serve") as serve:
        await serve.line("serving")
        lines = await run(tmp_path, "agent", "watch", "lunch")
        assert lines[-1] == "=> Done: a person said no, so nothing was booked."
        assert await serve.kill(signal.SIGTERM) == 0
