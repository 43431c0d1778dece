"""One run for several events: batches, and the last one once it is quiet.

    @workflow(on_event=Batch("row.imported", max=100, window=timedelta(minutes=5), key="customer"))
    async def import_rows(rows: Rows) -> None: ...

Events are collected by a run of their own, one for each workflow, event and key: publishing sends it the event (and starts it
the first time), in the transaction of the publish. It waits for more of them, with the window as timeout; when it has enough
it starts the run they are for and continues as new, in one transaction. So what is collected survives what runs survive, in
order, and each event gets into one run. What a plan says (the window, how many) comes with each event: the newest one counts.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from perdure.authoring.context import Context
from perdure.authoring.events import Accumulator, check_event, check_field
from perdure.authoring.workflow import WorkflowDefinition, workflow
from perdure.model.durations import positive_micros
from perdure.model.errors import SignalTimeout, UsageError
from perdure.model.events import Trigger
from perdure.model.shown import shown
from perdure.model.values import MAX_VALUE

#: Events of one batch.
MOST: Final = 1_000
#: So many events at most are taken by one link, since each makes its history longer.
_LINK: Final = 500
#: Bytes of a batch: what would go beyond begins the next one.
_LARGEST: Final = MAX_VALUE - 16 * 1024

#: The signal's name by which a collecting run is sent an event.
SIGNAL: Final = "event"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.Encoder().encode


class Plan(Struct, frozen=True, omit_defaults=True):
    """What to start, and when."""

    workflow: str
    version: str
    #: Microseconds.
    window: int
    #: How many at most; None: only the last one, once it is quiet.
    most: int | None = None
    tags: tuple[str, ...] = ()
    timeout: int | None = None
    origin: str | None = None


class Item(Struct, frozen=True, omit_defaults=True):
    """An event on its way into a collecting run."""

    payload: Any
    plan: Plan
    #: Of whoever published it. The run that is started has that of the last one.
    carrier: dict[str, str] | None = None


class Collected(Struct, frozen=True, omit_defaults=True):
    """What a link of a collecting run hands to the next."""

    payloads: list[Any]
    #: Microseconds: when what there is starts a run.
    due: int
    plan: Plan
    carrier: dict[str, str] | None = None


class Batch(Accumulator):
    """Up to `max` events start one run, or those that came within `window` (seconds or `timedelta`) of the first.

    Its input is `{"events": [...]}`, the payloads in the order in which they were published. `key`: the path of a field;
    events with different values are collected apart. A batch holds at most 2 MiB: what would go beyond begins the next one.
    """

    def __init__(self, event: str, *, max: int, window: float | timedelta, key: str | None = None) -> None:
        check_event(event)
        if isinstance(max, bool) or not isinstance(max, int) or not 1 <= max <= MOST:
            raise UsageError(f"max of Batch({event!r}) must be a whole number from 1 to {MOST:,}, not {shown(max)}")
        self._trigger = Trigger(event, _window(window, "Batch", event), max, _key(key, "Batch", event))

    @property
    def trigger(self) -> Trigger:
        return self._trigger

    @property
    def collector(self) -> WorkflowDefinition[[Collected | None], None]:
        return accumulate


class Debounce(Accumulator):
    """The last of several events starts one run, when none came for `window` (seconds or `timedelta`).

    Its input is that event's payload. `key` as for `Batch`.
    """

    def __init__(self, event: str, *, window: float | timedelta, key: str | None = None) -> None:
        check_event(event)
        self._trigger = Trigger(event, _window(window, "Debounce", event), None, _key(key, "Debounce", event))

    @property
    def trigger(self) -> Trigger:
        return self._trigger

    @property
    def collector(self) -> WorkflowDefinition[[Collected | None], None]:
        return accumulate


def _window(window: object, kind: str, event: str) -> int:
    return positive_micros(cast("float", window), f"window of {kind}({event!r})")


def _key(key: object, kind: str, event: str) -> str | None:
    return None if key is None else check_field(key, f"key of {kind}({event!r})")


@workflow(name="perdure.accumulate", version="1", origin="perdure")
async def accumulate(ctx: Context, collected: Collected | None = None) -> None:
    """Collects the events of one workflow, event and key, for ever."""
    if collected is None:
        item = await ctx.wait_for_signal(SIGNAL, type=Item)
        collected = Collected([item.payload], _now(ctx) + item.plan.window, item.plan, item.carrier)
    payloads, due, plan, carrier = list(collected.payloads), collected.due, collected.plan, collected.carrier
    for _ in range(_LINK):
        if plan.most is not None and len(payloads) >= plan.most:
            break
        try:
            item = await ctx.wait_for_signal(SIGNAL, type=Item, timeout=timedelta(microseconds=max(0, due - _now(ctx))))
        except SignalTimeout:
            break
        full = plan.most is not None and len(_encode(payloads)) + len(_encode(item.payload)) > _LARGEST
        if full:
            _start(ctx, payloads, plan, carrier)
        plan, carrier = item.plan, item.carrier
        if full or plan.most is None:
            payloads, due = [item.payload], _now(ctx) + plan.window
        else:
            payloads.append(item.payload)
    else:
        ctx.continue_as_new(Collected(payloads, due, plan, carrier))
    _start(ctx, payloads, plan, carrier)
    ctx.continue_as_new(None)


def _start(ctx: Context, payloads: list[Any], plan: Plan, carrier: dict[str, str] | None) -> None:
    data = _encode(payloads[-1] if plan.most is None else {"events": payloads})
    ctx.start_stored(
        plan.workflow,
        plan.version,
        data,
        tags=plan.tags,
        timeout=plan.timeout,
        origin=plan.origin,
        carrier=carrier,
    )


def _now(ctx: Context) -> int:
    return (ctx.now() - _EPOCH) // timedelta(microseconds=1)
