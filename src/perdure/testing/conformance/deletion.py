"""Deleting: a run goes with everything that hangs on it and below it, and whoever takes its id next finds nothing."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.commit import Applied, Changed, Create, Delete, Missing, NewChild, Requeue, Send, TokenWait
from perdure.model.run import Parent, Status
from perdure.ports.store import RunQuery
from perdure.testing.conformance.cancels import tree
from perdure.testing.conformance.kit import (
    Kit,
    complete,
    ended_child,
    fail,
    new,
    of,
    park,
    payloads,
    resolved,
    scheduled,
    to_run,
    to_token,
    turn,
)

GONE = b'"gone"'


async def test_ret_07_a_run_goes_with_all_that_hangs_on_it(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(to_run("r", b"1"))
    await kit.apply(turn(run, entries=(scheduled(0), resolved(0)), values=(("k", b"v"),)))
    await kit.apply(complete(await kit.run("r"), entries=(scheduled(1),)))
    ended = await kit.run("r")
    assert await kit.one(Delete("r", GONE)) == Changed((ended,))
    assert await kit.store.get("r") is None
    assert await kit.history(run) == []
    assert await kit.inbox(run) == []
    assert await kit.value(run.incarnation, "k") is None
    assert await kit.store.runs(RunQuery()) == []


async def test_ret_07_no_run(kit: Kit) -> None:
    assert await kit.one(Delete("nobody", GONE)) == Missing("nobody")
    run = await kit.hold("r")
    await kit.write(Delete("r", GONE))
    assert await kit.one(Delete("r", GONE)) == Missing("r")
    assert await kit.history(run) == []


async def test_a_live_run_is_cancelled_first(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(park(parent, children=(NewChild(0, new("c", awaited_as="c")),)))
    child = await kit.take("c", "bob")
    [last] = of(Changed, await kit.one(Delete("c", GONE))).runs
    assert (last.id, last.status, last.error, last.epoch) == ("c", Status.CANCELLED, GONE, child.epoch + 1)
    assert last.ended_at == kit.now
    assert await kit.inbox(parent) == [ended_child(1, "c", GONE, kit.now, failed=True)]


async def test_ret_07_everything_below_goes_too(kit: Kit) -> None:
    runs = await tree(kit, "root", "root/a", "root/a/b", "root/c", "other", "other/x")
    await kit.apply(to_run("a"))
    await kit.apply(fail(await kit.take("a"), seen=1, entries=(scheduled(0),)))
    gone = of(Changed, await kit.one(Delete("root", GONE))).runs
    assert gone[0].id == "root"
    assert sorted((run.id, run.status.value) for run in gone) == [
        ("a", "failed"),
        ("b", "cancelled"),
        ("c", "cancelled"),
        ("root", "cancelled"),
    ]
    assert {run.id for run in await kit.store.runs(RunQuery())} == {"other", "x"}
    for run in gone:
        assert await kit.history(run) == []
    await kit.unchanged(runs["other"], runs["x"])


async def test_a_chain_goes_from_the_named_link_on(kit: Kit) -> None:
    first = await kit.hold("p")
    await kit.apply(park(first, children=(NewChild(0, new("c")),)))
    await kit.apply(to_run("p"))
    [claimed] = [each for each in await kit.claim("alice") if each.run.id == "p"]
    await kit.apply(complete(claimed.run, seen=1, successor=new("p~1")))
    [second] = [each for each in await kit.claim("bob") if each.run.id == "p~1"]
    await kit.apply(complete(second.run, seen=1, successor=new("p~2")))
    gone = of(Changed, await kit.one(Delete("p~1", GONE))).runs
    assert [(run.id, run.status) for run in gone] == [("p~1", Status.COMPLETED), ("p~2", Status.CANCELLED)]
    gone = of(Changed, await kit.one(Delete("p", GONE))).runs
    assert sorted((run.id, run.status) for run in gone) == [("c", Status.CANCELLED), ("p", Status.COMPLETED)]
    assert await kit.store.runs(RunQuery()) == []


async def test_deleting_below_spares_what_is_above(kit: Kit) -> None:
    runs = await tree(kit, "root", "root/a", "root/a/b", "root/c")
    await kit.write(Delete("a", GONE))
    await kit.unchanged(runs["root"], runs["c"])
    assert await kit.store.get("b") is None
    assert [run.id for run in of(Changed, await kit.one(Delete("root", GONE))).runs] == ["root", "c"]


async def test_a_cycle_goes_as_a_whole(kit: Kit) -> None:
    base = (await kit.create("base")).incarnation
    await kit.create("a", parent=Parent("b", base + 2, 0))
    await kit.create("b", parent=Parent("a", base + 1, 0))
    gone = of(Changed, await kit.one(Delete("a", GONE))).runs
    assert sorted(run.id for run in gone) == ["a", "b"]
    assert [run.id for run in await kit.store.runs(RunQuery())] == ["base"]


async def test_f11_a_reused_id_begins_with_nothing(kit: Kit) -> None:
    old = await kit.hold("r", tags=("old",))
    await kit.apply(to_run("r", b"1", dedup="a"))
    await kit.apply(
        turn(
            old,
            entries=(scheduled(0), resolved(0, b'"old"')),
            children=(NewChild(1, new("c", awaited_as="c")),),
            waits=(TokenWait(2, "t"),),
            values=(("k", b"old"),),
        )
    )
    await kit.write(Delete("r", GONE))
    run = await kit.create("r")
    assert run.incarnation > old.incarnation
    assert (run.n, run.inbox, run.tags, run.status) == (0, 0, (), Status.PENDING)
    assert await kit.history(run) == []
    assert await kit.inbox(run) == []
    assert await kit.value(run.incarnation, "k") is None
    assert await kit.store.get("c") is None
    [claimed] = await kit.claim()
    assert (claimed.run.id, claimed.messages) == ("r", ())
    await kit.apply(to_run("r", b"2", dedup="a"), to_token("t", b"3"))
    assert payloads(await kit.inbox(run)) == [b"2"]
    assert await kit.history(old) == []


async def test_f11_an_incarnation_is_never_given_twice(kit: Kit) -> None:
    seen: list[int] = []
    for _ in range(3):
        seen.append((await kit.create("r")).incarnation)
        await kit.write(Delete("r", GONE))
        await kit.reopen()
    assert seen == sorted(set(seen))


async def test_f11_deletion_and_the_next_run_in_one_batch(kit: Kit) -> None:
    old = await kit.hold("r")
    await kit.apply(turn(old, entries=(scheduled(0),)))
    answers = await kit.write(Delete("r", GONE), Create(run=new("r", input=b"2")), to_run("r", b"new"))
    run = await kit.run("r")
    assert [type(answer).__name__ for answer in answers] == ["Changed", "Applied", "Applied"]
    assert (run.input, run.n, run.inbox) == (b"2", 0, 1)
    assert run.incarnation > old.incarnation


async def test_a_deleted_run_waits_no_more(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, waits=(TokenWait(0, "t"),)))
    await kit.write(Delete("r", GONE))
    await kit.apply(to_token("t", b"1"))
    again = await kit.hold("r")
    await kit.apply(turn(again, waits=(TokenWait(0, "t"),)))
    assert payloads(await kit.inbox(again)) == [b"1"]


async def test_the_child_of_a_deleted_run_may_not_come_back(kit: Kit) -> None:
    runs = await tree(kit, "root", "root/a")
    await kit.apply(to_run("a"))
    child = await kit.take("a")
    await kit.write(Delete("root", GONE))
    answer = await kit.one(complete(child))
    assert type(answer).__name__ == "Fenced"
    assert await kit.store.get("a") is None
    assert runs["a"].incarnation == child.incarnation


async def test_a_stranger_under_a_deleted_childs_id_is_spared(kit: Kit) -> None:
    runs = await tree(kit, "root", "root/a")
    await kit.write(Delete("a", GONE))
    await kit.create("a")
    await kit.one(Delete("root", GONE))
    stranger = await kit.run("a")
    assert stranger.parent is None
    assert stranger.incarnation > runs["a"].incarnation


async def test_f11_who_names_the_deleted_incarnation_spares_whoever_has_its_id_now(kit: Kit) -> None:
    old = await kit.create("r")
    of(Changed, await kit.one(Delete("r", GONE)))
    await kit.apply(fail(await kit.hold("r")))
    new_run = await kit.run("r")
    message = replace(to_run("r").message, incarnation=old.incarnation)
    for write in (Send(message), Requeue("r", old.incarnation), Delete("r", GONE, old.incarnation)):
        assert await kit.one(write) == Missing("r")
        await kit.unchanged(new_run)
    [revived] = of(Changed, await kit.one(Requeue("r", new_run.incarnation))).runs
    assert await kit.one(Send(replace(message, incarnation=new_run.incarnation))) == Applied(revived.key)
    of(Changed, await kit.one(Delete("r", GONE, new_run.incarnation)))
    assert await kit.store.get("r") is None


async def test_a_message_names_the_incarnation_of_the_link_that_it_is_addressed_to(kit: Kit) -> None:
    first = await kit.hold("r")
    await kit.apply(complete(first, successor=new("r~1")))
    message = replace(to_run("r").message, incarnation=first.incarnation)
    assert await kit.one(Send(message)) == Applied((await kit.run("r~1")).key)
