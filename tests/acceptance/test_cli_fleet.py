"""`perdure fleet`, and `perdure worker --processes`: several workers that are started, watched, drained and ended as one."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure, Status
from perdure.ports.fleet import Process
from perdure.testing.conformance.fleet import OTHER, process
from tests.acceptance import shop
from tests.acceptance.conftest import Call
from tests.acceptance.working import PROGRAM, Worker, begin, status

#: A module that the app includes: it is imported when the app is opened.
LATE = """
from perdure import workflow

print("starting", flush=True)


@workflow
async def late() -> None: ...
"""
HOUR = 3_600_000_000


def enlist(folder: Path, *processes: Process) -> None:
    """Have these be members of the store's fleet."""

    async def beat() -> None:
        async with shop.app(folder).client() as client:
            renewer = client.engine.store.renewer()
            for each in processes:
                renewer.beat(each, HOUR)
            renewer.close()

    asyncio.run(beat())


# ---------------------------------------------------------------- who is there


def test_it_says_who_works_what_they_serve_and_how_busy_they_are(call: Call, tmp_path: Path) -> None:
    enlist(
        tmp_path,
        process("host:7:aa", held=3, lag=1_500_000, serves=(*process().serves, OTHER), namespaces=("red", "blue")),
        process("elsewhere", host="b", pid=8, draining=True, serves=(), started_at=9),
    )
    answer = call("fleet")
    assert answer.code == 0
    head, first, second = answer.out.splitlines()
    assert head.split() == ["process", "host", "pid", "serves", "runs", "lag", "perdure", "state", "seen"]
    assert first.split()[:3] == ["aa", "host", "7"]
    assert "other 1, work 1 in red, blue" in first
    assert ("3/100" in first, "1.5 s" in first, "1.2.3" in first, "working" in first) == (True, True, True, True)
    assert second.split()[:4] == ["elsewhere", "b", "8", "nothing"]
    assert "draining" in second
    assert "ago" in second


def test_it_says_the_same_to_programs(call: Call, tmp_path: Path) -> None:
    enlist(tmp_path, process("host:7:aa", held=3, lag=1_500_000, namespaces=("red",), draining=True))
    [told] = call("fleet", "--json").json["processes"]
    assert told.pop("seen_at") < told.pop("expires_at")
    assert told == {
        "process": "host:7:aa",
        "host": "host",
        "pid": 7,
        "perdure": "1.2.3",
        "state": "draining",
        "namespaces": ["red"],
        "serves": [{"workflow": "work", "version": "1"}],
        "held": 3,
        "limit": 100,
        "lag_ms": 1500.0,
        "started_at": "1970-01-01T00:00:00.000005Z",
    }


def test_where_nobody_works_it_says_how_to_begin(call: Call, tmp_path: Path) -> None:
    enlist(tmp_path)
    answer = call("fleet")
    assert (answer.code, "perdure worker" in answer.out) == (0, True)
    assert call("fleet", "--json").json == {"processes": []}


def test_a_store_that_is_not_there_is_told(call: Call) -> None:
    assert call("fleet").code == 1


def test_a_run_that_nobody_serves_waits_for_a_worker(call: Call, tmp_path: Path) -> None:
    async def leave() -> None:
        async with shop.app(tmp_path).client() as client:
            await client.start(shop.add, 1, id="r")
            await client.engine.store.block_unserved(0)

    asyncio.run(leave())
    [wait] = call("runs", "show", "r", "--json").json["waits"]
    assert (wait["what"], wait["name"]) == ("worker", "add 3")
    assert "no process serves workflow 'add' version '3'" in call("runs", "show", "r").out


# ---------------------------------------------------------------- several processes

