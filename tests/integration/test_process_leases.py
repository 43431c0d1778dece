"""Leases among real processes: killed, drained, blocked."""

from __future__ import annotations

import os
from typing import Any

from perdure import Status
from perdure.model.history import Event
from tests.integration import process_load as load
from tests.integration.process_parent import Part, client, pipe, until, until_renewed

#: Seconds.
SHORT: dict[str, Any] = {"lease": 0.5, "poll": 0.1}


async def test_a_killed_process_is_taken_over_when_its_leases_end(url: str) -> None:
    async with client(url) as app, Part("serve", "a", url, SHORT) as a:
        await a.line("ready")
        waits = await app.start(load.patient, id="waits")
        await a.line("counts", "waits")
        run = await app.start(load.held, id="held")
        await a.line("holds", "held", "1")
        a.kill()
        assert await a.ended() == -9
        async with Part("serve", "b", url, SHORT) as b:
            await b.line("holds", "held", "2")
            await b.go()
            assert await run.result(timeout=20) == "b"
            await waits.signal("go", 5)
            assert await waits.result(timeout=20) == 5
            assert not any(line[:2] == ["counts", "waits"] for line in b.lines)


async def test_f2_f85_sigterm_drains_and_leases_are_renewed_to_the_end(url: str) -> None:
    """The step takes many leases to end; another process stands by all the time, and must not take its run."""
    async with client(url) as app, Part("serve", "a", url, {**SHORT, "drain": 30}) as a:
        await a.line("ready")
        run = await app.start(load.held, id="held")
        await a.line("holds", "held", "1")
        before = await run.info()
        async with Part("serve", "b", url, SHORT) as b:
            await b.line("ready")
            a.terminate()
            await a.line("leaving")
            other = await app.start(load.counted, id="other")
            assert await other.result(timeout=20) == 1  # by b: a claims nothing more
            await until_renewed(app, "held", 5)
            assert (await run.info()).epoch == before.epoch
            await a.go()
            assert await run.result(timeout=20) == "a"
            await a.line("left")
            assert await a.ended() == 0
            assert not any(line[0] == "holds" for line in b.lines)
            assert ["counts", "other", "1"] in b.lines or ["counts", "other", "1"] not in a.lines


async def test_past_the_drain_what_runs_is_given_back_and_not_counted(url: str) -> None:
    async with client(url) as app, Part("serve", "a", url, {"lease": 600, "poll": 0.1, "drain": 0.1}) as a:
        await a.line("ready")
        run = await app.start(load.held, id="held")
        await a.line("holds", "held", "1")
        a.terminate()
        await a.line("left")
        assert await a.ended() == 0
        async with Part("serve", "b", url, SHORT) as b:
            await b.line("holds", "held", "2")  # long before the lease would have ended
            assert (await run.info()).recoveries == 0
            await b.go()
            assert await run.result(timeout=20) == "b"


async def test_f55_a_busy_loop_does_not_cost_its_runs_their_leases(url: str) -> None:
    """A step blocks the event loop for several leases, which is less than the loop may be silent."""
    async with pipe() as (reading, writing), client(url) as app, Part("serve", "a", url, SHORT, reading) as a:
        await a.line("ready")
        innocent = await app.start(load.held, id="innocent")
        await a.line("holds", "innocent", "1")
        culprit = await app.start(load.blocked, id="culprit")
        await a.line("blocks", "culprit", "1")
        async with Part("serve", "b", url, SHORT) as b:
            await b.line("ready")
            await until_renewed(app, "innocent", 4)
            await until_renewed(app, "culprit", 4)
            os.write(writing, b"x")
            await a.go()
            assert await innocent.result(timeout=20) == "a"
            assert await culprit.result(timeout=20) == "a"
            assert not any(line[0] in ("holds", "blocks") for line in b.lines)
        a.kill()
        await a.ended()
    assert "the event loop has been blocked" in a.stderr
    assert 'process_load.py", line' in a.stderr
    assert "os.read(blocker, 1)" in a.stderr


async def test_a_dead_loop_gives_its_runs_back_and_only_the_one_that_blocks_it_is_charged(url: str) -> None:
    dead = {**SHORT, "slow_loop": 0.5, "dead_loop": 1.0}
    async with pipe() as (reading, writing), client(url) as app, Part("serve", "a", url, dead, reading) as a:
        await a.line("ready")
        innocents = [await app.start(load.held, id=f"innocent:{i}") for i in range(2)]
        for _ in innocents:
            await a.line("holds")
        culprit = await app.start(load.blocked, id="culprit")
        await a.line("blocks", "culprit", "1")
        async with Part("serve", "b", url, SHORT) as b:
            await b.line("ready")
            taken = sorted([await b.line() for _ in range(3)])
            assert taken == [["blocks", "culprit", "2"], ["holds", "innocent:0", "2"], ["holds", "innocent:1", "2"]]
            assert [(await run.info()).recoveries for run in (*innocents, culprit)] == [0, 0, 1]
            os.write(writing, b"x")  # a's loop lives again, and hears that it has lost everything
            await a.line("done", "culprit", "1")
            await b.go()
            assert [await run.result(timeout=20) for run in (*innocents, culprit)] == ["b"] * 3
        # It lives, and is of use again.
        await a.go()
        late = await app.start(load.counted, id="late")
        assert await late.result(timeout=20) == 1
        for run in (*innocents, culprit):
            entries = await run.history()
            assert sum(entry.event is Event.RESOLVED for entry in entries) == 1
            assert await run.status() is Status.COMPLETED
        a.kill()
        await a.ended()
    assert "the event loop is dead; giving back 2 runs" in a.stderr
    assert "os.read(blocker, 1)" in a.stderr


async def test_a_process_is_heard_of_by_others_at_once(url: str) -> None:
    """What `until` waits by: another process's commit is noticed."""
    async with client(url) as app, Part("serve", "a", url, SHORT) as a:
        await a.line("ready")
        await app.start(load.counted, id="r")

        async def ended() -> bool:
            return await app.get_run("r").status() is Status.COMPLETED

        await until(app, ended)
