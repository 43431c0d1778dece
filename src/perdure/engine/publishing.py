"""Events on their way: whom one starts is worked out here, whom it reaches by the store."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure.authoring.version import version_key
from perdure.engine.engine import Engine
from perdure.engine.sending import check_stored
from perdure.model import values
from perdure.model.carrier import decode_carrier
from perdure.model.commit import Published
from perdure.model.durations import unsigned_micros
from perdure.model.errors import InvalidValue, UsageError, ValueTooLarge
from perdure.model.events import Feed, Publish, Subscription, Trigger, field_text, payload_facets
from perdure.model.ids import check_name, check_run_id
from perdure.model.messages import MessageKind, Outgoing
from perdure.model.run import DEFAULT_NAMESPACE, NewRun
from perdure.model.shown import shown
from perdure.patterns.accumulate import SIGNAL, Item, Plan, accumulate

#: Microseconds that an event is kept which reached nobody, unless it says for how long.
_KEEP: Final = 7 * 86_400_000_000
#: Microseconds that the id of an event is remembered which nobody gave it: as long as a lost answer may be asked for again.
_REMEMBER: Final = 86_400_000_000
#: Bytes that may come to a collected event and its plan on their way.
_OVERHEAD: Final = 16 * 1024
#: Characters of a key that stand in a run's id as they are.
_LONGEST_KEY: Final = 100


def event(name: str, payload: Any, *, id: str | None, buffer: bool | float | timedelta, namespace: str) -> Publish:
    """An event that starts nothing yet. Raises `InvalidId`, `InvalidValue` and `UsageError`."""
    check_name(name, "an event's name")
    if id is not None:
        check_name(id, "an event's id")
    keep = _kept_for(buffer)
    data = values.encode(payload, what=f"the payload of event {name!r}")
    try:
        facets = payload_facets(data)
    except ValueError as error:
        raise InvalidValue(f"the payload of event {name!r} cannot be matched: {error}") from None
    return Publish(
        name=name,
        namespace=namespace,
        # It always has one: an event whose answer was lost is published again, and must not reach anybody twice.
        id=secrets.token_hex(16) if id is None else id,
        payload=data,
        facets=facets,
        keep=keep,
        remember=_REMEMBER if id is None else None,
    )


def _kept_for(buffer: object) -> int | None:
    if isinstance(buffer, bool):
        return _KEEP if buffer else None
    if not isinstance(buffer, int | float | timedelta):
        raise UsageError(f"buffer must be True or False, or how long: seconds or a timedelta, not {shown(buffer)}")
    return unsigned_micros(buffer, "buffer") or None


async def published(engine: Engine, event: Publish, carrier: bytes | None) -> int:
    """Publish it, and have whoever it wakes here woken. Returns how many it reached.

    `carrier`: what the runs that it starts take along.
    """
    found = [each for each in await engine.reads.subscriptions() if each.namespace in (None, event.namespace)]
    served = await _served(engine) if len(found) > len({each.workflow for each in found}) else ()
    starts: list[NewRun] = []
    feeds: list[Feed] = []
    for subscription in effective(found, served):
        for trigger in subscription.triggers:
            if trigger.event == event.name and trigger.window is None:
                starts.append(_start(event, subscription, carrier))
            elif trigger.event == event.name:
                feeds.append(_feed(event, subscription, trigger, carrier))
    answer = await engine.ask(replace(event, starts=tuple(starts), feeds=tuple(feeds)))
    check_stored(answer)
    assert isinstance(answer, Published)
    return answer.reached


async def _served(engine: Engine) -> Collection[tuple[str, str]]:
    """The workflows and versions that some process has."""
    fleet = await engine.reads.patiently("reading the fleet", lambda store: store.fleet())
    return {(each.workflow, each.version) for member in fleet for each in member.process.serves}


def effective(subscriptions: Iterable[Subscription], served: Collection[tuple[str, str]]) -> Sequence[Subscription]:
    """For each workflow the one that counts: of the newest version that some process has; if none has any, of the newest.

    By name, so that the same event starts its runs in the same order.
    """
    best: dict[str, tuple[Any, Subscription]] = {}
    for each in subscriptions:
        rank = ((each.workflow, each.version) in served, version_key(each.version), each.namespace is not None)
        if each.workflow not in best or rank > best[each.workflow][0]:
            best[each.workflow] = (rank, each)
    return [best[workflow][1] for workflow in sorted(best)]


def _start(event: Publish, subscription: Subscription, carrier: bytes | None) -> NewRun:
    return _new_run(
        check_run_id(f"{_space('evt', event)}:{event.id}:{subscription.workflow}"),
        event,
        subscription.workflow,
        subscription.version,
        event.payload,
        tags=subscription.tags,
        timeout=subscription.timeout,
        origin=subscription.origin,
        carrier=carrier,
    )


def _feed(event: Publish, subscription: Subscription, trigger: Trigger, carrier: bytes | None) -> Feed:
    assert trigger.window is not None
    plan = Plan(
        subscription.workflow,
        subscription.version,
        trigger.window,
        trigger.most,
        subscription.tags,
        subscription.timeout,
        subscription.origin,
    )
    run_id = f"{_space('acc', event)}:{event.name}:{subscription.workflow}"
    if trigger.key is not None:
        run_id = f"{run_id}:{_key(event.payload, trigger.key)}"
    payload = msgspec.json.encode(Item(msgspec.Raw(event.payload), plan, decode_carrier(carrier) or None))
    if len(payload) > values.MAX_VALUE - _OVERHEAD:
        raise ValueTooLarge(
            f"the payload of event {event.name!r} is {len(event.payload):,} bytes as JSON, too many to be collected for "
            f"workflow {subscription.workflow!r}: store it elsewhere and pass a reference to it"
        )
    message = Outgoing(
        kind=MessageKind.SIGNAL,
        run_id=check_run_id(run_id),
        name=SIGNAL,
        payload=payload,
        dedup=event.id,
        namespace=event.namespace,
    )
    return Feed(
        _new_run(run_id, event, accumulate.name, accumulate.version, b"null", origin=accumulate.origin), message
    )


def _new_run(run_id: str, event: Publish, workflow: str, version: str, input: bytes, **fields: Any) -> NewRun:
    return NewRun(
        id=run_id,
        workflow=workflow,
        version=version,
        input=input,
        seed=secrets.randbits(62),
        namespace=event.namespace,
        **fields,
    )


def _space(kind: str, event: Publish) -> str:
    """Ids are the store's, events a namespace's."""
    return kind if event.namespace == DEFAULT_NAMESPACE else f"{kind}@{event.namespace}"


def _key(payload: bytes, path: str) -> str:
    text = field_text(payload, path)
    if len(text) <= _LONGEST_KEY and text.isprintable():
        return text
    return blake2b(text.encode(), digest_size=16).hexdigest()
