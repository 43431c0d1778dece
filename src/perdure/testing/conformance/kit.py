"""What every case works with: a fresh store on a clock driven by hand, and short ways to say what happens to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from perdure.model.commit import Answer, Applied, Create, Send, TurnCommit, Write
from perdure.model.history import Entry, Event, Op
from perdure.model.messages import Message, MessageKind, Outgoing
from perdure.model.run import FORMAT, NewRun, Run, Status
from perdure.ports.fleet import Serves
from perdure.ports.store import Claimed, ClaimRequest, Held, Store
from perdure.testing.clock import ManualClock

SECOND = 1_000_000
LEASE = 30 * SECOND
#: The definition that runs of the kit have unless a case says otherwise.
WORKFLOW = Serves("work", "1", "print-a")
#: Far above every number a case counts to.
PLENTY = 1_000

T = TypeVar("T")


class StoreFactory(Protocol):
    """How the kit gets at the adapter under test. All stores it returns are open and take their time from the clock."""

    async def make(self, clock: ManualClock) -> Store:
        """A new, empty store."""
        ...

    async def reopen(self, store: Store) -> Store:
        """Close the store and open its data again, as after a restart."""
        ...

    async def second(self, store: Store) -> Store:
        """Another store over the same data, as another process would open it."""
        ...

    async def lose_wake(self, store: Store, incarnation: int) -> None:
        """Set the run's wake time to none behind the store's back: what no verb can do, for the audit to find."""
        ...

    async def dispose(self, store: Store) -> None:
        """Close a store that `make`, `reopen` or `second` returned."""
        ...


class Kit:
    """One case's store. Every write and claim happens a millisecond after the one before, so that times can be told apart."""

    def __init__(self, factory: StoreFactory, clock: ManualClock, store: Store) -> None:
        self.factory = factory
        self.clock = clock
        self.store = store
        self.others: list[Store] = []

    @property
    def now(self) -> int:
        return self.clock.now()

    # ------------------------------------------------------------ doing

    async def write(self, *batch: Write, store: Store | None = None) -> Sequence[Answer]:
        self.clock.advance(0.001)
        answers = await (store or self.store).write(batch)
        assert len(answers) == len(batch)
        return answers

    async def one(self, write: Write, store: Store | None = None) -> Answer:
        """The answer to a batch of one."""
        [answer] = await self.write(write, store=store)
        return answer

    async def apply(self, *batch: Write) -> None:
        """Writes that must be answered `Applied`."""
        for answer in await self.write(*batch):
            assert isinstance(answer, Applied), answer

    async def create(self, run_id: str, **fields: Any) -> Run:
        """A new run's row. Fields are those of `NewRun`."""
        answer = await self.one(Create(run=new(run_id, **fields)))
        run = await self.run(run_id)
        assert answer == Applied(run.key)
        return run

    async def claim(self, owner: str = "ada", *, store: Store | None = None, **fields: Any) -> Sequence[Claimed]:
        """What a process gets. Fields are those of `ClaimRequest`."""
        self.clock.advance(0.001)
        return await (store or self.store).claim(request(owner, **fields))

    async def hold(self, run_id: str, owner: str = "ada", **fields: Any) -> Run:
        """A new run's row, claimed by an owner. Nothing else may be due."""
        await self.create(run_id, **fields)
        return await self.take(run_id, owner)

    async def take(self, run_id: str, owner: str = "ada") -> Run:
        """Claim the one run that is due."""
        claimed = await self.claim(owner)
        assert [each.run.id for each in claimed] == [run_id]
        return claimed[0].run

    async def second(self) -> Store:
        """Another process's store."""
        other = await self.factory.second(self.store)
        self.others.append(other)
        return other

    async def reopen(self) -> None:
        self.store = await self.factory.reopen(self.store)

    # ------------------------------------------------------------ looking

    async def run(self, run_id: str) -> Run:
        run = await self.store.get(run_id)
        assert run is not None, f"there is no run {run_id!r}"
        return run

    async def expect(self, before: Run, **changes: Any) -> Run:
        """The run's row, which must be as before, but for these changes, made now."""
        run = await self.run(before.id)
        assert run == replace(before, **({"updated_at": self.now} | changes))
        return run

    async def unchanged(self, *before: Run) -> None:
        """These rows are what they were."""
        for run in before:
            assert await self.store.get(run.id) == run

    async def value(self, incarnation: int, key: str) -> bytes | None:
        return (await self.store.values(incarnation, [key])).get(key)

    async def inbox(self, run: Run) -> list[Message]:
        return list(await self.store.messages(run.incarnation))

    async def history(self, run: Run) -> list[Entry]:
        return list((await self.store.history([run.incarnation]))[run.incarnation])


