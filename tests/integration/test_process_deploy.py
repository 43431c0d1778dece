"""A rolling deploy: processes with the old code and with the new one side by side on one store."""

from __future__ import annotations

from typing import Any

from perdure import Perdure, RunHandle, Status
from tests.integration import deployed_1, deployed_2
from tests.integration.process_parent import Part, until

#: Seconds. What nobody serves is blocked after a second, and is looked for often.
SHORT: dict[str, Any] = {"lease": 0.5, "poll": 0.1, "audit": 0.3}
OLD = {**SHORT, "include": [deployed_1.__name__]}
NEW = {**SHORT, "include": [deployed_2.__name__]}
BOTH = {**SHORT, "include": [deployed_1.__name__, deployed_2.__name__]}


def client(url: str, module: Any) -> Perdure:
    """A caller with the code of that deploy."""
    return Perdure(url, include=[module], consume=False, poll=0.1)


async def start(app: Perdure, module: Any, *names: str) -> list[RunHandle[str]]:
    return [await app.start(module.order, id=name) for name in names]


async def test_runs_finish_on_the_version_they_began_on(url: str) -> None:
    async with (
        client(url, deployed_1) as before,
        client(url, deployed_2) as after,
        Part("serve", "old", url, OLD) as old,
    ):
        await old.line("ready")
        first = await start(before, deployed_1, "in a step", "as well")
        for _ in first:
            await old.line("holds")
        async with Part("serve", "new", url, NEW) as new:
            await new.line("ready")
            second = await start(after, deployed_2, "new", "newer")
            # Callers of both deploys go on starting, and both processes take what they serve.
            first += await start(before, deployed_1, "late")
            await old.line("holds", "late", "1")
            assert [(await run.info()).version for run in (*first, *second)] == ["1", "1", "1", "2", "2"]
            for run in (*first, *second):
                await run.signal("go")
            await old.go()
            await new.go()
            assert [await run.result(timeout=20) for run in first] == ["1 old 1"] * 3
            assert [await run.result(timeout=20) for run in second] == ["2 new"] * 2
            assert not any(line[0] == "blocks" for line in (*old.lines, *new.lines))


async def test_the_old_process_drains_and_what_it_leaves_waits_for_somebody_who_serves_it(url: str) -> None:
    async with (
        client(url, deployed_1) as before,
        client(url, deployed_2) as after,
        Part("serve", "old", url, OLD) as old,
    ):
        await old.line("ready")
        parked, asleep = await start(before, deployed_1, "parked", "asleep")
        for _ in range(2):
            await old.line("holds")
        await old.go()
        for run in (parked, asleep):
            assert await run.wait() is Status.SUSPENDED
        async with Part("serve", "new", url, NEW) as new:
            await new.line("ready")
            old.terminate()
            assert await old.ended() == 0
            # It is due, and nobody has that code any more.
            await parked.signal("go")

            async def blocked() -> bool:
                return await parked.status() is Status.BLOCKED

            await until(before, blocked)
            reason = (await parked.info()).reason or ""
            assert "no process serves workflow 'order' version '1'" in reason
            assert "perdure worker" in reason
            assert await asleep.status() is Status.SUSPENDED  # it waits for a message, not for a process
            # New runs are not held up by it.
            [fresh] = await start(after, deployed_2, "fresh")
            await fresh.signal("go")
            await new.go()
            assert await fresh.result(timeout=20) == "2 new"
            # The next deploy serves both.
            async with Part("serve", "both", url, BOTH) as both:
                await both.line("ready")
                assert await parked.result(timeout=20) == "1 old 1"
                await asleep.signal("go")
                assert await asleep.result(timeout=20) == "1 old 1"
                assert [line[0] for line in both.lines].count("holds") == 0  # they went on where they were
        assert "run 'parked' is blocked: no process serves" in new.stderr


async def test_the_old_process_is_killed_in_a_step_and_the_step_is_made_again_by_whoever_serves_it(url: str) -> None:
    async with client(url, deployed_1) as before, Part("serve", "old", url, OLD) as old:
        await old.line("ready")
        [run] = await start(before, deployed_1, "r")
        await old.line("holds", "r", "1")
        old.kill()
        await old.ended()
        async with Part("serve", "new", url, NEW) as new:
            await new.line("ready")
            # Its membership outlives it by ten seconds, its lease by half a one: then it is nobody's.

            async def blocked() -> bool:
                return await run.status() is Status.BLOCKED

            await until(before, blocked)
            async with Part("serve", "both", url, BOTH) as both:
                await both.line("holds", "r", "2")
                await both.go()
                await run.signal("go")
                assert await run.result(timeout=20) == "1 both 1"
