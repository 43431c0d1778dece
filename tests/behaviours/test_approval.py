"""Approvals: a small program on webhooks, steps and asyncio."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import Context, SignalTimeout, Status, step, workflow
from perdure.patterns.approval import ApprovalRequest, Decision, approval
from tests.behaviours.world import World

LINKS = {"secret": "0123456789abcdef" * 4, "webhook_url": "https://example.org/hooks"}

asked: list[ApprovalRequest] = []


@pytest.fixture(autouse=True)
def nobody_asked() -> None:
    asked.clear()


@step
async def mail(request: ApprovalRequest) -> None:
    asked.append(request)


@step
async def nag(request: ApprovalRequest) -> None:
    asked.append(request)


@workflow
async def expense(ctx: Context, who: list[str], options: dict[str, Any]) -> Decision | str:
    try:
        return await approval(ctx, who=who, ask=mail, question="950 for a lamp?", **options)
    except SignalTimeout as error:
        return str(error)


async def test_approval_each_is_asked_by_a_link_of_their_own_and_the_first_answer_counts(world: World) -> None:
    async with world.app(expense, **LINKS) as app:
        run = await app.start(expense, ["ada", "bob"], {}, id="r1")
        await app.settle()
        assert [(one.who, one.token, one.options, one.reminder) for one in asked] == [
            ("ada", "wh:r1:0", ("approve", "reject"), 0),
            ("bob", "wh:r1:1", ("approve", "reject"), 0),
        ]
        assert len({one.url for one in asked}) == 2
        assert all(str(one.url).startswith("https://example.org/hooks/") for one in asked)
        await app.signal(token=asked[1].token, payload={"option": "reject", "comment": "too dear"})
        assert await run.result() == Decision("reject", "bob", "too dear")


async def test_approval_what_is_no_answer_is_passed_over(world: World) -> None:
    async with world.app(expense) as app:
        run = await app.start(expense, ["ada"], {"options": ["yes", "no"]}, id="r1")
        await app.settle()
        assert asked[0].url is None
        for payload in ("yes", {"option": "perhaps"}, {"option": 5}, None, {"by": "eve"}):
            await app.signal(token="wh:r1:0", payload=payload)
            await app.settle()
        assert await run.status() is Status.SUSPENDED
        await app.signal(token="wh:r1:0", payload={"option": "yes"})
        assert await run.result() == Decision("yes", "ada")


async def test_approval_who_is_slow_is_reminded(world: World) -> None:
    async with world.app(expense, nag) as app:
        options = {"reminder": 86400, "remind": "nag", "timeout": 3.5 * 86400}
        run = await app.start(expense, ["ada"], options, id="r1")
        await app.tick(timedelta(days=2))
        assert [one.reminder for one in asked] == [0, 1, 2]
        assert [s.name for s in await run.steps() if s.name in ("mail", "nag")] == ["mail", "nag", "nag"]
        assert len({one.url for one in asked}) == 1
        await app.signal(token="wh:r1:0", payload={"option": "approve"})
        assert await run.result() == Decision("approve", "ada")


async def test_approval_at_last_nobody_has_answered(world: World) -> None:
    async with world.app(expense) as app:
        run = await app.start(expense, ["ada", "bob"], {"reminder": 10, "timeout": 25}, id="r1")
        await app.tick(24)
        assert len(asked) == 6
        await app.tick(1)
        assert await run.result() == "nobody of ada, bob has answered within 25 seconds"
        assert await run.result() == "nobody of ada, bob has answered within 25 seconds"


async def test_approval_goes_on_after_a_restart(world: World) -> None:
    async with world.app(expense) as app:
        await app.start(expense, ["ada"], {"timeout": 100}, id="r1")
        await app.settle()
    async with world.app(expense) as app:
        await app.signal(token="wh:r1:0", payload={"option": "approve"})
        assert await app.get_run("r1", expense).result() == Decision("approve", "ada")
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("who", "options", "text"),
    [
        ([], {}, "an approval needs who"),
        ([""], {}, "one of who is empty"),
        (["ada"], {"options": []}, "an approval needs options"),
        (["ada"], {"options": 5}, "an approval needs options"),
        (["ada"], {"timeout": 0}, "timeout must be positive"),
        (["ada"], {"reminder": -1}, "reminder must be positive"),
    ],
)
async def test_approval_bad_input(world: World, who: list[str], options: dict[str, Any], text: str) -> None:
    async with world.app(expense) as app:
        run = await app.start(expense, who, options, id="r1")
        assert await run.wait() is Status.FAILED
        assert text in str((await run.info()).reason)
        assert not asked
