"""Listing runs: newest first, all conditions together, page by page."""

from __future__ import annotations

from typing import Any

from perdure.model.commit import Create, Delete, NewChild
from perdure.model.run import Parent, RunKey, Status
from perdure.ports.store import RunQuery
from perdure.testing.conformance.kit import Kit, complete, fail, new, park, turn


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
    assert await listed(kit, tags=("etl",)) == ["parked", "done"]
    assert await listed(kit, tags=("etl-foo",)) == ["failed"]
    assert await listed(kit, tags=("etl%",)) == []
    assert await listed(kit, tags=("",)) == []


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
    query: dict[str, Any] = {"statuses": (Status.SUSPENDED, Status.COMPLETED), "workflow": "work", "tags": ("x",)}
    assert await listed(kit, **query) == ["parked", "done"]
    assert await listed(kit, **query, namespace="red") == ["parked"]
    assert await listed(kit, **query, namespace="blue") == []


async def test_pages_neither_repeat_nor_skip(kit: Kit) -> None:
    await kit.apply(*(Create(run=new(f"r{index:02}", tags=("odd",) if index % 2 else ())) for index in range(25)))
    pages: list[list[str]] = []
    before: int | None = None
    while page := await kit.store.runs(RunQuery(tags=("odd",), limit=5, before=before)):
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


async def test_attr_07_all_of_several_tags(kit: Kit) -> None:
    await several(kit)
    assert await listed(kit, tags=("etl", "x")) == ["parked", "done"] == await listed(kit, tags=("x", "etl", "x"))
    assert await listed(kit, tags=("etl", "etl-foo")) == []


async def test_by_origin(kit: Kit) -> None:
    await kit.create("a", origin="cron")
    await kit.create("b", origin="web")
    await kit.create("c")
    await kit.create("d", origin="cron", namespace="red")
    assert await listed(kit, origin="cron") == ["d", "a"]
    assert await listed(kit, origin="cron", namespace="red") == ["d"]
    assert await listed(kit, origin="cron", limit=1) == ["d"]
    assert await listed(kit, origin="cron", before=(await kit.run("d")).incarnation) == ["a"]
    assert await listed(kit, origin="cro") == []
