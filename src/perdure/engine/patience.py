"""How long a caller waits for a store that cannot be reached: for the app's `patience`, then there is one clear error.

Until then what was asked is tried again, with longer and longer pauses. Reads are tried here; writes by the committer, which
goes on for the runs' own turns but drops what its caller gave up. A caller that waits for a *run* has no deadline: it waits on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from perdure.engine.committer import Broken, Committer, Outcome
from perdure.engine.means import Means
from perdure.engine.pauses import pauses, sleep_until
from perdure.model.commit import (
    Answer,
    Append,
    Cancel,
    Configure,
    Create,
    Delete,
    Requeue,
    Send,
    Steer,
    TurnCommit,
    Way,
    Write,
)
from perdure.model.errors import StoreUnavailable
from perdure.model.events import Publish, Subscription
from perdure.model.history import Entry
from perdure.model.messages import Message, MessageKind, Outgoing
from perdure.model.run import Run, RunKey
from perdure.model.stream import StoredChunk
from perdure.ports.store import Count, Facet, RunQuery, Standing, Store

T = TypeVar("T")

log = logging.getLogger("perdure.engine")


class Reads:
    """What callers read. `store` gives the store, or raises because the app was closed. Event loop only.

    Each raises `StoreUnavailable` when the app's patience is over; with `for_ever` it is not before the store answers.
    """

    def __init__(self, means: Means, store: Callable[[], Store]) -> None:
        self._means = means
        self._store = store
        #: True from when an outage was logged until the store has answered again.
        self._told = False

    async def get(self, run_id: str, *, for_ever: bool = False) -> Run | None:
        return await self.patiently(f"reading run {run_id!r}", lambda store: store.get(run_id), for_ever=for_ever)

    async def history(self, key: RunKey) -> Sequence[Entry]:
        doing = f"reading the history of run {key.id!r}"
        return (await self.patiently(doing, lambda store: store.history([key.incarnation])))[key.incarnation]

    async def messages(self, key: RunKey) -> Sequence[Message]:
        doing = f"reading the messages of run {key.id!r}"
        return await self.patiently(doing, lambda store: store.messages(key.incarnation))

    async def value(self, key: RunKey, name: str) -> bytes | None:
        doing = f"reading value {name!r} of run {key.id!r}"
        return (await self.patiently(doing, lambda store: store.values(key.incarnation, [name]))).get(name)

    async def answers(self, key: RunKey, names: Sequence[str]) -> Mapping[str, bytes]:
        """The values under these names that there are, however long the store cannot be reached."""
        doing = f"reading {len(names)} values of run {key.id!r}"
        return await self.patiently(doing, lambda store: store.values(key.incarnation, names), for_ever=True)

    async def standing(self, key: RunKey) -> Standing | None:
        """None: it is gone. Waits for the store, however long."""
        doing = f"looking how run {key.id!r} stands"
        found = await self.patiently(doing, lambda store: store.standing([key.incarnation]), for_ever=True)
        return found.get(key.incarnation)

    async def chunks(self, key: RunKey, stream: str, after: int, limit: int) -> Sequence[StoredChunk]:
        """Waits for the store, however long."""
        doing = f"reading stream {stream!r} of run {key.id!r}"
        return await self.patiently(
            doing, lambda store: store.chunks(key.incarnation, stream, after, limit), for_ever=True
        )

    async def runs(self, query: RunQuery) -> Sequence[Run]:
        return await self.patiently("listing runs", lambda store: store.runs(query))

    async def subscriptions(self) -> Sequence[Subscription]:
        return await self.patiently("reading what is started by events", lambda store: store.subscriptions())

    async def count(self, query: RunQuery, by: Sequence[Facet]) -> Sequence[Count]:
        return await self.patiently("counting runs", lambda store: store.count(query, by))

    async def patiently(self, doing: str, call: Callable[[Store], Awaitable[T]], *, for_ever: bool = False) -> T:
        """What `call` returns, which is called until it does. `doing` says in an error what it is; twice must do no harm."""
        clock, patience = self._means.clock, self._means.settings.patience
        began = clock.now()
        trouble: StoreUnavailable | None = None
        # The clock says when to try again and when to stop, the limit ends a call that hangs.
        limit = asyncio.timeout(None if for_ever else patience / 1_000_000)
        try:
            async with limit:
                for pause in pauses():
                    try:
                        found = await call(self._store())
                    except StoreUnavailable as error:
                        trouble = error
                    else:
                        self._told = False
                        return found
                    self._tell(trouble)
                    now = clock.now()
                    if not for_ever:
                        if now >= began + patience:
                            break
                        pause = min(pause, began + patience - now)
                    await sleep_until(clock, now + pause)
        except TimeoutError:
            if not limit.expired():
                raise
        advice = "Nothing is changed by that; try again when the store can be reached"
        raise _given_up(doing, patience, trouble, advice) from trouble

    def _tell(self, trouble: StoreUnavailable) -> None:
        if not self._told:
            self._told = True
            log.warning("perdure: the store cannot be reached, trying again: %s", trouble)


async def answer(means: Means, committer: Committer, write: Write, future: asyncio.Future[Outcome]) -> Answer:
    """The answer to a write that was submitted, once it is in `future`. The app's patience over, it is asked for no more.

    Raises `StoreUnavailable` then, and what the store raised. Whoever gives up this wait earlier does not take the write back.
    """

    def give_up() -> None:
        committer.withdraw(write, _unwritten(write, means.settings.patience, committer.trouble, tried=False))
        if not future.done():
            future.set_exception(_unwritten(write, means.settings.patience, committer.trouble, tried=True))

    alarm = means.clock.call_at(means.clock.now() + means.settings.patience, give_up)
    try:
        outcome = await future
    finally:
        alarm.cancel()
    if isinstance(outcome, Broken):
        raise outcome.error
    return outcome


def _unwritten(write: Write, patience: int, trouble: StoreUnavailable | None, *, tried: bool) -> StoreUnavailable:
    doing, again = _described(write)
    written = "It may have been written all the same" if tried else "Nothing was written"
    error = _given_up(doing, patience, trouble, f"{written}; {again}")
    error.__cause__ = trouble
    return error


def _given_up(doing: str, patience: int, trouble: StoreUnavailable | None, advice: str) -> StoreUnavailable:
    reason = "it does not answer" if trouble is None else trouble
    return StoreUnavailable(
        f"{doing} was given up after {patience / 1_000_000:g} s, since the store cannot be reached ({reason}). {advice}"
    )


def _described(write: Write) -> tuple[str, str]:
    """What a write does, and how to ask for it again."""
    match write:
        case Create():
            ids = f"id={write.run.id!r}" + "".join(f" and signal_id={message.dedup!r}" for message in write.messages)
            again = f"start it again with {ids}: nothing is done twice then"
            return f"starting run {write.run.id!r} of workflow {write.run.workflow!r}", again
        case Send():
            message = write.message
            asked = (message.dedup or "").removeprefix("update:" if message.kind is MessageKind.UPDATE else "")
            again = f"send it again with id={asked!r}: it arrives once then"
            return f"sending {_named(message)}", again
        case Publish():
            again = f"publish it again with id={write.id!r}: it reaches nobody twice then"
            return f"publishing event {write.name!r}", again
        case Append():
            return f"writing to streams of run {write.run.id!r}", "the next attempt of the step writes it anew"
        case Cancel():
            return f"cancelling run {write.run_id!r}", "cancel it again: a second time does no harm"
        case Requeue():
            return (
                f"requeueing run {write.run_id!r}",
                "look how it stands, and requeue it again if it has not begun anew",
            )
        case Steer():
            doing = {Way.PAUSE: "pausing", Way.UNPAUSE: "unpausing", Way.REDISPATCH: "redispatching"}[write.way]
            return f"{doing} run {write.run_id!r}", "do it again: a second time does no harm"
        case Delete():
            return f"deleting run {write.run_id!r}", "delete it again: a second time does no harm"
        case Configure():
            return f"declaring queue {write.name!r}", "declare it again: a second time does no harm"
        case TurnCommit():
            return f"a turn of run {write.run.id!r}", "whoever has it next goes on from what is stored"


def _named(message: Outgoing) -> str:
    kind = "a message" if message.kind is MessageKind.CANCEL else str(message.kind)
    where = f"token {message.token!r}" if message.run_id is None else f"run {message.run_id!r}"
    return f"{kind} {message.name!r} to {where}"


__all__ = ["Reads", "answer"]
