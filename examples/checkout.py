"""An order is paid for, waits for a person's approval, and is shipped. Each command is a process of its own.

    python examples/checkout.py place 42 950      # writes the order down, and is done
    python examples/checkout.py serve             # works on orders, until Ctrl-C; kill it as you like
    python examples/checkout.py approve 42 ada    # from another terminal, today or next week
    python examples/checkout.py show 42

Everything is kept in orders.db, in the current folder. An order that nobody approves within a week is refunded.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from perdure import Context, FatalError, Perdure, PerdureError, SignalTimeout, current_step, step, workflow

LIMIT = Decimal(10_000)


@dataclass
class Order:
    number: int
    amount: Decimal


@dataclass
class Receipt:
    order: int
    payment: str


@step(max_attempts=5, base=timedelta(seconds=2))
async def charge(order: Order) -> Receipt:
    """Charge the customer. May be called twice for one order: the provider is told by the key that it is the same charge."""
    if order.amount > LIMIT:
        raise FatalError(f"order {order.number} is over {LIMIT}", code="too_expensive")  # trying again would not help
    key = current_step().key
    print(f"charged {order.amount} for order {order.number}", flush=True)
    return Receipt(order.number, payment=f"pay-{key}")


@step(max_attempts=10)
async def refund(receipt: Receipt) -> None:
    print(f"refunded order {receipt.order}", flush=True)


@step  # A plain function: it may block, for it runs in a thread.
def print_label(order: Order) -> str:
    print(f"printed the label of order {order.number}", flush=True)
    return f"PARCEL-{order.number:06}"


@workflow(tags=["orders"])
async def checkout(ctx: Context, order: Order) -> str:
    receipt = await charge(order)
    ctx.set_value("status", "paid; waits for approval")
    try:
        who = await ctx.wait_for_signal("approve", type=str, timeout=timedelta(days=7))
    except SignalTimeout:
        await refund(receipt)
        return "refunded: nobody approved it"
    ctx.set_value("status", f"approved by {who}")
    label = await ctx.step(print_label, order)
    return f"shipped as {label}"


app = Perdure("sqlite:///orders.db")


def run_id(number: str) -> str:
    return f"checkout:{number}"


async def place(number: str, amount: str) -> None:
    async with app.client() as client:
        run = await client.start(checkout, Order(int(number), Decimal(amount)), id=run_id(number))
        print(f"{run.id} is {await run.status()}")


async def approve(number: str, who: str) -> None:
    async with app.client() as client:
        await client.get_run(run_id(number)).signal("approve", who, id=f"approval:{number}")


async def show(number: str) -> None:
    async with app.client() as client:
        run = client.get_run(run_id(number), checkout)
        print(f"{run.id} is {await run.status()}; {await run.value('status', default='not paid yet')}")


async def serve() -> None:
    stop = asyncio.Event()
    for wish in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(wish, stop.set)
    async with app:
        app.subscribe(lambda event: print(f"{event.run_id}: {event.kind}", flush=True))
        await stop.wait()  # Leaving the block finishes or parks what runs.


if __name__ == "__main__":
    commands: dict[str, Callable[..., Coroutine[None, None, None]]]
    commands = {"place": place, "approve": approve, "show": show, "serve": serve}
    try:
        asyncio.run(commands[sys.argv[1]](*sys.argv[2:]))
    except PerdureError as error:
        sys.exit(f"{error.code}: {error}")
