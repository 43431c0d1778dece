"""`perdure worker` as a process: it says what it serves, drains when told to, gives up when told again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure, Status
from perdure.cli.stopping import SIGNALS, stopping
from perdure.cli.worker import serve
from perdure.model.errors import UsageError
from tests.acceptance import shop
from tests.acceptance.conftest import Call
from tests.acceptance.working import PROGRAM, Worker, begin, status


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM.format(url=shop.url(tmp_path)))
    os.mkfifo(tmp_path / "gate")
    return tmp_path


@pytest.fixture
def worker(folder: Path) -> Iterator[Worker]:
    made = Worker(folder)
    yield made
    made.process.kill()
    made.process.communicate()


def test_it_says_what_it_serves(worker: Worker, folder: Path) -> None:
    ready = worker.until("ready")
    assert ready["pid"] == worker.process.pid
    assert ready["workflows"] == ["walk 2"]
    assert ready["steps"] == ["pass_gate"]
    assert ready["store"] == shop.url(folder)


@pytest.mark.parametrize("number", SIGNALS)
def test_drain_02_a_signal_lets_what_runs_come_to_its_end(folder: Path, worker: Worker, number: signal.Signals) -> None:
    worker.until("ready")
    begin(folder, worker)
    worker.process.send_signal(number)
    assert worker.until("draining")["held"] == 1
    (folder / "gate").write_text("through")
    worker.until("run.completed")
    worker.until("stopped")
    code, err = worker.end()
    assert (code, status(folder)) == (0, (Status.COMPLETED, b'"through"')), err
    assert "draining: 1 runs are held here" in err


def test_a_second_signal_gives_up_at_once(folder: Path, worker: Worker) -> None:
    worker.until("ready")
    begin(folder, worker)
    worker.process.terminate()
    worker.until("draining")
    worker.process.terminate()
    code, err = worker.end()
    assert code == 128 + signal.SIGTERM
    assert "giving up at once" in err
    assert "Traceback" not in err
    assert status(folder)[0] is Status.RUNNING, "nobody has given it back: its lease has to run out"


def test_cli_03_an_idle_worker_stops_without_having_been_needed(worker: Worker) -> None:
    worker.until("ready")
    worker.process.terminate()
    assert worker.until("draining")["held"] == 0
    worker.until("stopped")
    code, err = worker.end()
    assert code == 0
    assert "Exception" not in err


def test_it_stops_when_its_input_ends_if_told_so(folder: Path) -> None:
    worker = Worker(folder, "--stop-on-eof")
    worker.until("ready")
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    worker.until("stopped")
    worker.process.stdin = None
    assert worker.end()[0] == 0


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [("idle", 2, "consume=False"), ("missing", 2, "has no 'missing'")],
)
def test_a_worker_that_could_do_nothing_says_so(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int, says: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "program", raising=False)
    answer = call("worker", f"program:{name}")
    monkeypatch.delitem(sys.modules, "program", raising=False)
    assert (answer.code, says in answer.err) == (code, True), answer.err


def test_f53_a_worker_in_another_thread_leaves_the_signals_alone(tmp_path: Path) -> None:
    ready, ended = threading.Event(), threading.Event()
    tasks: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    events: list[str] = []

    def tell(event: dict[str, Any]) -> None:
        events.append(event["event"])
        task = asyncio.current_task()
        if event["event"] == "ready" and task is not None:
            tasks.append((task.get_loop(), task))
            ready.set()

    def work() -> None:
        try:
            asyncio.run(serve(shop.app(tmp_path), tell))
        except asyncio.CancelledError:
            ended.set()

    before = [signal.getsignal(number) for number in SIGNALS]
    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(60)
    assert [signal.getsignal(number) for number in SIGNALS] == before
    loop, task = tasks[0]
    loop.call_soon_threadsafe(task.cancel)
    thread.join(60)
    assert ended.is_set()
    assert events == ["ready"]


def test_the_signals_are_given_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with stopping(lambda: None):
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


async def test_an_app_without_workflows_serves_nothing(tmp_path: Path) -> None:
    app = Perdure(shop.url(tmp_path))
    with pytest.raises(UsageError, match="serves no workflow"):
        await serve(app, None)
