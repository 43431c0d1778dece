"""Several apps in one process, on one file and on two."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from perdure import Context, Perdure, step, workflow

PEEK = """
import asyncio, json, sys
from perdure import Perdure

async def main():
    async with Perdure(sys.argv[1], consume=False) as app:
        print(json.dumps(sorted(run.id for run in await app.runs())))

asyncio.run(main())
"""


def peek(url: str) -> list[str]:
    """What another process finds in a store, which it opens and closes."""
    found = subprocess.run([sys.executable, "-c", PEEK, url], check=True, capture_output=True, text=True)
    runs: list[str] = json.loads(found.stdout)
    return runs


@step
async def double(n: int) -> int:
    return 2 * n


@workflow
async def doubled(ctx: Context, n: int) -> int:
    return await double(n)


async def test_a_second_app_on_the_file_does_not_cost_the_first_its_locks(tmp_path: Path) -> None:
    """Else another process deletes the log when it closes, and what the first app is told is durable, is lost."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with Perdure(url) as app:
        assert await (await app.start(doubled, 1, id="before")).result() == 2
        async with app.client() as client:
            assert await client.get_run("before", doubled).result() == 2
        assert await asyncio.to_thread(peek, url) == ["before"]
        assert await (await app.start(doubled, 2, id="after")).result() == 4
        assert await asyncio.to_thread(peek, url) == ["after", "before"]
    assert await asyncio.to_thread(peek, url) == ["after", "before"]
