"""Apps, threads, loops and forks in one process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure import Context, Perdure, UsageError, current_step, step, workflow

SIGNALS = (signal.SIGTERM, signal.SIGINT)
ROOT = Path(__file__).parents[2]


@step
async def double(n: int) -> int:
    return 2 * n


@step
def threaded(n: int) -> str:
    return f"{current_step().run_id} {n} {threading.current_thread().name}"


@workflow
async def doubled(ctx: Context, n: int) -> int:
    return await double(n)


@workflow
async def waits(ctx: Context) -> int:
    await asyncio.sleep(0.01)
    return await ctx.wait_for_signal("go", type=int)


@workflow
async def in_a_thread(ctx: Context, n: int) -> str:
    return await ctx.step(threaded, n)


async def test_two_apps_on_two_files_know_nothing_of_each_other(tmp_path: Path) -> None:
    first_url, second_url = (f"sqlite:///{tmp_path / name}.db" for name in ("first", "second"))
    async with Perdure(first_url) as first:
        async with Perdure(second_url) as second:
            runs = [await app.start(doubled, n, id="same") for n, app in enumerate((first, second), start=1)]
            assert [await run.result() for run in runs] == [2, 4]
            # Who does not say on which app means the one entered last.
            assert (await doubled.using(id="inner").start(5)).id == "inner"
            assert [run.id for run in await second.runs()] == ["inner", "same"]
        assert [run.id for run in await first.runs()] == ["same"]
        assert await doubled.run(6) == 12
        assert len(await first.runs()) == 2


async def test_two_apps_on_one_file_share_the_work_and_may_close_in_any_order(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    first, second = Perdure(url, include=[doubled]), Perdure(url, include=[doubled])
    await first.__aenter__()
    await second.__aenter__()
    runs = [await app.start(doubled, n) for n in range(20) for app in (first, second)]
    assert [await run.result() for run in runs] == [2 * n for n in range(20) for _ in range(2)]
    seen = [await second.get_run(run.id, doubled).result() for run in runs]
    await first.__aexit__(None, None, None)
    assert await (await second.start(doubled, 50)).result() == 100
    assert seen == [2 * n for n in range(20) for _ in range(2)]
    await second.__aexit__(None, None, None)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("perdure")]


def test_f53_an_app_runs_on_a_loop_in_any_thread(tmp_path: Path) -> None:
    """Steps in threads, timers, signals and leases work there, and nobody's signal handlers are touched."""
    results: dict[str, object] = {}
    handlers: list[object] = []

    async def main(name: str) -> None:
        async with Perdure(f"sqlite:///{tmp_path / name}.db") as app:
            handlers.extend(signal.getsignal(number) for number in SIGNALS)
            run = await app.start(in_a_thread, 1, id=name)
            waiting = await app.start(waits, id="waits")
            await waiting.signal("go", 7)
            results[name] = (await run.result(), await (await app.start(doubled, 4)).result(), await waiting.result())
            await app.engine.renewal.beat()
            [member] = await app.engine.store.fleet()
            assert member.process.owner == app.engine.means.owner

    before = [signal.getsignal(number) for number in SIGNALS]
    threads = [threading.Thread(target=asyncio.run, args=(main(name),)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {name: (f"{name} 1 perdure-step-1", 8, 7) for name in ("one", "two")}
    assert handlers == before * 2


async def test_an_app_is_of_the_loop_that_opened_it(tmp_path: Path) -> None:
    async with Perdure(f"sqlite:///{tmp_path / 'store.db'}") as app:
        run = await app.start(doubled, 1)
        assert await run.result() == 2

        def elsewhere() -> list[str]:
            async def use() -> list[str]:
                told: list[str] = []
                for act in (lambda: app.start(doubled, 2), run.result, app.runs):
                    with pytest.raises(UsageError) as raised:
                        await act()
                    told.append(str(raised.value))
                return told

            return asyncio.run(use())

        for text in await asyncio.to_thread(elsewhere):
            assert "loop" in text
        assert len(await app.runs()) == 1


FORK = """
import asyncio, multiprocessing, os, sys, threading
from perdure import Context, Perdure, PerdureError, UsageError, step, workflow

@step
async def double(n: int) -> int:
    return 2 * n

@workflow
async def doubled(ctx: Context, n: int) -> int:
    return await double(n)

async def told(use):
    try:
        await asyncio.wait_for(use(), 10)
    except UsageError as error:
        assert "forked from" in str(error), error
        assert "Open an app of its own here" in str(error), error
    else:
        raise AssertionError("an inherited app was used")

async def child(inherited, run, name):
    uses = (
        lambda: inherited.start(doubled, 9, id="inherited"),
        lambda: inherited.signal_with_start(doubled, 9, id="inherited", signal="go"),
        lambda: inherited.signal("go", token="t"),
        lambda: inherited.runs(),
        lambda: doubled.start(9),
        lambda: doubled.run(9),
        lambda: run.status(),
        lambda: run.info(),
        lambda: run.result(),
        lambda: run.signal("go"),
        lambda: run.history(),
        lambda: run.cancel(),
        lambda: run.delete(),
    )
    for use in uses:
        await told(use)
    try:
        inherited.get_run("before")
    except UsageError as error:
        assert "forked from" in str(error)
    # Closing it does nothing, however often, and not to the parent's; entering it says to make another.
    for _ in range(2):
        await asyncio.wait_for(inherited.__aexit__(None, None, None), 10)
    try:
        await inherited.__aenter__()
    except UsageError as error:
        assert "make another" in str(error)
    async with Perdure(sys.argv[1]) as own:
        assert await (await own.start(doubled, 3, id=name)).result(timeout=10) == 6
        assert await doubled.run(4) == 8  # on its own
        owners = [member.process.pid for member in await own.engine.store.fleet()]
        assert sorted(owners) == sorted((os.getpid(), os.getppid())), owners

def in_child(app, run, name):
    status = 1
    try:
        asyncio.run(child(app, run, name))
        status = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)

async def main():
    async with Perdure(sys.argv[1]) as app:
        run = await app.start(doubled, 1, id="before")
        assert await run.result() == 2
        engine = app.engine
        if sys.argv[2] == "fork":
            pid = os.fork()
            if not pid:
                asyncio.events._set_running_loop(None)
                in_child(app, run, "child")
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        elif sys.argv[2] == "in the loop":  # the child goes on in the parent's loop
            pid = os.fork()
            if not pid:
                status = 1
                try:
                    for use in (lambda: app.runs(), lambda: run.cancel(), lambda: app.start(doubled, 1)):
                        try:
                            await use()
                        except UsageError as error:
                            assert "forked from" in str(error), error
                            status = 0
                    await app.__aexit__(None, None, None)
                finally:
                    os._exit(status)
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        else:
            made = multiprocessing.get_context("fork").Process(target=in_child, args=(app, run, "child"))
            made.start()
            await asyncio.to_thread(made.join)
            status = made.exitcode
        assert status == 0, status
        # Its threads, its place in the fleet and its leases are untouched.
        assert {"perdure-renewal", "perdure-watchdog"} <= {thread.name for thread in threading.enumerate()}
        await engine.renewal.beat()
        assert [member.process.pid for member in await engine.store.fleet()] == [os.getpid()]
        assert await (await app.start(doubled, 2, id="after")).result() == 4
        found = {found.id for found in await app.runs()}
        assert "inherited" not in found
        assert {"after", "before"} <= found
        assert ("child" in found) == (sys.argv[2] != "in the loop")

asyncio.run(main())
print("parent unharmed")
"""


@pytest.mark.parametrize("how", ["fork", "in the loop", "multiprocessing"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="platform: no fork")
def test_f52_after_a_fork_the_child_is_told_and_the_parent_is_unharmed(how: str, tmp_path: Path) -> None:
    script = tmp_path / "fork.py"
    script.write_text(FORK)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(script), url, how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "parent unharmed\n"
