"""Random programs, as trees. `programs` says what each kind of node does; here is only what may stand where, and how often."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import NamedTuple


class Node(NamedTuple):
    """One construct: its kind, its numbers, and the constructs inside it."""

    kind: str
    numbers: tuple[int, ...] = ()
    parts: tuple[Node, ...] = ()

    def __repr__(self) -> str:
        inside = [*map(str, self.numbers), *map(repr, self.parts)]
        return f"{self.kind}({', '.join(inside)})"


def parse(text: str) -> Node:
    """The program that `repr` wrote."""
    tokens = iter(re.findall(r"\w+|[()]", text))
    return _parse(next(tokens), tokens)


def _parse(kind: str, tokens: Iterator[str]) -> Node:
    numbers: list[int] = []
    parts: list[Node] = []
    assert next(tokens) == "("
    for token in tokens:
        if token == ")":
            break
        if token.isdigit():
            numbers.append(int(token))
        else:
            parts.append(_parse(token, tokens))
    return Node(kind, tuple(numbers), tuple(parts))


#: Kinds without parts: how often (relative), and how many numbers they take.
LEAVES: dict[str, tuple[int, int]] = {
    "step": (40, 1),
    "local": (8, 1),
    "undoable": (12, 1),
    "sleep": (14, 1),
    "yield": (3, 1),
    "signal": (8, 2),
    "token": (5, 2),
    "update": (5, 2),
    "published": (5, 2),
    "child": (8, 2),
    "spawn": (4, 1),
    "join": (5, 1),
    "fan": (3, 1),
    "value": (4, 1),
    "send": (3, 1),
    "stream": (3, 1),
    "patched": (4, 1),
    "random": (4, 1),
    "now": (3, 0),
    "variable": (3, 1),
    "fail": (4, 1),
    "callback": (4, 2),
    "unawaited": (3, 1),
    "race": (4, 1),
    "task_of_step": (3, 1),
    "continue": (1, 0),
    "attributes": (3, 2),
    "queued": (8, 1),
}

#: Kinds with parts: how often, how many numbers, how many parts (at least, at most).
BRANCHES: dict[str, tuple[int, int, int, int]] = {
    "sequence": (14, 0, 2, 4),
    "guard": (14, 0, 1, 1),
    "gather": (10, 1, 2, 4),
    "group": (10, 1, 2, 4),
    "timeout": (8, 1, 1, 1),
    "timeout_at": (3, 2, 1, 1),
    "wait_for": (6, 1, 1, 1),
    "wait": (8, 2, 2, 4),
    "completed": (5, 0, 2, 4),
    "as_completed": (3, 0, 2, 4),
    "shield": (5, 1, 1, 1),
    "background": (4, 1, 1, 3),
    "cancel": (7, 1, 1, 1),
    "try": (10, 1, 1, 2),
    "on_cancel": (8, 2, 2, 2),
    "generator": (7, 2, 1, 3),
    "cycle": (3, 0, 1, 2),
    "event": (4, 0, 2, 3),
    "lock": (4, 0, 2, 3),
    "semaphore": (3, 1, 2, 4),
    "queue": (4, 1, 1, 3),
    "condition": (3, 0, 2, 3),
    "barrier": (2, 0, 2, 3),
    "kept": (3, 1, 1, 1),
    "branch": (4, 0, 2, 2),
    "retry": (4, 1, 1, 1),
}

DEPTH = 5


def generate(rng: Random, size: int) -> Node:
    """A program of about `size` constructs."""
    return _Grower(rng, size).sequence()


class _Grower:
    def __init__(self, rng: Random, size: int) -> None:
        self._rng = rng
        self._left = size
        self._leaves = [*LEAVES]
        self._leaf_weights = [weight for weight, _ in LEAVES.values()]
        self._branches = [*BRANCHES]
        self._branch_weights = [weight for weight, *_ in BRANCHES.values()]

    def sequence(self) -> Node:
        parts = [self._node(1)]
        while self._left > 0:
            parts.append(self._node(1))
        return Node("sequence", (), tuple(parts))

    def _node(self, depth: int) -> Node:
        self._left -= 1
        if self._left <= 0 or depth >= DEPTH or self._rng.random() < 0.4:
            return self._leaf()
        kind = self._rng.choices(self._branches, self._branch_weights)[0]
        _, numbers, least, most = BRANCHES[kind]
        parts = tuple(self._node(depth + 1) for _ in range(self._rng.randint(least, most)))
        return Node(kind, self._numbers(numbers), parts)

    def _leaf(self) -> Node:
        kind = self._rng.choices(self._leaves, self._leaf_weights)[0]
        return Node(kind, self._numbers(LEAVES[kind][1]))

    def _numbers(self, count: int) -> tuple[int, ...]:
        return tuple(self._rng.randint(0, 59) for _ in range(count))
