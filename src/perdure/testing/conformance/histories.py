"""Histories and values: appended in order, whole, with visible commits; and what a restart leaves of them."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.history import Entry, Event, Op
from perdure.model.messages import Message, MessageKind
from perdure.model.run import Status
from perdure.testing.conformance.kit import (
    SECOND,
    Kit,
    complete,
    new,
    park,
    resolved,
    scheduled,
    to_run,
    to_token,
    turn,
)


async def test_every_field_of_every_event_comes_back(kit: Kit) -> None:
    run = await kit.hold("r")
    entries = [
        Entry(event, seq, op, f"name {seq}", payload, at=1_000 + seq, due=due, began=began)
        for seq, (event, op, payload, due, began) in enumerate(
            [(event, op, payload, due, began) for event, op in zip(Event, [*Op, None, None], strict=False)
             for payload in (None, b"", b"\x00\xff") for due, began in ((None, None), (0, 5), (2**62, -1))]
        )
    ]  # fmt: skip
    entries.append(Entry(Event.END, -1, None, "completed", None, 0))
    await kit.apply(turn(run, entries=tuple(entries)))
    assert await kit.history(run) == entries
    await kit.expect(run, n=len(entries))


async def test_entries_keep_their_order_and_their_commit(kit: Kit) -> None:
    run = await kit.hold("r")
    for size in (1, 3, 0, 2):
        row = await kit.run("r")
        await kit.apply(turn(row, entries=tuple(scheduled(row.n + index) for index in range(size))))
    history = await kit.history(run)
    assert [entry.seq for entry in history] == [0, 1, 2, 3, 4, 5]
    assert [entry.commit for entry in history] == [0, 1, 1, 1, 4, 4]


async def test_the_store_stamps_the_commit_whatever_the_turn_says(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, entries=(replace(scheduled(0), commit=77), replace(scheduled(1), commit=78))))
    assert [entry.commit for entry in await kit.history(run)] == [0, 0]


async def test_store_05_a_position_may_be_negative_or_come_late(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, entries=(resolved(9), scheduled(-1), scheduled(3))))
    assert [entry.seq for entry in await kit.history(run)] == [9, -1, 3]


async def test_histories_of_many_runs(kit: Kit) -> None:
    one, two = await kit.hold("one"), await kit.hold("two")
    idle = await kit.create("idle")
    await kit.apply(
        turn(one, entries=(scheduled(0), resolved(0))),
        turn(two, entries=(scheduled(5),)),
        turn(replace(one, n=2), entries=(scheduled(1),)),
    )
    keys = [two.incarnation, idle.incarnation, one.incarnation, 10_000]
    histories = await kit.store.history(keys)
    assert {key: [entry.seq for entry in entries] for key, entries in histories.items()} == {
        one.incarnation: [0, 0, 1],
        two.incarnation: [5],
        idle.incarnation: [],
        10_000: [],
    }
    assert await kit.store.history([]) == {}


async def test_a_long_history(kit: Kit) -> None:
    run = await kit.hold("r")
    entries = tuple(scheduled(seq, f"step {seq}") for seq in range(3_000))
    await kit.apply(turn(run, entries=entries[:2_000]), turn(replace(run, n=2_000), entries=entries[2_000:]))
    assert [entry.name for entry in await kit.history(run)] == [entry.name for entry in entries]


# ---------------------------------------------------------------- values


async def test_qry_01_a_value_is_read_back(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(park(run, values=(("progress", b"50"), ("other", b'"x"'))))
    assert await kit.value(run.incarnation, "progress") == b"50"
    assert await kit.value(run.incarnation, "other") == b'"x"'


async def test_qry_02_the_newest_value_counts(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, values=(("k", b"1"), ("k", b"2"))))
    assert await kit.value(run.incarnation, "k") == b"2"
    await kit.apply(turn(run, values=(("k", b"3"),)), complete(run, values=(("k", b""),)))
    assert await kit.value(run.incarnation, "k") == b""


async def test_qry_03_no_value_and_no_run(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(turn(run, values=(("k", b"1"),)))
    assert await kit.value(run.incarnation, "K") is None
    assert await kit.value(run.incarnation, "") is None
    assert await kit.value(run.incarnation + 1, "k") is None


async def test_values_belong_to_their_run(kit: Kit) -> None:
    one, two = await kit.hold("one"), await kit.hold("two")
    await kit.apply(turn(one, values=(("k", b"1"),)), turn(two, values=(("k", b"2"),)))
    await kit.apply(complete(one, successor=new("one~1")))
    assert await kit.value(one.incarnation, "k") == b"1"
    assert await kit.value(two.incarnation, "k") == b"2"
    assert await kit.value((await kit.run("one~1")).incarnation, "k") is None


# ---------------------------------------------------------------- restart


async def test_everything_is_there_after_a_restart(kit: Kit) -> None:
    run = await kit.hold("r", tags=("a", "b"), attributes=b"{}", timeout=SECOND)
    await kit.apply(to_run("r", b"1"), to_token("t", b"2"))
    at = kit.now
    moved = turn(run, entries=(scheduled(0), resolved(0)), values=(("k", b"v"),))
    await kit.apply(moved)
    ended = await kit.hold("ended")
    await kit.apply(turn(ended, Status.FAILED, error=b'"bad"'))
    rows = [await kit.run("r"), await kit.run("ended")]
    await kit.reopen()
    await kit.unchanged(*rows)
    assert await kit.history(run) == list(moved.entries)
    assert await kit.value(run.incarnation, "k") == b"v"
    assert await kit.inbox(run) == [Message(1, MessageKind.SIGNAL, "go", None, b"1", False, at)]
    await kit.apply(complete(rows[0], seen=1))


async def test_a_second_connection_sees_what_was_answered(kit: Kit) -> None:
    other = await kit.second()
    run = await kit.hold("r")
    await kit.apply(turn(run, entries=(scheduled(0),), values=(("k", b"v"),)), to_run("r"))
    assert await other.get("r") == await kit.run("r")
    assert list((await other.history([run.incarnation]))[run.incarnation]) == await kit.history(run)
    assert (await other.values(run.incarnation, ["k"])).get("k") == b"v"
    assert list(await other.messages(run.incarnation)) == await kit.inbox(run)
    assert other.now() == kit.now


async def test_closing_twice_is_closing_once(kit: Kit) -> None:
    other = await kit.second()
    await other.close()
    await other.close()
    await kit.create("r")
