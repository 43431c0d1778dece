"""Apps, threads, loops and forks in one process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure import Context, Perdure, UsageError, current_step, step, workflow

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
    results: dict[str, object] = {}

    async def main(name: str) -> None:
        async with Perdure(f"sqlite:///{tmp_path / name}.db") as app:
            run = await app.start(in_a_thread, 1, id=name)
            results[name] = (await run.result(), await (await app.start(doubled, 4)).result())

    threads = [threading.Thread(target=asyncio.run, args=(main(name),)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {name: (f"{name} 1 perdure-step-1", 8) for name in ("one", "two")}


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
import asyncio, os, sys
from perdure import Context, Perdure, PerdureError, step, workflow

@step
async def double(n: int) -> int:
    return 2 * n

@workflow
async def doubled(ctx: Context, n: int) -> int:
    return await double(n)

async def child(inherited, run):
    for use in (
        lambda: inherited.start(doubled, 9, id="inherited"),
        lambda: inherited.runs(),
        lambda: run.status(),
        lambda: run.cancel(),
    ):
        try:
            await asyncio.wait_for(use(), 10)
        except PerdureError as error:
            assert "fork" in str(error) or "loop" in str(error) or "process" in str(error), error
        else:
            raise AssertionError("an inherited app was used")
    async with Perdure(sys.argv[1]) as own:
        assert await (await own.start(doubled, 3, id="child")).result(timeout=10) == 6

async def main():
    async with Perdure(sys.argv[1]) as app:
        run = await app.start(doubled, 1, id="before")
        assert await run.result() == 2
        pid = os.fork()
        if not pid:
            status = 1
            try:
                asyncio.events._set_running_loop(None)
                loop = asyncio.new_event_loop()
                loop.run_until_complete(child(app, run))
                status = 0
            finally:
                sys.stderr.flush()
                if status:
                    import traceback
                    traceback.print_exc()
                os._exit(status)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert status == 0, status
        assert await (await app.start(doubled, 2, id="after")).result() == 4
        assert sorted(found.id for found in await app.runs()) == ["after", "before", "child"]

asyncio.run(main())
print("parent unharmed")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="platform: no fork")
def test_f52_after_a_fork_the_child_is_told_and_the_parent_is_unharmed(tmp_path: Path) -> None:
    script = tmp_path / "fork.py"
    script.write_text(FORK)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(script), f"sqlite:///{tmp_path / 'store.db'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "parent unharmed\n"
