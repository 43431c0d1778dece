"""Who does not hold the run cannot write it: every commit names owner, epoch and n, of this very incarnation."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.commit import Applied, Cancel, Delete, Fenced, NewChild, TokenWait, TurnCommit
from perdure.model.run import Run, Status
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    fail,
    held,
    new,
    of,
    park,
    resolved,
    scheduled,
    to_run,
    to_token,
    turn,
)


def loud(run: Run) -> TurnCommit:
    """A turn that would leave traces everywhere."""
    return complete(
        run,
        entries=(scheduled(0),),
        waits=(TokenWait(5, "t"),),
        children=(NewChild(1, new("c")),),
        sends=(to_run("other").message, to_token("t").message),
        values=(("k", b"v"),),
    )


async def fenced(kit: Kit, commit: TurnCommit) -> None:
    """The commit is answered with the run as it stands, and leaves no trace."""
    run = await kit.run(commit.run.id)
    other = await kit.store.get("other")
    history = await kit.history(run)
    assert await kit.one(commit) == Fenced(run)
    await kit.unchanged(run)
    assert await kit.history(run) == history
    assert await kit.store.get("other") == other
    assert await kit.store.get("c") is None
    assert await kit.value(run.incarnation, "k") is None


async def test_another_owner(kit: Kit) -> None:
    await kit.hold("other")
    run = await kit.hold("r")
    await fenced(kit, replace(loud(run), owner="bob"))


async def test_another_epoch(kit: Kit) -> None:
    await kit.hold("other")
    run = await kit.hold("r")
    await fenced(kit, replace(loud(run), epoch=run.epoch - 1))
    await fenced(kit, replace(loud(run), epoch=run.epoch + 1))


async def test_another_n(kit: Kit) -> None:
    await kit.hold("other")
    run = await kit.hold("r")
    await fenced(kit, replace(loud(run), n=1))
    await kit.apply(turn(run, entries=(scheduled(0),)))
    await fenced(kit, loud(run))


async def test_the_same_commit_twice_is_applied_once(kit: Kit) -> None:
    run = await kit.hold("r")
    commit = turn(run, entries=(scheduled(0),))
    assert await kit.one(commit) == Applied(run.key)
    assert await kit.one(commit) == Fenced(await kit.run("r"))
    assert await kit.history(run) == [scheduled(0)]


async def test_lease_a_successor_fences_the_one_before(kit: Kit) -> None:
    run = await kit.hold("r")
    kit.clock.advance(31)
    mine = await kit.take("r", "bob")
    await fenced(kit, loud(run))
    await kit.apply(complete(mine))


async def test_the_same_owner_again_is_another_epoch(kit: Kit) -> None:
    run = await kit.hold("r")
    kit.clock.advance(31)
    again = await kit.take("r")
    assert (again.owner, again.epoch) == (run.owner, run.epoch + 1)
    await fenced(kit, loud(run))


async def test_a_run_that_nobody_holds(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, wake_at=kit.now + SECOND))
    await fenced(kit, loud(run))


async def test_a_run_that_was_released(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.store.release("ada", held(run))
    await fenced(kit, loud(run))


async def test_f14_an_ended_run_stays_ended(kit: Kit) -> None:
    for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.DEAD):
        run = await kit.hold(status.value)
        await kit.apply(turn(run, status, entries=(scheduled(0),)))
        late = replace(loud(run), n=1)
        await fenced(kit, late)
        await fenced(kit, replace(late, status=Status.RUNNING))
        await fenced(kit, replace(late, status=Status.SUSPENDED))


async def test_f07_who_loses_the_race_reads_what_the_winner_wrote(kit: Kit) -> None:
    run = await kit.hold("r")
    kit.clock.advance(31)
    mine = await kit.take("r", "bob")
    await kit.apply(complete(mine, b'"message"', entries=(scheduled(0), resolved(0, b'"message"'))))
    answer = of(Fenced, await kit.one(complete(run, b"null", entries=(scheduled(0), resolved(0, b"null")))))
    assert answer.run is not None
    assert answer.run.output == b'"message"'
    assert [entry.payload for entry in await kit.history(run)][1:] == [b'"message"']


async def test_f13_no_late_write_changes_the_owner(kit: Kit) -> None:
    run = await kit.hold("r", "ada")
    kit.clock.advance(31)
    mine = await kit.take("r", "bob")
    await fenced(kit, turn(run, entries=(scheduled(0),)))
    assert (await kit.run("r")).owner == "bob"
    await kit.apply(turn(mine, entries=(scheduled(0),)))
    assert (await kit.run("r")).owner == "bob"


async def test_cancel_06_a_cancel_fences_the_turn_it_met(kit: Kit) -> None:
    await kit.hold("other")
    run = await kit.hold("r")
    await kit.write(Cancel("r", b'"stop"'))
    await fenced(kit, loud(run))
    assert (await kit.run("r")).status is Status.CANCELLED


async def test_a_deleted_run_is_gone(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.write(Delete("r", b'"gone"'))
    assert await kit.one(loud(run)) == Fenced(None)
    assert await kit.store.get("c") is None


async def test_f11_a_reused_id_is_another_run(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.write(Delete("r", b'"gone"'))
    stranger = await kit.hold("r")
    assert stranger.incarnation > run.incarnation
    assert (stranger.owner, stranger.epoch, stranger.n) == (run.owner, run.epoch, run.n)
    assert await kit.one(fail(run)) == Fenced(None)
    await kit.unchanged(stranger)
