"""Streams: what runs write while they run, in order, once, and gone with them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.commit import Append, Applied, Delete, Fenced, Requeue, Unstorable
from perdure.model.run import Run, RunKey, Status
from perdure.model.stream import NewChunk, StoredChunk
from perdure.testing.conformance.kit import Kit, complete, held, new, park, scheduled, turn


def chunk(text: str, index: int = 0, *, stream: str = "s", seq: int = 0, attempt: int = 1) -> NewChunk:
    return NewChunk(stream, text.encode(), seq, attempt, index)


def append(run: Run, *chunks: NewChunk) -> Append:
    return Append(run=run.key, owner=run.owner or "", epoch=run.epoch, chunks=chunks)


def texts(chunks: Sequence[StoredChunk]) -> list[str]:
    return [each.payload.decode() for each in chunks]


async def read(kit: Kit, run: Run, stream: str = "s", after: int = 0, limit: int = 100) -> Sequence[StoredChunk]:
    return await kit.store.chunks(run.incarnation, stream, after, limit)


async def test_a_turns_chunks_come_with_it_and_those_of_steps_between(kit: Kit) -> None:
    run = await kit.hold("r")
    assert await kit.one(turn(run, entries=(scheduled(0),), chunks=(chunk("a", attempt=0),))) == Applied(run.key)
    assert await kit.one(append(run, chunk("b", 0), chunk("c", 1))) == Applied(run.key)
    run = await kit.run("r")
    await kit.apply(park(run, chunks=(chunk("d", seq=1, attempt=0),)))
    found = await read(kit, run)
    assert texts(found) == ["a", "b", "c", "d"]
    assert [(each.seq, each.attempt, each.index) for each in found] == [(0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 0)]
    assert found[-1].at == kit.now
    offsets = [each.offset for each in found]
    assert offsets == sorted(set(offsets))
    assert offsets[0] > 0


async def test_it_changes_nothing_else_of_the_run(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.one(append(run, chunk("a")))
    assert await kit.run("r") == run
    assert await kit.history(run) == []


async def test_pages_begin_after_an_offset_and_are_limited(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.one(append(run, *(chunk(str(n), n) for n in range(10))))
    first = await read(kit, run, limit=3)
    assert texts(first) == ["0", "1", "2"]
    assert texts(await read(kit, run, after=first[-1].offset, limit=4)) == ["3", "4", "5", "6"]
    last = (await read(kit, run))[-1]
    assert await read(kit, run, after=last.offset) == []
    assert await read(kit, run, "other") == []
    assert await kit.store.chunks(run.incarnation + 1, "s", 0, 5) == []


async def test_streams_and_runs_do_not_mix(kit: Kit) -> None:
    one, two = await kit.hold("one"), await kit.hold("two")
    await kit.one(append(one, chunk("a"), chunk("x", stream="t"), chunk("b", 1)))
    await kit.one(append(two, chunk("c")))
    assert texts(await read(kit, one)) == ["a", "b"]
    assert texts(await read(kit, one, "t")) == ["x"]
    assert texts(await read(kit, two)) == ["c"]


async def test_heads_are_the_last_offsets(kit: Kit) -> None:
    one, two = await kit.hold("one"), await kit.hold("two")
    await kit.one(append(one, chunk("a"), chunk("b", 1), chunk("x", stream="t")))
    asked = [(two.incarnation, "s"), (one.incarnation, "t"), (one.incarnation, "s"), (one.incarnation, "s"), (999, "s")]
    found = await kit.store.heads(asked)
    [x], both = await read(kit, one, "t"), await read(kit, one)
    assert list(found) == [0, x.offset, both[-1].offset, both[-1].offset, 0]
    assert list(await kit.store.heads([])) == []


async def test_the_same_chunk_again_is_there_once(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.one(append(run, chunk("a"), chunk("b", 1)))
    before = await read(kit, run)
    assert await kit.one(append(run, chunk("a"), chunk("b", 1), chunk("c", 2))) == Applied(run.key)
    after = await read(kit, run)
    assert after[:2] == before
    assert texts(after) == ["a", "b", "c"]


async def test_another_attempt_begins_anew_and_so_does_the_same_after_another_claim(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.one(append(run, chunk("a")))
    await kit.one(append(run, chunk("b", attempt=2)))
    await kit.store.release(run.owner or "", held(run))
    run = await kit.take("r")
    await kit.one(append(run, chunk("c", attempt=2)))
    assert texts(await read(kit, run)) == ["a", "b", "c"]


async def test_whoever_does_not_hold_the_run_is_fenced(kit: Kit) -> None:
    run = await kit.hold("r")
    for other in (
        Append(run=run.key, owner="eve", epoch=run.epoch, chunks=(chunk("x"),)),
        Append(run=run.key, owner=run.owner or "", epoch=run.epoch - 1, chunks=(chunk("x"),)),
    ):
        assert await kit.one(other) == Fenced(run)
    gone = Append(run=RunKey("r", 999), owner="ada", epoch=1, chunks=(chunk("x"),))
    assert await kit.one(gone) == Fenced(None)
    await kit.apply(complete(run))
    assert await kit.one(append(run, chunk("x"))) == Fenced(await kit.run("r"))
    assert await read(kit, run) == []


async def test_a_turn_that_is_fenced_writes_nothing(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.one(turn(run, n=run.n + 1, chunks=(chunk("x"),)))
    assert await read(kit, run) == []


async def test_what_cannot_be_stored_leaves_nothing_behind(kit: Kit) -> None:
    run = await kit.hold("r")
    for bad in (chunk("x", 2**63), chunk("x", stream="\ud800"), chunk("x", seq=-(2**64))):
        assert isinstance(await kit.one(append(run, chunk("a"), bad)), Unstorable)
    assert await read(kit, run) == []
    stale = Append(run=run.key, owner="eve", epoch=run.epoch, chunks=(chunk("x", 2**63),))
    assert isinstance(await kit.one(stale), Unstorable)
    [fine, bad_one, also_fine] = await kit.store.write(
        [append(run, chunk("a")), append(run, chunk("b", 2**63)), append(run, chunk("c", 1))]
    )
    assert fine == also_fine == Applied(run.key)
    assert isinstance(bad_one, Unstorable)
    assert texts(await read(kit, run)) == ["a", "c"]


async def test_any_bytes_and_names_are_kept(kit: Kit) -> None:
    run = await kit.hold("r")
    data, name = bytes(range(256)), "näme'\"; --"
    await kit.one(append(run, NewChunk(name, data, 0, 1, 0), NewChunk(name, b"", 0, 1, 1)))
    assert [each.payload for each in await read(kit, run, name)] == [data, b""]


async def test_a_batch_of_turns_and_chunks_is_applied_in_order(kit: Kit) -> None:
    run = await kit.hold("r")
    answers = await kit.store.write(
        [
            append(run, chunk("a")),
            turn(run, entries=(scheduled(0),), chunks=(chunk("b", seq=1),)),
            append(run, chunk("c", 1)),
            complete(run, n=run.n + 1, chunks=(chunk("d", seq=2),)),
            append(run, chunk("late", 2)),
        ]
    )
    assert answers[:4] == [Applied(run.key)] * 4
    assert isinstance(answers[4], Fenced)
    assert texts(await read(kit, run)) == ["a", "b", "c", "d"]


async def test_offsets_grow_along_a_chain_whose_links_keep_their_own(kit: Kit) -> None:
    run = await kit.hold("p")
    await kit.one(append(run, chunk("a"), chunk("b", 1)))
    await kit.apply(complete(run, successor=new("p~1"), chunks=(chunk("c", seq=1),)))
    following = await kit.take("p~1")
    await kit.one(append(following, chunk("d")))
    assert texts(await read(kit, run)) == ["a", "b", "c"]
    [d] = await read(kit, following)
    assert d.offset > (await read(kit, run))[-1].offset


async def test_they_outlive_the_end_and_go_with_the_run(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.one(append(run, chunk("a")))
    await kit.apply(turn(run, Status.FAILED, error=b"{}"))
    await kit.one(Requeue("r"))
    assert texts(await read(kit, run)) == ["a"]
    await kit.one(Delete("r", b"{}"))
    assert await read(kit, run) == []
    assert list(await kit.store.heads([(run.incarnation, "s")])) == [0]
    again = await kit.hold("r")
    await kit.one(append(again, chunk("b")))
    assert texts(await read(kit, again)) == ["b"]
