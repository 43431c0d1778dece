"""Listing runs: newest first, all conditions together, page by page."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.model.commit import Create, Delete, NewChild
from perdure.model.run import Parent, RunKey, Status
from perdure.ports.store import RunQuery
from perdure.testing.conformance.kit import SECOND, Kit, complete, fail, new, park, turn


async def listed(kit: Kit, **fields: Any) -> list[str]:
    return [run.id for run in await kit.store.runs(RunQuery(**fields))]


async def several(kit: Kit) -> None:
    """Five runs of several kinds, oldest first."""
    await kit.apply(complete(await kit.hold("done", tags=("etl", "x"))))
    await kit.apply(fail(await kit.hold("failed", tags=("etl-foo",))))
    await kit.apply(park(await kit.hold("parked", namespace="red", tags=("x", "etl"))))
    await kit.create("other", workflow="other", namespace="red")
    await kit.create("pending")


async def test_attr_08_newest_first(kit: Kit) -> None:
    assert await listed(kit) == []
    await several(kit)
    assert await listed(kit) == ["pending", "other", "parked", "failed", "done"]
    assert (await kit.store.runs(RunQuery(limit=1)))[0] == await kit.run("pending")


async def test_runs_of_one_batch_are_listed_newest_first(kit: Kit) -> None:
    await kit.apply(*(Create(run=new(f"r{index}")) for index in range(5)))
    assert await listed(kit) == ["r4", "r3", "r2", "r1", "r0"]


async def test_by_status(kit: Kit) -> None:
    await several(kit)
    assert await listed(kit, statuses=(Status.PENDING,)) == ["pending", "other"]
    assert await listed(kit, statuses=(Status.COMPLETED, Status.FAILED, Status.SUSPENDED)) == [
        "parked",
        "failed",
        "done",
    ]
    assert await listed(kit, statuses=(Status.DEAD,)) == []


async def test_by_workflow(kit: Kit) -> None:
    await several(kit)
    assert await listed(kit, workflow="other") == ["other"]
    assert await listed(kit, workflow="work") == ["pending", "parked", "failed", "done"]
    assert await listed(kit, workflow="Work") == []


async def test_ns_by_namespace(kit: Kit) -> None:
    await several(kit)
    assert await listed(kit, namespace="red") == ["other", "parked"]
    assert await listed(kit, namespace="default") == ["pending", "failed", "done"]
    assert await listed(kit, namespace="re") == []


async def test_attr_07_by_tag_exactly(kit: Kit) -> None:
    await several(kit)
    assert await listed(kit, tag="etl") == ["parked", "done"]
    assert await listed(kit, tag="etl-foo") == ["failed"]
    assert await listed(kit, tag="etl%") == []
    assert await listed(kit, tag="") == []


async def test_child_08_by_parent(kit: Kit) -> None:
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("p.0", awaited_as="p.0")), NewChild(1, new("p.1")))))
    child = next(each.run for each in await kit.claim("bob") if each.run.id == "p.0")
    await kit.apply(turn(child, children=(NewChild(0, new("p.0.0")),)))
    assert await listed(kit, parent=parent.key) == ["p.1", "p.0"]
    await kit.apply(complete(child), complete(parent))
    assert await listed(kit, parent=parent.key) == ["p.1", "p.0"]
    assert await listed(kit, parent=child.key) == ["p.0.0"]
    assert await listed(kit, parent=RunKey("p", parent.incarnation + 100)) == []


async def test_f11_by_parent_of_an_earlier_incarnation(kit: Kit) -> None:
    old = await kit.hold("p")
    await kit.write(Delete("p", b'"gone"'))
    await kit.create("stray", parent=Parent("p", old.incarnation, 0))
    parent = await kit.create("p")
    assert await listed(kit, parent=parent.key) == []
    assert await listed(kit, parent=old.key) == ["stray"]


async def test_all_conditions_hold_together(kit: Kit) -> None:
    await several(kit)
    query: dict[str, Any] = {"statuses": (Status.SUSPENDED, Status.COMPLETED), "workflow": "work", "tag": "x"}
    assert await listed(kit, **query) == ["parked", "done"]
    assert await listed(kit, **query, namespace="red") == ["parked"]
    assert await listed(kit, **query, namespace="blue") == []


async def test_pages_neither_repeat_nor_skip(kit: Kit) -> None:
    await kit.apply(*(Create(run=new(f"r{index:02}", tags=("odd",) if index % 2 else ())) for index in range(25)))
    pages: list[list[str]] = []
    before: int | None = None
    while page := await kit.store.runs(RunQuery(tag="odd", limit=5, before=before)):
        pages.append([run.id for run in page])
        before = page[-1].incarnation
        await kit.create(f"late{len(pages)}", tags=("odd",))
    assert [len(page) for page in pages] == [5, 5, 2]
    assert [run_id for page in pages for run_id in page] == [f"r{index:02}" for index in range(23, 0, -2)]


async def test_a_page_goes_on_where_its_last_run_was_deleted(kit: Kit) -> None:
    await kit.apply(*(Create(run=new(f"r{index}")) for index in range(4)))
    last = (await kit.store.runs(RunQuery(limit=2)))[-1]
    await kit.write(Delete(last.id, b'"gone"'))
    assert await listed(kit, limit=2, before=last.incarnation) == ["r1", "r0"]


# ---------------------------------------------------------------- by attribute


async def attributed(kit: Kit) -> None:
    """Runs with attributes of several kinds, oldest first."""
    for run_id, data in (
        ("none", None),
        ("ada", b'{"customer":42,"plan":"pro","eu":true}'),
        ("bob", b'{"customer":43, "plan":"pro", "eu":false}'),
        ("text", b'{"customer":"42","plan":null}'),
        ("float", b'{"customer":42.0}'),
        ("list", b'{"customer":[42]}'),
    ):
        await kit.create(run_id, attributes=data, tags=("x",) if run_id in ("ada", "text") else ())


async def test_attr_03_by_attribute_of_that_very_value(kit: Kit) -> None:
    await attributed(kit)
    assert await listed(kit, attributes=(("customer", "42"),)) == ["ada"]
    assert await listed(kit, attributes=(("customer", '"42"'),)) == ["text"]
    assert await listed(kit, attributes=(("customer", "42.0"),)) == ["float"]
    assert await listed(kit, attributes=(("customer", "[42]"),)) == []
    assert await listed(kit, attributes=(("plan", '"pro"'),)) == ["bob", "ada"]
    assert await listed(kit, attributes=(("plan", "null"),)) == ["text"]
    assert await listed(kit, attributes=(("eu", "true"),)) == ["ada"]
    assert await listed(kit, attributes=(("Plan", '"pro"'),)) == []
    assert await listed(kit, attributes=(("plan", '"PRO"'),)) == []
    assert await listed(kit, attributes=(("missing", "null"),)) == []


async def test_attr_03_all_attributes_and_all_else_hold_together(kit: Kit) -> None:
    await attributed(kit)
    both = (("plan", '"pro"'), ("customer", "43"))
    assert await listed(kit, attributes=both) == await listed(kit, attributes=both[::-1]) == ["bob"]
    assert await listed(kit, attributes=(*both, ("eu", "true"))) == []
    assert await listed(kit, attributes=(("customer", "42"), ("customer", "43"))) == []
    assert await listed(kit, attributes=(("customer", "42"), ("customer", "42"))) == ["ada"]
    assert await listed(kit, attributes=(("plan", '"pro"'),), tag="x") == ["ada"]
    assert await listed(kit, attributes=(("plan", '"pro"'),), statuses=(Status.PENDING, Status.FAILED)) == [
        "bob",
        "ada",
    ]
    assert await listed(kit, attributes=(("plan", '"pro"'),), statuses=(Status.FAILED,)) == []
    assert await listed(kit, attributes=(("plan", '"pro"'),), namespace="red") == []
    assert await listed(kit, attributes=(("plan", '"pro"'),), limit=1) == ["bob"]


async def test_attr_03_however_the_attributes_were_written(kit: Kit) -> None:
    name, value = "na\u00efve \u2028 '\"%_", "\U0001f680 \x01 \\ ;--"
    data = json.dumps({name: value, "long": "x" * 254, "longer": "x" * 255, "n" * 256: 1, "n" * 255: 1}, indent=2)
    await kit.create("r", attributes=data.encode())
    text = msgspec.json.encode(value).decode()
    assert await listed(kit, attributes=((name, text),)) == ["r"]
    assert await listed(kit, attributes=(("long", f'"{"x" * 254}"'),)) == ["r"]
    assert await listed(kit, attributes=(("longer", f'"{"x" * 255}"'),)) == []
    assert await listed(kit, attributes=(("n" * 255, "1"),)) == ["r"]
    assert await listed(kit, attributes=(("n" * 256, "1"),)) == []


async def test_f59_attributes_that_are_no_object_are_kept_and_found_by_nothing(kit: Kit) -> None:
    hostile = [
        b"",
        b"7",
        b'"text"',
        b"[1]",
        b"{",
        b"\xff\x00",
        b'{"a":"\\ud800"}',
        b'{"a":1}{',
        b'{"a":1e999,"b":2,"\\u0000":3}',
    ]
    for index, data in enumerate(hostile):
        run = await kit.create(f"r{index}", attributes=data)
        assert run.attributes == data
    assert await listed(kit, attributes=(("a", "1"),)) == []
    assert await listed(kit, attributes=(("b", "2"),)) == [f"r{len(hostile) - 1}"]
    assert await listed(kit, attributes=(("", "7"),)) == []


async def test_by_attribute_however_a_run_began(kit: Kit) -> None:
    by: dict[str, Any] = {"attributes": b'{"order":7}'}
    run = await kit.hold("p", **by)
    begun = turn(replace(run, n=0, epoch=1), Status.COMPLETED, output=b"1")
    await kit.apply(
        turn(run, children=(NewChild(0, new("p.0", **by)),)),
        Create(run=new("first", **by), turn=replace(begun, run=RunKey("first", 0)), lease=SECOND),
        *(Create(run=new(f"r{index}", **by)) for index in range(3)),
    )
    await kit.apply(complete(run, successor=new("p~1", **by)))
    assert await listed(kit, attributes=(("order", "7"),)) == ["p~1", "r2", "r1", "r0", "first", "p.0", "p"]


async def test_ret_07_a_deleted_run_is_not_found_by_its_attributes_nor_is_who_has_its_id_then(kit: Kit) -> None:
    await kit.create("r", attributes=b'{"order":7,"x":"y"}')
    await kit.create("other", attributes=b'{"order":7}')
    await kit.write(Delete("r", b'"gone"'))
    assert await listed(kit, attributes=(("order", "7"),)) == ["other"]
    await kit.create("r", attributes=b'{"x":"z"}')
    assert await listed(kit, attributes=(("x", '"y"'),)) == []
    await kit.reopen()
    assert await listed(kit, attributes=(("order", "7"),)) == ["other"]
    assert await listed(kit, attributes=(("x", '"z"'),)) == ["r"]


async def test_pages_by_attribute_neither_repeat_nor_skip(kit: Kit) -> None:
    odd = b'{"odd":true}'
    await kit.apply(*(Create(run=new(f"r{index:02}", attributes=odd if index % 2 else None)) for index in range(25)))
    pages: list[list[str]] = []
    before: int | None = None
    while page := await kit.store.runs(RunQuery(attributes=(("odd", "true"),), limit=5, before=before)):
        pages.append([run.id for run in page])
        before = page[-1].incarnation
        await kit.create(f"late{len(pages)}", attributes=odd)
    assert [run_id for page in pages for run_id in page] == [f"r{index:02}" for index in range(23, 0, -2)]
