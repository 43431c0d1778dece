"""What a type checker knows about what a run is asked: updates, webhooks, tasks, entities. As in the other files here, each
line with ignore comments is a mistake that both checkers must find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from perdure.app import Perdure
from perdure.authoring.context import Context
from perdure.authoring.updates import Update
from perdure.engine.handle import RunHandle
from perdure.model.updates import Accepted, Rejected
from perdure.patterns.entity import call_entity, entity


@dataclass
class Item:
    name: str


@entity
class Account:
    balance: int = 0

    async def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance


async def body(ctx: Context) -> None:
    update = await ctx.wait_for_update("add", type=Item)
    assert_type(update, Update[Item])
    assert_type(update.arg, Item)
    assert_type(await ctx.webhook().wait(type=Item), Item)
    assert_type(await ctx.task("ship", lambda: None, type=Item, max_attempts=3), Item)
    assert_type(await call_entity(ctx, Account, "ada").deposit(3), int)
    await call_entity(ctx, Account, "ada").deposit("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.webhook("x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def caller(app: Perdure, run: RunHandle[Any]) -> None:
    outcome = await run.update("add", Item("lamp"), wait="answered", type=int)
    assert_type(outcome, Accepted[int] | Rejected)
    if outcome:
        assert_type(outcome.answer, int)
    else:
        assert_type(outcome.reason, str)
    await run.update("add", wait="sent")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    assert_type(await app.entity(Account, "ada").deposit(3), int)
    assert_type(await app.entity_state(Account, "ada"), Account)
    Account(balance="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
