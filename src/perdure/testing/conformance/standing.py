"""How runs stand, in short: for whoever waits until they stand otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.commit import Cancel, Create, Delete, NewChild, Requeue
from perdure.model.run import Run, Status
from perdure.ports.store import Held, Standing
from perdure.testing.conformance.hostile import LARGE
from perdure.testing.conformance.kit import LEASE, SECOND, Kit, complete, fail, new, park, to_run, turn


def of(*runs: Run) -> dict[int, Standing]:
    """What is to be said of these rows."""
    return {run.incarnation: Standing(run.status, run.wake_at, run.updated_at) for run in runs}


async def agreed(kit: Kit, run: Run) -> Standing:
    """How a run stands, which its row must say too."""
    found = dict(await kit.store.standing([run.incarnation]))
    assert found == of(await kit.run(run.id))
    return found[run.incarnation]


async def test_whatever_happens_to_a_run_is_seen(kit: Kit) -> None:
    run = await kit.create("r")
    stood = [await agreed(kit, run)]
    assert stood[-1] == Standing(Status.PENDING, kit.now, kit.now)
    run = await kit.take("r")
    stood.append(await agreed(kit, run))
    assert stood[-1] == Standing(Status.RUNNING, kit.now + LEASE, kit.now)
    await kit.apply(turn(run))
    stood.append(await agreed(kit, run))
    await kit.apply(park(run))
    stood.append(await agreed(kit, run))
    assert stood[-1] == Standing(Status.SUSPENDED, None, kit.now)
    await kit.apply(to_run("r"))
    stood.append(await agreed(kit, run))
    assert stood[-1] == Standing(Status.SUSPENDED, kit.now, kit.now)
    run = await kit.take("r")
    await kit.apply(turn(run, Status.BLOCKED, seen=1, error=b'"why"', wake_at=kit.now + SECOND))
    stood.append(await agreed(kit, run))
    await kit.write(Requeue("r"))
    stood.append(await agreed(kit, run))
    run = await kit.take("r")
    await kit.apply(fail(run))
    stood.append(await agreed(kit, run))
    assert stood[-1] == Standing(Status.FAILED, None, kit.now)
    await kit.write(Requeue("r"))
    stood.append(await agreed(kit, run))
    await kit.write(Cancel("r", b'"cancelled"'))
    stood.append(await agreed(kit, run))
    assert stood[-1] == Standing(Status.CANCELLED, None, kit.now)
    assert len(set(map(repr, stood))) == len(stood)


async def test_a_renewal_leaves_updated_at_alone(kit: Kit) -> None:
    run = await kit.hold("r")
    before = await agreed(kit, run)
    renewer = kit.store.renewer()
    try:
        kit.clock.advance(1)
        renewer.renew("ada", LEASE, [Held(run.incarnation, run.epoch, 0)])
    finally:
        renewer.close()
    after = await agreed(kit, run)
    assert after == Standing(Status.RUNNING, kit.now + LEASE, before.updated_at)


async def test_f11_runs_that_are_gone_are_not_among_them(kit: Kit) -> None:
    assert await kit.store.standing([]) == {}
    assert await kit.store.standing([1, -1, 2**62]) == {}
    old = await kit.create("r")
    await kit.write(Delete("r", b'"gone"'))
    run = await kit.create("r")
    assert await kit.store.standing([old.incarnation, run.incarnation]) == of(run)
    assert await kit.store.standing([old.incarnation]) == {}


async def test_only_those_asked_for_and_each_once(kit: Kit) -> None:
    await kit.apply(*(Create(run=new(f"r{index}")) for index in range(4)))
    runs = [await kit.run(f"r{index}") for index in range(4)]
    asked = [runs[2].incarnation, runs[0].incarnation, runs[2].incarnation]
    assert await kit.store.standing(asked) == of(runs[0], runs[2])
    assert await kit.store.standing(tuple(asked)) == of(runs[0], runs[2])


async def test_thousands_at_once(kit: Kit) -> None:
    await kit.apply(*(Create(run=new(f"r{index}", input=LARGE if index == 0 else b"{}")) for index in range(300)))
    runs = await _all(kit)
    many = [*range(1, 5_000), *(run.incarnation for run in runs), *range(2**40, 2**40 + 5_000)]
    assert await kit.store.standing(many) == of(*runs)


async def test_another_process_sees_it_at_once(kit: Kit) -> None:
    other = await kit.second()
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c", awaited_as="c")),)))
    child = await kit.take("c", "bob")
    assert await other.standing([child.incarnation]) == of(child)
    await kit.apply(complete(child))
    assert await other.standing([child.incarnation, parent.incarnation]) == of(await kit.run("c"), await kit.run("p"))


async def _all(kit: Kit) -> Sequence[Run]:
    return [await kit.run(f"r{index}") for index in range(300)]
