"""The workflow `order` as it was deployed first."""

from __future__ import annotations

from perdure import Context, workflow
from tests.integration import process_load as load


@workflow(name="order", version="1")
async def order(ctx: Context) -> str:
    who = await load.hold()
    await ctx.wait_for_signal("go")
    return f"1 {who} {await load.count()}"
