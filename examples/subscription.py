"""A subscription that runs for years: it charges each month, listens for changes at any time, and ends when it is told to.

    python examples/subscription.py serve ada 2       # works for Ada; a month of 2 seconds, to see something
    python examples/subscription.py change ada pro    # from another terminal
    python examples/subscription.py change ada none   # the end of it

Stop `serve` and start it again: the month goes on where it was. Each year it continues as a new run, with a history that is
empty again; whoever knows the first run's id reaches whichever is the last.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta

from perdure import Context, Perdure, PerdureError, current_step, step, workflow

PRICES = {"basic": 5, "pro": 12}
YEAR = 12


@dataclass
class Subscription:
    customer: str
    month: timedelta
    plan: str = "basic"
    paid: int = 0


@step(max_attempts=5)
async def charge(customer: str, amount: int) -> None:
    print(f"{current_step().run_id}: charged {customer} {amount}", flush=True)


@workflow
async def subscription(ctx: Context, state: Subscription) -> Subscription:
    for _ in range(YEAR):
        await charge(state.customer, PRICES[state.plan])
        state.paid += PRICES[state.plan]
        try:
            async with asyncio.timeout(state.month.total_seconds()):  # Durable, as all of asyncio's clocks are here.
                while True:
                    plan = await ctx.wait_for_signal("change", type=str)
                    if plan == "none":
                        return state
                    state.plan = plan
        except TimeoutError:
            pass  # The month is over.
    return ctx.continue_as_new(state)


app = Perdure("sqlite:///subscriptions.db")


async def serve(customer: str, seconds: str) -> None:
    main = asyncio.current_task()
    assert main is not None
    for wish in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(wish, main.cancel)
    async with app:  # Leaving the block, also by a cancel, finishes or parks what runs.
        state = Subscription(customer, timedelta(seconds=float(seconds)))
        # If it is there already, this gives the one that is there.
        run = await app.start(subscription, state, id=f"subscription:{customer}")
        last = await run.result()
        print(f"{customer} left, having paid {last.paid}")


async def change(customer: str, plan: str) -> None:
    if plan not in (*PRICES, "none"):
        sys.exit(f"there is no plan {plan}; there are {', '.join(PRICES)} and none")
    async with app.client() as client:
        await client.get_run(f"subscription:{customer}").signal("change", plan)


if __name__ == "__main__":
    try:
        asyncio.run({"serve": serve, "change": change}[sys.argv[1]](*sys.argv[2:]))
    except PerdureError as error:
        sys.exit(f"{error.code}: {error}")
    except asyncio.CancelledError:
        print("stopped; serve again to go on")