# ---------------------------------------------------------------- values


def new(run_id: str, **fields: Any) -> NewRun:
    usual: dict[str, Any] = {
        "id": run_id,
        "workflow": WORKFLOW.workflow,
        "version": WORKFLOW.version,
        "input": b"{}",
        "seed": 7,
    }
    return NewRun(**usual | fields)


def request(owner: str = "ada", **fields: Any) -> ClaimRequest:
    usual: dict[str, Any] = {
        "owner": owner,
        "namespaces": None,
        "serves": (WORKFLOW,),
        "limit": PLENTY,
        "lease": LEASE,
        "format": FORMAT,
    }
    return ClaimRequest(**usual | fields)


def turn(run: Run, status: Status = Status.RUNNING, **fields: Any) -> TurnCommit:
    """A turn of the one who holds the row. Nothing seen beyond what the row says."""
    usual: dict[str, Any] = {
        "run": run.key,
        "owner": run.owner,
        "epoch": run.epoch,
        "n": run.n,
        "entries": (),
        "status": status,
        "seen": run.seen,
    }
    return TurnCommit(**usual | fields)


def park(run: Run, **fields: Any) -> TurnCommit:
    """A turn that parks on messages."""
    return turn(run, Status.SUSPENDED, **{"listening": True} | fields)


def complete(run: Run, output: bytes = b'"done"', **fields: Any) -> TurnCommit:
    return turn(run, Status.COMPLETED, output=output, **fields)


def fail(run: Run, error: bytes = b'{"type":"Boom","message":"boom"}', **fields: Any) -> TurnCommit:
    return turn(run, Status.FAILED, error=error, **fields)


def scheduled(seq: int, name: str = "step", at: int = 0, **fields: Any) -> Entry:
    usual: dict[str, Any] = {
        "event": Event.SCHEDULED,
        "seq": seq,
        "op": Op.STEP,
        "name": name,
        "payload": b"{}",
        "at": at,
    }
    return Entry(**usual | fields)


def resolved(seq: int, payload: bytes = b"1", at: int = 0) -> Entry:
    return Entry(Event.RESOLVED, seq, None, "", payload, at)


def to_run(run_id: str, payload: bytes = b"0", *, name: str = "go", dedup: str | None = None) -> Send:
    return Send(Outgoing(kind=MessageKind.SIGNAL, run_id=run_id, name=name, payload=payload, dedup=dedup))


def to_token(token: str, payload: bytes = b"0", *, dedup: str | None = None, namespace: str = "default") -> Send:
    return Send(Outgoing(kind=MessageKind.SIGNAL, token=token, payload=payload, dedup=dedup, namespace=namespace))


def control(run_id: str) -> Send:
    """A cancel for the body."""
    return Send(Outgoing(kind=MessageKind.CANCEL, run_id=run_id))


def update(run_id: str, payload: bytes = b"0") -> Send:
    """An update for the body."""
    return Send(Outgoing(kind=MessageKind.UPDATE, run_id=run_id, name="go", payload=payload))


def ended_child(number: int, child: str, payload: bytes | None, at: int, *, failed: bool = False) -> Message:
    """What a parent hears."""
    return Message(number, MessageKind.CHILD, child, None, payload, failed, at)


def held(*runs: Run, inbox: int = 0) -> list[Held]:
    return [Held(run.incarnation, run.epoch, inbox) for run in runs]


def ids(claimed: Sequence[Claimed]) -> list[str]:
    return [each.run.id for each in claimed]


def payloads(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.payload for message in messages]


def of(kind: type[T], answer: object) -> T:
    """The answer, which must be of that kind."""
    assert isinstance(answer, kind), answer
    return answer
