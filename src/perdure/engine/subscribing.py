"""Saying durably which events start the workflows that are served here, so that whoever publishes starts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.authoring.events import trigger_of
from perdure.authoring.registry import AnyWorkflow, Registry
from perdure.model.events import Subscription
from perdure.ports.store import Store


async def subscribe(store: Store, registry: Registry, namespace: str | None) -> None:
    """Of each workflow its newest version here. What is said already is not written again."""
    there = await store.subscriptions()
    wanted = _wanted(registry, namespace)
    fresh = list(_fresh(wanted, there))
    if fresh:
        await store.subscribe(fresh)


async def unsubscribe(store: Store, workflow: str) -> bool:
    """Nothing starts any version of the workflow from now on. True if anything did."""
    found = [each for each in await store.subscriptions() if each.workflow == workflow and each.triggers]
    if found:
        await store.subscribe([replace(each, triggers=()) for each in found])
    return bool(found)


def _wanted(registry: Registry, namespace: str | None) -> Sequence[Subscription]:
    newest: dict[str, AnyWorkflow] = {each.name: each for each in registry.workflows()}  # the newest of each comes last
    return [
        Subscription(
            namespace=namespace,
            workflow=each.name,
            version=each.version,
            triggers=tuple(map(trigger_of, each.on_event)),
            tags=each.tags,
            timeout=each.timeout_us,
            origin=each.origin,
        )
        for each in newest.values()
    ]


def _fresh(wanted: Iterable[Subscription], there: Sequence[Subscription]) -> Iterable[Subscription]:
    """Those that say something new. That nothing starts a workflow is news only if something did."""
    known = {(each.namespace, each.workflow, each.version): each for each in there}
    subscribed = {each.workflow for each in there}
    for each in wanted:
        key = (each.namespace, each.workflow, each.version)
        if (each.triggers or each.workflow in subscribed) and known.get(key) != each:
            yield each
