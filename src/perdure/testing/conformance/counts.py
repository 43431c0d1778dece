"""Counting runs: all that match, by what they have in common."""

from __future__ import annotations

from typing import Any

from perdure.model.conditions import attr
from perdure.model.run import Status
from perdure.ports.store import Count, Facet, RunQuery
from perdure.testing.conformance.attributes import attributed
from perdure.testing.conformance.kit import Kit
from perdure.testing.conformance.listing import several


async def counts(kit: Kit, *by: Facet, **fields: Any) -> dict[tuple[str | None, ...], int]:
    found = await kit.store.count(RunQuery(**fields), by)
    assert len({each.values for each in found}) == len(found)
    return {each.values: each.runs for each in found}


async def test_ret_14_counts_of_all_that_match(kit: Kit) -> None:
    assert await kit.store.count(RunQuery(), ()) == [Count((), 0)]
    assert await kit.store.count(RunQuery(), (Facet.STATUS,)) == []
    await several(kit)
    assert await counts(kit) == await counts(kit, limit=1, before=1) == {(): 5}
    assert await counts(kit, namespace="red") == {(): 2}
    assert await counts(kit, statuses=(Status.DEAD,)) == {(): 0}
    assert await counts(kit, statuses=(Status.PENDING, Status.FAILED, Status.PENDING)) == {(): 3}
    assert await counts(kit, tags=("x", "etl"), statuses=(Status.COMPLETED,)) == {(): 1}


async def test_ret_14_facets(kit: Kit) -> None:
    await several(kit)
    await kit.create("cron", origin="cron", tags=("x",))
    assert await counts(kit, Facet.STATUS) == {
        ("pending",): 3,
        ("suspended",): 1,
        ("failed",): 1,
        ("completed",): 1,
    }
    assert await counts(kit, Facet.WORKFLOW) == {("other",): 1, ("work",): 5}
    assert await counts(kit, Facet.TAG) == {("x",): 3, ("etl",): 2, ("etl-foo",): 1, (None,): 2}
    assert await counts(kit, Facet.STATUS, Facet.ORIGIN, limit=1) == {
        ("pending", "cron"): 1,
        ("pending", None): 2,
        ("suspended", None): 1,
        ("failed", None): 1,
        ("completed", None): 1,
    }
    assert await counts(kit, Facet.ORIGIN, Facet.TAG, namespace="red") == {
        (None, "x"): 1,
        (None, "etl"): 1,
        (None, None): 1,
    }
    assert await counts(kit, Facet.TAG, tags=("etl",)) == {("etl",): 2, ("x",): 2}


async def test_ret_14_counts_by_attribute(kit: Kit) -> None:
    await attributed(kit)
    assert await counts(kit, where=(attr("customer") >= 42,)) == {(): 3}
    assert await counts(kit, where=(attr("customer") >= 42, attr("plan") == "pro")) == {(): 2}
    assert await counts(kit, Facet.TAG, where=(attr("customer") != 43,), statuses=(Status.PENDING,)) == {
        ("x",): 2,
        (None,): 1,
    }
