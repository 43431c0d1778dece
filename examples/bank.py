"""A bank of accounts that move money among each other, for ever, whose sum never changes: kill it as you like.

python examples/bank.py run 20 200       # 20 accounts with 100 each; 200 transfers, in several processes if you like
python examples/bank.py sum 20           # what is there, once nothing moves any more: 20 * 100
"""

from __future__ import annotations

import asyncio
import random
import sys

from perdure import Context, Perdure, RunHandle, RunNotFound, workflow
from perdure.patterns.entity import call_entity, entity


class TooPoor(Exception):
    """More was asked for than there is."""


@entity(link=50)
class Account:
    balance: int = 100

    async def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    async def withdraw(self, amount: int) -> int:
        if amount > self.balance:
            raise TooPoor(f"only {self.balance}")
        self.balance -= amount
        return self.balance


@workflow
async def transfer(ctx: Context, source: str, target: str, amount: int) -> bool:
    try:
        await call_entity(ctx, Account, source).withdraw(amount)
    except TooPoor:
        return False
    await call_entity(ctx, Account, target).deposit(amount)  # it happens, if not now then after the next start
    return True


app = Perdure("sqlite:///bank.db", lease=2)


async def run(accounts: int, transfers: int) -> None:
    dice = random.Random(accounts)
    async with app:
        print("open", flush=True)
        for batch in range(0, transfers, 10):
            runs: list[RunHandle[bool]] = []
            for number in range(batch, min(batch + 10, transfers)):
                source, target = dice.sample(range(accounts), 2)
                runs.append(await app.start(transfer, str(source), str(target), dice.randint(1, 80), id=f"t{number}"))
            moved = await asyncio.gather(*(each.result() for each in runs))
            print(f"{batch + len(runs)} transfers, of the last ones {sum(moved)} went through", flush=True)


async def total(accounts: int) -> None:
    found = 0
    async with app.client() as client:
        for account in range(accounts):
            try:
                found += (await client.entity_state(Account, str(account))).balance
            except RunNotFound:
                found += Account().balance  # never called yet
    print(f"{found} in {accounts} accounts")


if __name__ == "__main__":
    command, *numbers = sys.argv[1:]
    asyncio.run(run(*map(int, numbers)) if command == "run" else total(int(numbers[0])))
