"""Finding runs by their attributes."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from perdure.model.attributes import Compare, Condition, searchable
from perdure.model.commit import Create, Delete, NewChild
from perdure.model.conditions import attr
from perdure.model.run import RunKey, Status
from perdure.ports.store import RunQuery
from perdure.testing.conformance.kit import SECOND, Kit, complete, new, turn
from perdure.testing.conformance.listing import listed

#: What linters would have compared in another way.
YES, NOTHING = True, None


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
    assert await listed(kit, where=(attr("customer") == 42,)) == ["float", "ada"]
    assert await listed(kit, where=(attr("customer") == "42",)) == ["text"]
    assert await listed(kit, where=(attr("customer") == 42.0,)) == ["float", "ada"]
    assert await listed(kit, where=(attr("plan") == "pro",)) == ["bob", "ada"]
    assert await listed(kit, where=(attr("plan") == NOTHING,)) == ["text"]
    assert await listed(kit, where=(attr("eu") == YES,)) == ["ada"]
    assert await listed(kit, where=(attr("Plan") == "pro",)) == []
    assert await listed(kit, where=(attr("plan") == "PRO",)) == []
    assert await listed(kit, where=(attr("missing") == NOTHING,)) == []


async def test_attr_03_all_attributes_and_all_else_hold_together(kit: Kit) -> None:
    await attributed(kit)
    both = (attr("plan") == "pro", attr("customer") == 43)
    assert await listed(kit, where=both) == await listed(kit, where=both[::-1]) == ["bob"]
    assert await listed(kit, where=(*both, attr("eu") == YES)) == []
    assert await listed(kit, where=(attr("customer") == 42, attr("customer") == 43)) == []
    assert await listed(kit, where=(attr("customer") == 42, attr("customer") == 42)) == ["float", "ada"]
    assert await listed(kit, where=(attr("plan") == "pro",), tags=("x",)) == ["ada"]
    assert await listed(kit, where=(attr("plan") == "pro",), statuses=(Status.PENDING, Status.FAILED)) == [
        "bob",
        "ada",
    ]
    assert await listed(kit, where=(attr("plan") == "pro",), statuses=(Status.FAILED,)) == []
    assert await listed(kit, where=(attr("plan") == "pro",), namespace="red") == []
    assert await listed(kit, where=(attr("plan") == "pro",), limit=1) == ["bob"]


async def test_attr_03_however_the_attributes_were_written(kit: Kit) -> None:
    name, value = "na\u00efve \u2028 '\"%_", "\U0001f680 \x01 \\ ;--"
    data = json.dumps({name: value, "long": "x" * 254, "longer": "x" * 255, "n" * 256: 1, "n" * 255: 1}, indent=2)
    await kit.create("r", attributes=data.encode())
    key = dict(searchable(data.encode()))[name]
    assert await listed(kit, where=(Condition(name, Compare.EQ, key),)) == ["r"]
    assert await listed(kit, where=(Condition(name, Compare.LT, key),)) == []
    assert await listed(kit, where=(attr("long") == "x" * 254,)) == ["r"]
    assert await listed(kit, where=(attr("longer") != "y",)) == []
    assert await listed(kit, where=(attr("n" * 255) == 1,)) == ["r"]
    assert await listed(kit, where=(Condition("n" * 256, Compare.EQ, "n25001"),)) == []


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
    assert await listed(kit, where=(attr("a") == 1,)) == []
    assert await listed(kit, where=(attr("b") == 2,)) == [f"r{len(hostile) - 1}"]


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
    assert await listed(kit, where=(attr("order") == 7,)) == ["p~1", "r2", "r1", "r0", "first", "p.0", "p"]


async def test_ret_07_a_deleted_run_is_not_found_by_its_attributes_nor_is_who_has_its_id_then(kit: Kit) -> None:
    await kit.create("r", attributes=b'{"order":7,"x":"y"}')
    await kit.create("other", attributes=b'{"order":7}')
    await kit.write(Delete("r", b'"gone"'))
    assert await listed(kit, where=(attr("order") == 7,)) == ["other"]
    await kit.create("r", attributes=b'{"x":"z"}')
    assert await listed(kit, where=(attr("x") == "y",)) == []
    await kit.reopen()
    assert await listed(kit, where=(attr("order") == 7,)) == ["other"]
    assert await listed(kit, where=(attr("x") == "z",)) == ["r"]


async def test_pages_by_attribute_neither_repeat_nor_skip(kit: Kit) -> None:
    odd = b'{"odd":true}'
    await kit.apply(*(Create(run=new(f"r{index:02}", attributes=odd if index % 2 else None)) for index in range(25)))
    pages: list[list[str]] = []
    before: int | None = None
    while page := await kit.store.runs(RunQuery(where=(attr("odd") == YES,), limit=5, before=before)):
        pages.append([run.id for run in page])
        before = page[-1].incarnation
        await kit.create(f"late{len(pages)}", attributes=odd)
    assert [run_id for page in pages for run_id in page] == [f"r{index:02}" for index in range(23, 0, -2)]


# ---------------------------------------------------------------- more than equal


async def numbered(kit: Kit) -> list[int]:
    """Runs r0, r1, ... with these sizes, and some that have none, or one of another kind."""
    sizes: list[Any] = [7, -3, 0, 100, 1e300, 20, 99.5, -1e-9, 2**63 + 1, -100, "30", True, None, [5]]
    await kit.apply(
        Create(run=new("without")),
        *(Create(run=new(f"r{n}", attributes=json.dumps({"size": size}).encode())) for n, size in enumerate(sizes)),
    )
    return [n for n, size in enumerate(sizes) if isinstance(size, int | float) and not isinstance(size, bool)]


async def test_attr_03_numbers_compare_as_numbers(kit: Kit) -> None:
    await numbered(kit)
    size = attr("size")
    assert await listed(kit, where=(size > 20,)) == ["r8", "r6", "r4", "r3"]
    assert await listed(kit, where=(size >= 20,)) == ["r8", "r6", "r5", "r4", "r3"]
    assert await listed(kit, where=(size < 0,)) == ["r9", "r7", "r1"]
    assert await listed(kit, where=(size <= -0.0,)) == ["r9", "r7", "r2", "r1"]
    assert await listed(kit, where=(size > 2**63,)) == ["r8", "r4"]
    assert await listed(kit, where=(size > 2**63 + 1,)) == ["r4"]
    assert await listed(kit, where=(size > -1, size < 99.6, size != 7)) == ["r7", "r6", "r5", "r2"]
    assert await listed(kit, where=(size == 20, size < 100)) == ["r5"]
    assert await listed(kit, where=(size == 20, size > 100)) == []
    assert await listed(kit, where=(size > 0, size == "30")) == []


async def test_attr_03_what_is_unequal_is_there_all_the_same(kit: Kit) -> None:
    numbers = await numbered(kit)
    found = await listed(kit, where=(attr("size") != 7,))
    assert found == ["r12", "r11", "r10", *(f"r{n}" for n in reversed(numbers) if n)]
    assert await listed(kit, where=(attr("length") != 7,)) == []


async def test_attr_03_texts_compare_by_their_characters(kit: Kit) -> None:
    texts = ["b", "", "abc", "B", "a\u0000", "a", "\u00e9", "\U0001f680", "\uffee", "ab", "10", "9"]
    await kit.apply(
        *(Create(run=new(f"r{n}", attributes=json.dumps({"t": text}).encode())) for n, text in enumerate(texts)),
        Create(run=new("number", attributes=b'{"t":5}')),
    )
    for text in texts:
        for compare, others in (
            (attr("t") > text, [other for other in texts if other > text]),
            (attr("t") >= text, [other for other in texts if other >= text]),
            (attr("t") < text, [other for other in texts if other < text]),
            (attr("t") <= text, [other for other in texts if other <= text]),
            (attr("t") == text, [text]),
        ):
            found = await listed(kit, where=(compare,), limit=100)
            assert {texts[int(run_id[1:])] for run_id in found} == set(others), compare


async def test_attr_03_ranges_and_all_else_hold_together(kit: Kit) -> None:
    for n in range(20):
        data = json.dumps({"size": n, "odd": n % 2 == 1}).encode()
        space = "red" if n < 10 else "default"
        await kit.create(f"r{n}", attributes=data, namespace=space, tags=("big",) if n > 15 else ())
    assert await listed(kit, where=(attr("size") > 5, attr("odd") == YES), namespace="red") == ["r9", "r7"]
    assert await listed(kit, where=(attr("size") <= 17,), tags=("big",)) == ["r17", "r16"]
    assert await listed(kit, where=(attr("size") > 3,), namespace="red", limit=2) == ["r9", "r8"]
    assert await listed(kit, where=(attr("size") > 3,), statuses=(Status.PENDING, Status.DEAD), limit=1) == ["r19"]
    assert await listed(kit, where=(attr("size") > 3,), statuses=(Status.FAILED, Status.DEAD)) == []


async def test_pages_of_a_range_neither_repeat_nor_skip(kit: Kit) -> None:
    await kit.apply(*(Create(run=new(f"r{n:02}", attributes=f'{{"n":{(n * 7) % 25}}}'.encode())) for n in range(25)))
    pages: list[list[str]] = []
    before: int | None = None
    while page := await kit.store.runs(RunQuery(where=(attr("n") >= 10,), limit=4, before=before)):
        pages.append([run.id for run in page])
        before = page[-1].incarnation
        await kit.create(f"late{len(pages)}", attributes=b'{"n":20}')
    assert [run_id for page in pages for run_id in page] == [f"r{n:02}" for n in range(24, -1, -1) if n * 7 % 25 >= 10]


# ---------------------------------------------------------------- what a turn changes


async def test_attr_01_a_turn_puts_other_attributes_in_their_place(kit: Kit) -> None:
    run = await kit.hold("r", attributes=b'{"size":1,"plan":"pro"}')
    await kit.hold("other", attributes=b'{"size":1}')
    await kit.apply(turn(run, attributes=b'{"size":2,"new":true}'))
    assert (await kit.run("r")).attributes == b'{"size":2,"new":true}'
    assert await listed(kit, where=(attr("size") == 1,)) == ["other"]
    assert await listed(kit, where=(attr("size") == 2, attr("new") == YES)) == ["r"]
    assert await listed(kit, where=(attr("plan") == "pro",)) == []
    await kit.apply(turn(await kit.run("r"), attributes=b"no object"))
    assert await listed(kit, where=(attr("size") == 2,)) == []
    await kit.apply(turn(await kit.run("r")))
    assert (await kit.run("r")).attributes == b"no object"


async def test_attr_01_a_turn_that_is_not_applied_changes_no_attributes(kit: Kit) -> None:
    run = await kit.hold("r", attributes=b'{"size":1}')
    await kit.write(turn(replace(run, epoch=run.epoch + 1), attributes=b'{"size":2}'))
    assert await listed(kit, where=(attr("size") == 1,)) == ["r"]
    await kit.apply(complete(run, attributes=b'{"size":3}'))
    assert await listed(kit, where=(attr("size") == 3,), statuses=(Status.COMPLETED,)) == ["r"]


async def test_attr_01_attributes_of_a_first_turn(kit: Kit) -> None:
    shell = replace(await kit.hold("x"), n=0, epoch=1)
    first = replace(turn(shell, Status.COMPLETED, output=b"1", attributes=b'{"size":2}'), run=RunKey("r", 0))
    await kit.apply(Create(run=new("r", attributes=b'{"size":1}'), turn=first, lease=SECOND))
    assert await listed(kit, where=(attr("size") > 1,)) == ["r"]
    assert await listed(kit, where=(attr("size") == 1,)) == []
    await kit.write(Delete("r", b'"gone"'))
    assert await listed(kit, where=(attr("size") > 1,)) == []
