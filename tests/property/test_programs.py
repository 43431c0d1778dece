"""Random programs of ordinary asyncio code: the properties of DESIGN's replay, on a few hundred of them at each run.

`python -m tests.property.soak 20000` runs many more.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.property.grammar import BRANCHES, LEAVES, Node
from tests.property.programs import KINDS
from tests.property.properties import check_seed, digest, record

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _own_garbage() -> Iterator[None]:
    """The collector looks at what the programs leave, not at all of pytest."""
    gc.freeze()
    yield
    gc.unfreeze()


SLICES = 10
PROGRAMS = 40  # a slice


@pytest.mark.parametrize("slice", range(SLICES))
def test_programs(slice: int) -> None:
    for seed in range(slice * PROGRAMS, (slice + 1) * PROGRAMS):
        check_seed(seed)


def test_every_construct_occurs() -> None:
    """The programs of this run hold each kind of construct that the grammar knows, and nothing is known to one side only."""
    assert {*LEAVES, *BRANCHES} == {*KINDS}
    kinds: set[str] = set()
    ends: set[str] = set()

    def look(node: Node) -> None:
        kinds.add(node.kind)
        for part in node.parts:
            look(part)

    for seed in range(SLICES * PROGRAMS):
        recording = record(seed)
        look(recording.tree)
        ends.add(type(recording.outcome).__name__)
    assert kinds == {*KINDS}
    assert {"Completed", "Failed", "Cancelled", "Continued", "NoneType"} <= ends


@pytest.mark.parametrize("hash_seed", ["0", "1", "4294967295"])
def test_f47_another_process_with_other_hashes_makes_the_same_histories(hash_seed: str) -> None:
    seeds = range(150)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.property.soak", "--digest", str(len(seeds))]
    other = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest(seeds)