Start = Callable[..., Worker]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM.format(url=shop.url(tmp_path)))
    os.mkfifo(tmp_path / "gate")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start a worker with these options. At the end it is killed, and its children, which drain then, are waited for."""
    made: list[Worker] = []

    def begin(*arguments: str) -> Worker:
        made.append(Worker(folder, *arguments))
        return made[-1]

    yield begin
    for worker in made:
        worker.process.kill()
        worker.process.communicate(timeout=60)


def fleet(folder: Path) -> list[Process]:
    async def look() -> list[Process]:
        async with shop.app(folder).client() as client:
            return [member.process for member in await client.engine.store.fleet()]

    return asyncio.run(look())


def test_it_works_in_so_many_processes_and_ends_when_all_have(folder: Path, start: Start) -> None:
    worker = start("--processes", "3", "--concurrency", "7")
    pids = {worker.until("ready")["pid"] for _ in range(3)}
    assert len(pids) == 3
    assert worker.process.pid not in pids
    processes = fleet(folder)
    assert {each.pid for each in processes} == pids
    assert {each.limit for each in processes} == {7}
    begin(folder, worker)
    worker.process.terminate()
    assert {worker.until("draining")["pid"] for _ in range(3)} == pids
    (folder / "gate").write_text("through")
    assert worker.until("run.completed")["pid"] in pids
    ended = [worker.until("process.ended") for _ in range(3)]
    assert {each["pid"] for each in ended} == pids
    assert {(each["code"], each["restarts_in"]) for each in ended} == {(0, None)}
    code, err = worker.end()
    assert (code, status(folder)) == (0, (Status.COMPLETED, b'"through"')), err
    assert "draining 3 processes" in err
    assert fleet(folder) == []


def test_one_that_dies_is_replaced(folder: Path, start: Start) -> None:
    worker = start("--processes", "2")
    first, second = (worker.until("ready")["pid"] for _ in range(2))
    for victim in (first, second):
        os.kill(victim, signal.SIGKILL)
        ended = worker.until("process.ended")
        assert (ended["pid"], ended["code"], ended["restarts_in"]) == (victim, -signal.SIGKILL, 0.5)
        assert worker.until("ready")["pid"] not in (first, second)
    worker.process.send_signal(signal.SIGINT)
    code, err = worker.end()
    assert code == 0, err  # those that died were replaced
    assert err.count("ended with SIGKILL; another takes its place in 0.5 s") == 2


def test_the_pause_grows_for_one_that_dies_again_and_again(folder: Path, start: Start) -> None:
    worker = start("--processes", "2")
    worker.until("ready")
    victim = worker.until("ready")["pid"]
    pauses: list[float] = []
    for _ in range(2):
        os.kill(victim, signal.SIGKILL)
        pauses.append(worker.until("process.ended")["restarts_in"])
        victim = worker.until("ready")["pid"]
    assert pauses == [0.5, 1.0]


def test_one_that_does_not_end_well_makes_the_exit_code_1(folder: Path, start: Start) -> None:
    worker = start("--processes", "2")
    for _ in range(2):
        worker.until("ready")
    holder = begin(folder, worker)["pid"]
    worker.process.terminate()
    for _ in range(2):
        worker.until("draining")
    os.kill(holder, signal.SIGKILL)
    code, err = worker.end()
    assert code == 1
    assert f"process {holder} ended with SIGKILL" in err


def test_a_second_signal_ends_all_at_once(folder: Path, start: Start) -> None:
    worker = start("--processes", "2")
    for _ in range(2):
        worker.until("ready")
    begin(folder, worker)
    worker.process.terminate()
    for _ in range(2):
        worker.until("draining")
    worker.process.terminate()
    code, err = worker.end()  # which all had to leave for that: it was theirs too
    assert code == 128 + signal.SIGTERM
    assert "giving up at once" in err
    assert "Traceback" not in err
    assert status(folder)[0] is Status.RUNNING, "nobody has given it back: its lease has to run out"


def test_a_signal_to_all_of_them_at_once_counts_once(folder: Path, start: Start) -> None:
    """As service managers send it."""
    worker = start("--processes", "2")
    pids = [worker.until("ready")["pid"] for _ in range(2)]
    begin(folder, worker)
    for pid in (*pids, worker.process.pid):
        os.kill(pid, signal.SIGTERM)
    for _ in range(2):
        worker.until("draining")
    (folder / "gate").write_text("through")
    code, err = worker.end()
    assert (code, status(folder)) == (0, (Status.COMPLETED, b'"through"')), err
    assert "giving up" not in err


def test_children_drain_when_their_parent_is_killed(folder: Path, start: Start) -> None:
    worker = start("--processes", "2")
    for _ in range(2):
        worker.until("ready")
    begin(folder, worker)
    worker.process.kill()
    (folder / "gate").write_text("through")
    code, err = worker.end()
    assert code == -signal.SIGKILL
    assert err.count("stopped") == 2
    assert "Traceback" not in err
    assert status(folder) == (Status.COMPLETED, b'"through"')
    assert fleet(folder) == []


def test_it_stops_when_its_input_ends_if_told_so(start: Start) -> None:
    worker = start("--processes", "2", "--stop-on-eof")
    for _ in range(2):
        worker.until("ready")
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    worker.process.stdin = None
    assert worker.end()[0] == 0


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("idle", 2, "consume=False"),
        ("missing", 2, "has no 'missing'"),
        ("boom", 1, "ValueError"),
        ("memory", 2, "memory"),
    ],
)
def test_what_is_wrong_with_the_app_is_said_once(
    folder: Path, call: Call, capfd: pytest.CaptureFixture[str], name: str, code: int, says: str
) -> None:
    with (folder / "program.py").open("a") as program:
        program.write("\n\ndef boom():\n    raise ValueError('boom')\n\n\nmemory = Perdure('memory://')\n")
    answer = call("worker", f"program:{name}", "--processes", "3")
    err = capfd.readouterr().err
    assert (answer.code, says in err) == (code, True), err
    assert err.count("perdure: ") == 1


def test_its_output_is_for_people_unless_asked(folder: Path) -> None:
    worker = Worker(folder, "--processes", "2", quiet=True)
    assert worker.process.stderr is not None
    lines: list[str] = []
    while sum("steps:" in line for line in lines) < 2:
        lines.append(worker.process.stderr.readline())
        assert lines[-1], lines
    worker.process.terminate()
    out, err = worker.process.communicate(timeout=60)
    assert (worker.process.returncode, out) == (0, ""), err
    pids = {line.partition("[")[2].partition("]")[0] for line in lines if "serving" in line}
    assert len(pids) == 2


# ---------------------------------------------------------------- told to stop while it starts


def tell_of_the_start(folder: Path) -> None:
    """The worker prints a line between when it hears signals and when it opens the store."""
    (folder / "late.py").write_text(LATE)
    program = folder / "program.py"
    program.write_text(program.read_text().replace("drain=60", "include=['late'], drain=60"))


def test_a_signal_while_the_worker_starts_ends_it(folder: Path, start: Start) -> None:
    """It waits for the store, which somebody else has locked; it need not wait any more."""
    tell_of_the_start(folder)
    enlist(folder)
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        worker = start()
        assert worker.process.stdout is not None
        assert worker.process.stdout.readline() == "starting\n"
        worker.process.terminate()
        worker.until("stopped")
        code, err = worker.end()
        assert code == 0, err
        assert "Traceback" not in err
    assert fleet(folder) == []


def test_a_signal_while_the_first_of_several_starts_ends_them(folder: Path, start: Start) -> None:
    tell_of_the_start(folder)
    enlist(folder)
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        worker = start("--processes", "3")
        assert worker.process.stdout is not None
        assert worker.process.stdout.readline() == "starting\n"
        worker.process.terminate()
        code, err = worker.end()
        assert code == 0, err
        assert err.count("stopped") == 1


def test_the_concurrency_bounds_runs_and_steps(folder: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    seen: list[Any] = []

    async def serve(app: Perdure, *arguments: Any, **keywords: Any) -> None:
        seen.append((app.settings.max_runs, app.settings.max_steps))

    monkeypatch.setattr("perdure.cli.worker.serve", serve)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(__import__("sys").modules, "program", raising=False)
    assert call("worker", "program:app", "--concurrency", "5").code == 0
    assert seen == [(5, 5)]
    assert call("worker", "program:app", "--concurrency", "0").code == 2
    assert call("worker", "program:app", "--processes", "0").code == 2
    monkeypatch.delitem(__import__("sys").modules, "program", raising=False)
