"""Batches of plain turns, which are written together, against the memory store, which takes them one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from perdure.model.commit import Create, NewChild, TurnCommit, Write
from perdure.model.run import Run, RunKey, Status
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore, bulk, writes
from perdure.stores.sqlite.transaction import Transaction
from perdure.testing import ManualClock
from perdure.testing.conformance.kit import LEASE, request
from perdure.testing.conformance.oracle import Duel, Side
from perdure.testing.conformance.script import OWNERS, Script

IDS = ("red", "blue", "green")
HUGE = 2**63
STATUSES = (
    *[Status.RUNNING] * 4,
    *[Status.SUSPENDED] * 2,
    Status.BLOCKED,
    Status.COMPLETED,
    Status.COMPLETED,
    Status.FAILED,
)


class Plain(Script):
    """Draws long batches in which most turns do nothing special, among families whose members meet in one batch."""

    def batch(self) -> tuple[Write, ...]:
        held = [run for run in self.runs if run.status is Status.RUNNING]
        turns: list[Write] = [self._turn(run) for run in self.random.sample(held, len(held))]
        others = [self._create() for _ in range(self.random.randint(0, 6))]
        batch = turns + others + [self._write() for _ in range(self.chance(1))]
        self.random.shuffle(batch)
        return tuple(batch)

    def _create(self) -> Create:
        create = super()._create()
        run = replace(create.run, id=f"{self.random.choice(IDS)}.{self.next_seq() % 40}", start_at=None)
        if create.turn is None:
            return Create(run=run)
        turn = self._plain(create.turn)
        lease_end = self.now + LEASE if turn.status is Status.RUNNING else turn.wake_at
        return Create(run=run, turn=replace(turn, run=RunKey(run.id, 0), wake_at=lease_end))

    def _turn(self, run: Run) -> TurnCommit:
        turn = super()._turn(run)
        if self.chance(1) and self.chance(5):
            return turn
        turn = replace(self._plain(turn), seen=run.inbox - self.chance(1))
        # Now and then a child that is awaited, so that ends must be told, often to one who writes in the same batch.
        if self.chance(4) and turn.status is Status.RUNNING:
            child = self._new_run(f"{run.id}.{self.next_seq()}", awaited_as="it", depth=1)
            return replace(turn, children=(NewChild(self.next_seq(), replace(child, start_at=None)),))
        return turn

    def _plain(self, turn: TurnCommit) -> TurnCommit:
        status = self.random.choice(STATUSES)
        parks = status in (Status.SUSPENDED, Status.BLOCKED)
        return replace(
            turn,
            status=status,
            entries=tuple(entry for entry in turn.entries if entry.seq < HUGE or self.chance(1)),
            wake_at=turn.wake_at if parks else None,
            fingerprint="print-a" if status is Status.BLOCKED else None,
            waits=(),
            unwaits=(),
            children=(),
            joins=(),
            cancels=(),
            sends=(),
            values=(),
            listens=(),
            attributes=None,
            asks=(),
            releases=(),
            chunks=(),
            successor=None,
        )


@pytest.mark.parametrize("seed", range(6))
async def test_turns_that_are_written_together(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = alone = 0
    add, apply = bulk.Bulk.add, writes.apply

    def counting_add(self: bulk.Bulk, write: Write, answers: bulk.Answers, position: int) -> None:
        nonlocal together
        together += 1
        add(self, write, answers, position)

    def counting_apply(tx: Transaction, write: Write) -> object:
        nonlocal alone
        alone += 1
        return apply(tx, write)

    monkeypatch.setattr(bulk.Bulk, "add", counting_add)
    monkeypatch.setattr(writes, "apply", counting_apply)
    clock = ManualClock()
    store = SqliteStore(str(tmp_path / "s.db"), clock=clock, synchronous="OFF")
    await store.open()
    script, duel = Plain(seed), Duel(Side(MemoryStore(clock)), Side(store), [])
    for step in range(60):
        clock.advance(script.step())
        await duel.look(script, clock.now())
        if script.chance(3):
            await duel.claim(request(OWNERS[0], serves=script.serves(), limit=20))
        else:
            await duel.write(script.batch())
        await duel.compare_all(f"seed {seed}, step {step}")
    await store.close()
    assert together - alone > alone / 2, f"of {together} writes {alone} went the long way"
