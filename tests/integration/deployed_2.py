"""The workflow `order` as it was deployed second."""

from __future__ import annotations

from perdure import Context, workflow
from tests.integration import process_load as load


@workflow(name="order", version="2")
async def order(ctx: Context) -> str:
    await load.count()
    await ctx.wait_for_signal("go")
    return f"2 {await load.hold()}"
