"""Work that goes through a queue and a singleton, in several processes. Its steps write into a file that they come and go."""

from __future__ import annotations

import os

from perdure import Context, Perdure, Singleton, current_step, step, workflow
from tests.integration import process_load as load

#: So many at once.
SLOTS = 3


def note(path: str, what: str, gate: str) -> None:
    """One line, at once and whole, in the order in which all processes write them."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{gate} {what} {current_step().key} {load.name}\n".encode())
    finally:
        os.close(file)


def work(path: str, gate: str) -> None:
    note(path, "in", gate)
    for _ in range(20):  # some milliseconds of the disk
        file = os.open(f"{path}.work", os.O_WRONLY | os.O_CREAT)
        os.write(file, b"x")
        os.fsync(file)
        os.close(file)
    note(path, "out", gate)


@step(queue="narrow")
def narrow(path: str) -> None:
    work(path, "narrow")


@step
def alone(path: str, gate: str) -> None:
    work(path, gate)


@workflow
async def through(ctx: Context, path: str) -> None:
    for _ in range(2):
        await ctx.step(narrow, path)


@workflow(singleton=Singleton(key=lambda path, key: key))
async def single(ctx: Context, path: str, key: str) -> None:
    await ctx.step(alone, path, key)


def declare(app: Perdure) -> None:
    app.queue("narrow", concurrency=SLOTS, fairness="key")


def most_at_once(text: str) -> dict[str, int]:
    """Of each gate, how many were inside at once. (A step that was cut off is inside until it comes again and goes.)"""
    inside: dict[str, set[str]] = {}
    most: dict[str, int] = {}
    for line in text.splitlines():
        gate, what, key, _ = line.split()
        here = inside.setdefault(gate, set())
        (here.add if what == "in" else here.discard)(key)
        most[gate] = max(most.get(gate, 0), len(here))
    return most
