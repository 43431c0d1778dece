"""Hostile text and bytes, in every field and every question: they are data, whatever they look like."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.commit import Cancel, Create, Delete, Ended, Missing, NewChild, Requeue, TokenWait
from perdure.model.history import Entry, Event, Op
from perdure.model.messages import Message, MessageKind, Outgoing
from perdure.model.run import Status
from perdure.ports.fleet import Serves
from perdure.ports.store import RunQuery
from perdure.testing.conformance.kit import (
    WORKFLOW,
    Kit,
    complete,
    ended_child,
    ids,
    new,
    of,
    park,
    payloads,
    scheduled,
    to_run,
    to_token,
    turn,
)

NAMES = (
    "'; DROP TABLE runs; --",
    '" OR ""="',
    "a'b''c\\'",
    "%_[a-z]*?",
    "\\",
    "$1 ${x} :name ? {0} %s",
    "NULL",
    "0",
    "null",
    "日本語 ünïcödé ﷽",
    "🙂👩‍👩‍👧‍👦\U0010ffff",
    "e\u0301 \u00e9",
    "\u202edesrever\u200b",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    " leading and trailing ",
    "a\tb\nc\r\nd",
    "x" * 512,
    "[1, 2]",
    "a,b",
    '{"a": 1}',
)

BYTES = (
    b"",
    b"\x00",
    b"\x00\xff\xfe\x00",
    bytes(range(256)),
    b"'; DROP TABLE runs; --",
    b"\\u0000 \\x00",
    "🙂".encode(),
    b"\xed\xa0\x80",
)

LARGE = bytes(range(256)) * (8 * 1024)


async def test_names_in_every_field_of_a_run(kit: Kit) -> None:
    for name in NAMES:
        run = await kit.create(
            name, workflow=name, version=name, namespace=name, tags=(name, "x"), origin=name, awaited_as=name
        )
        assert (run.id, run.workflow, run.version, run.namespace) == (name, name, name, name)
        assert (run.tags, run.origin, run.awaited_as) == ((name, "x"), name, name)
        assert ids(await kit.claim(name, serves=(Serves(name, name, name),), namespaces=(name,))) == [name]
        await kit.expect(run, status=Status.RUNNING, owner=name, epoch=1, wake_at=kit.now + 30_000_000)
        for query in (
            RunQuery(workflow=name),
            RunQuery(namespace=name),
            RunQuery(tags=(name,)),
            RunQuery(workflow=name, namespace=name, tags=(name,), statuses=(Status.RUNNING,)),
        ):
            assert [each.id for each in await kit.store.runs(query)] == [name]
    assert len(await kit.store.runs(RunQuery(tags=("x",), limit=100))) == len(NAMES)


async def test_names_that_look_alike_are_different(kit: Kit) -> None:
    alike = ["run", "Run", "RUN", "run ", " run", "rün", "ru\u0308n", "run\u200b", "r%n", "r_n"]
    for name in alike:
        await kit.create(name)
    assert {(await kit.run(name)).incarnation for name in alike} == {
        run.incarnation for run in await kit.store.runs(RunQuery())
    }
    assert len(await kit.store.runs(RunQuery())) == len(alike)


async def test_names_in_every_field_of_a_turn(kit: Kit) -> None:
    for name in NAMES:
        run = await kit.hold(name, name)
        entry = Entry(Event.SCHEDULED, 0, Op.LOCAL, name, None, 0)
        child = new(f"{name[:500]}.child", awaited_as=name)
        await kit.apply(
            turn(
                run,
                entries=(entry,),
                values=((name, b"v"),),
                waits=(TokenWait(0, name),),
                children=(NewChild(1, child),),
                cancels=(child.id,),
                sends=(to_run(name, b"1", name=name, dedup=name).message, to_token(name, b"2", dedup=name).message),
            )
        )
        assert await kit.history(run) == [entry]
        assert await kit.value(run.incarnation, name) == b"v"
        by_cancel, by_name, by_token = await kit.inbox(run)
        assert (by_cancel.name, by_name.name, by_token.token) == (name, name, name)
        assert (by_name.payload, by_token.payload) == (b"1", b"2")
        await kit.apply(turn(replace(run, n=1), Status.BLOCKED, seen=3, fingerprint=name))
        assert (await kit.run(name)).fingerprint == name
        assert await kit.store.unblock([replace(WORKFLOW, fingerprint=name)]) == 0
        await kit.write(Delete(name, b'"gone"'))


async def test_names_in_every_verb(kit: Kit) -> None:
    bystander = await kit.hold("bystander")
    for name in NAMES:
        for verb in (Cancel(name, b"1"), Requeue(name), Delete(name, b"1"), to_run(name)):
            assert await kit.one(verb) == Missing(name)
        await kit.apply(complete(await kit.hold(name)))
        of(Ended, await kit.one(Cancel(name, b"1")))
        await kit.write(Requeue(name))
        await kit.write(Delete(name, b"1"))
        assert await kit.store.get(name) is None
    await kit.unchanged(bystander)


async def test_bytes_in_every_field(kit: Kit) -> None:
    for index, data in enumerate(BYTES):
        name = f"r{index}"
        await kit.apply(Create(run=new(name, input=data, attributes=data)))
        await kit.apply(to_run(name, data), to_token(name, data))
        run = await kit.take(name)
        assert (run.input, run.attributes) == (data, data)
        entry = Entry(Event.RESOLVED, 0, None, "", data, 0)
        await kit.apply(
            turn(
                run,
                entries=(entry,),
                values=(("k", data),),
                waits=(TokenWait(0, name),),
                children=(NewChild(1, new(f"{name}.child", input=data, awaited_as="c")),),
            )
        )
        assert await kit.history(run) == [entry]
        assert await kit.value(run.incarnation, "k") == data
        child = await kit.take(f"{name}.child", "bob")
        assert child.input == data
        await kit.apply(complete(child, data))
        assert payloads(await kit.inbox(run)) == [data, data, data]
        await kit.apply(turn(await kit.run(name), Status.FAILED, error=data))
        assert (await kit.run(name)).error == data


async def test_nothing_is_not_empty(kit: Kit) -> None:
    run = await kit.hold("r")
    entries = (Entry(Event.RESOLVED, 0, None, "", None, 0), Entry(Event.RESOLVED, 1, None, "", b"", 0))
    nothing = Outgoing(kind=MessageKind.SIGNAL, run_id="r", name="", payload=None)
    await kit.apply(turn(run, entries=entries, sends=(nothing, replace(nothing, payload=b""))))
    assert await kit.history(run) == list(entries)
    assert payloads(await kit.inbox(run)) == [None, b""]
    await kit.apply(turn(replace(run, n=2), Status.COMPLETED, output=b"", seen=2))
    ended = await kit.run("r")
    assert (ended.output, ended.error, ended.attributes) == (b"", None, None)


async def test_large_values(kit: Kit) -> None:
    assert len(LARGE) == 2 * 1024 * 1024
    await kit.apply(Create(run=new("r", input=LARGE)))
    run = await kit.take("r")
    assert run.input == LARGE
    await kit.apply(to_run("r", LARGE))
    at = kit.now
    entry = replace(scheduled(0), payload=LARGE)
    child = new("c", input=LARGE, awaited_as="c")
    await kit.apply(turn(run, entries=(entry, entry), values=(("k", LARGE),), children=(NewChild(1, child),)))
    assert [each.payload for each in await kit.history(run)] == [LARGE, LARGE]
    assert await kit.value(run.incarnation, "k") == LARGE
    await kit.apply(complete(await kit.take("c"), LARGE))
    assert await kit.inbox(run) == [
        Message(1, MessageKind.SIGNAL, "go", None, LARGE, False, at),
        ended_child(2, "c", LARGE, kit.now),
    ]
    await kit.apply(complete(replace(run, n=2), LARGE, seen=2))
    assert (await kit.run("r")).output == LARGE


async def test_many_messages_and_many_names(kit: Kit) -> None:
    run = await kit.hold("r")
    await kit.apply(*(to_run("r", str(index).encode(), name=NAMES[index % len(NAMES)]) for index in range(300)))
    inbox = await kit.inbox(run)
    assert [message.number for message in inbox] == list(range(1, 301))
    assert [message.name for message in inbox] == [NAMES[index % len(NAMES)] for index in range(300)]
    await kit.apply(park(run, seen=300, consumed=tuple(range(1, 300))))
    assert [message.number for message in await kit.inbox(run)] == [300]
