"""What a process is doing to a SQLite store when it is killed: each verb, on a store where it has much to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from perdure.model.commit import (
    Applied,
    Cancel,
    Changed,
    Create,
    Delete,
    Join,
    Moved,
    NewChild,
    Published,
    Requeue,
    Steer,
    TokenWait,
    TurnCommit,
    Way,
    Write,
)
from perdure.model.run import Run, RunKey, Status
from perdure.ports.fleet import Serves
from perdure.ports.store import Store
from perdure.stores.sqlite import SqliteStore
from perdure.testing.conformance.events import feed, having, listen, publish
from perdure.testing.conformance.kit import (
    LEASE,
    WORKFLOW,
    complete,
    fail,
    held,
    new,
    park,
    request,
    resolved,
    scheduled,
    to_run,
    to_token,
    turn,
)

#: What is done while the process may be killed.
Deed = Callable[[], Awaitable[object]]


class Scenario(NamedTuple):
    prepare: Callable[[Store], Awaitable[None]]
    #: Reads what it needs, and returns the deed.
    begin: Callable[[SqliteStore], Awaitable[Deed]]


async def find(store: Store, run_id: str) -> Run:
    run = await store.get(run_id)
    assert run is not None
    return run


async def hold(store: Store, name: str, **fields: Any) -> Run:
    """A new run, claimed with all that is due."""
    await store.write([Create(run=new(name, **fields))])
    await store.claim(request())
    return await find(store, name)


# ---------------------------------------------------------------- what there is before


async def nothing(store: Store) -> None:
    """An empty store."""


async def family(store: Store) -> None:
    """A waiting parent, an awaited and a detached child at work, a grandchild, and a line at a token."""
    parent = await hold(store, "parent", tags=("x", "y"))
    children = (NewChild(0, new("awaited", awaited_as="awaited")), NewChild(1, new("detached", input=b"9" * 5000)))
    started = (scheduled(0), scheduled(1))
    await store.write([park(parent, entries=started, children=children, values=(("k", b"1"),))])
    await store.claim(request())
    waits = (TokenWait(1, "t"), TokenWait(2, "t"))
    await store.write([turn(await find(store, "detached"), children=(NewChild(0, new("grandchild")),), waits=waits)])
    stranger = await hold(store, "stranger")
    await store.write([park(stranger, waits=(TokenWait(0, "t"),))])
    await store.write([to_token("t", b"1"), to_token("t", b"2"), to_token("u", b"3")])
    await store.write([to_run("awaited", dedup="d"), to_run("awaited"), to_run("awaited"), to_run("grandchild")])


async def failed(store: Store) -> None:
    await store.write([fail(await hold(store, "r", timeout=5), entries=(scheduled(0),))])


async def blocked(store: Store) -> None:
    await store.write([turn(await hold(store, "r"), Status.BLOCKED, error=b"1", fingerprint="old")])


async def crowd(store: Store) -> None:
    """Due runs of two namespaces, with messages."""
    await store.write([Create(run=new(f"{i}", namespace=("red", "blue")[i % 2])) for i in range(6)])
    await store.write([to_run("0"), to_run("3")])


async def holders(store: Store) -> None:
    await crowd(store)
    await store.claim(request())
    await store.write([to_run("1")])


async def audience(store: Store) -> None:
    """Waits for an event, an event that was read by nobody yet, two that are kept, one that is over, and a collecting run."""
    await store.write([publish("over", name="f", keep=-1, facets=having(x=1), remember=-1)])
    listener = await hold(store, "listener")
    await store.write([turn(listener, listens=(listen(0, x=1), listen(1), listen(2, x=2)))])
    await store.write([publish("unread", b"1", facets=having(x=2), feeds=())])
    waiting = await hold(store, "waiting")
    await store.write([park(waiting, listens=(listen(0, y=1),))])
    kept = [publish(f"kept {x}", b"2", name="f", facets=having(x=x)) for x in (1, 2)]
    await store.write([*kept, publish("fed", feeds=(feed("collecting"),))])


# ---------------------------------------------------------------- what is done


def writing(
    make: Callable[..., Sequence[Write]], *ids: str, refused: int = 0
) -> Callable[[SqliteStore], Awaitable[Deed]]:
    """Write the batch that `make` gives for the runs of these ids; so many of its writes cannot be stored."""

    async def begin(store: SqliteStore) -> Deed:
        batch = make(*[await find(store, run_id) for run_id in ids])

        async def act() -> None:
            answers = await store.write(batch)
            unapplied = [answer for answer in answers if not isinstance(answer, (Applied, Moved, Changed, Published))]
            assert len(unapplied) == refused, unapplied

        return act

    return begin


def create_begun() -> list[Write]:
    """Two runs with their first turns: one plain, one that does everything at once."""
    first = TurnCommit(
        run=RunKey("a", 0), owner="ada", epoch=1, n=0, entries=(scheduled(0),), status=Status.RUNNING, wake_at=LEASE
    )
    children = (NewChild(0, new("c", awaited_as="c", tags=("x",))),)
    rich = TurnCommit(
        run=RunKey("b", 0),
        owner="ada",
        epoch=1,
        n=0,
        entries=(scheduled(0), resolved(0)),
        status=Status.SUSPENDED,
        listening=True,
        children=children,
        waits=(TokenWait(1, "t"),),
        values=(("k", b"1"),),
    )
    large = new("a", input=b"1" * 3000, tags=("x", "y"))
    message = to_run("b", dedup="d").message
    return [Create(run=large, turn=first), Create(run=new("b"), turn=rich, messages=(message,))]


def plain_turns(awaited: Run, detached: Run) -> list[Write]:
    done = (resolved(0), scheduled(1))
    return [turn(awaited, entries=done, seen=3, consumed=(1, 3)), turn(detached, entries=done)]


def awaited_end(awaited: Run) -> list[Write]:
    """With a message unread, a parent to be told and woken, and the parent's own history untouched."""
    return [complete(awaited, entries=(resolved(0),))]


def tokens(detached: Run) -> list[Write]:
    """Gives a message back, which the stranger takes, and takes one that was kept."""
    return [turn(detached, entries=(scheduled(3),), unwaits=(2, 1), waits=(TokenWait(3, "u"),), consumed=(1,))]


def joins(detached: Run) -> list[Write]:
    """A join, a child whose id a stranger has, a cancel, and a message to the parent."""
    return [
        park(
            detached,
            entries=(scheduled(4),),
            joins=(Join(4, "grandchild"),),
            children=(NewChild(5, new("stranger", awaited_as="stranger")),),
            cancels=("grandchild",),
            sends=(to_run("parent").message,),
        )
    ]


def continued(awaited: Run) -> list[Write]:
    return [complete(awaited, entries=(resolved(0),), successor=new("awaited~1", input=b"2" * 2000, tags=("x",)))]


def dead_parent(parent: Run) -> list[Write]:
    return [Cancel(parent.id, b'"stop"')]


def spoiled(awaited: Run, detached: Run) -> list[Write]:
    """One that cannot be stored among good ones: done twice, the second time with savepoints."""
    return [
        turn(awaited, entries=(resolved(0),)),
        turn(detached, entries=(scheduled(0, "\ud800"),)),
        Create(run=new("late")),
        to_token("t", b"4"),
    ]


def published() -> list[Write]:
    """To several waits, to runs that begin and to one that collects, and one that is kept."""
    event = publish(
        "x", b"3", facets=having(x=1, y=1), starts=(new("s", tags=("x",)), new("t")), feeds=(feed("collecting"),)
    )
    return [event, publish("y", b"4", name="g", facets=having(x=1, y=1))]


def listens(listener: Run) -> list[Write]:
    """Gives up what was read by nobody, and takes what was kept."""
    return [turn(listener, unwaits=(0, 1, 2), listens=(listen(3, "f", x=2), listen(4, "f")))]


async def claiming(store: SqliteStore) -> Deed:
    return lambda: store.claim(request(limit=4))


async def releasing(store: SqliteStore) -> Deed:
    holdings = held(*[await find(store, f"{i}") for i in range(3)])
    return lambda: store.release("ada", holdings)


async def renewing(store: SqliteStore) -> Deed:
    holdings = held(*[await find(store, f"{i}") for i in range(6)])

    async def act() -> None:
        renewer = store.renewer()
        renewer.renew("ada", 2 * LEASE, holdings)
        renewer.close()

    return act


async def unblocking(store: SqliteStore) -> Deed:
    return lambda: store.unblock([Serves(WORKFLOW.workflow, WORKFLOW.version, "new")])


SCENARIOS: dict[str, Scenario] = {
    "create": Scenario(nothing, writing(create_begun)),
    "plain turns": Scenario(family, writing(plain_turns, "awaited", "detached")),
    "awaited end": Scenario(family, writing(awaited_end, "awaited")),
    "tokens": Scenario(family, writing(tokens, "detached")),
    "joins": Scenario(family, writing(joins, "detached")),
    "continue": Scenario(family, writing(continued, "awaited")),
    "cancel": Scenario(family, writing(dead_parent, "parent")),
    "delete": Scenario(family, writing(lambda: [Delete("parent", b'"gone"')])),
    "send": Scenario(family, writing(lambda: [to_run("parent", dedup="e"), to_token("t"), to_token("v", dedup="f")])),
    "publish": Scenario(audience, writing(published)),
    "listen": Scenario(audience, writing(listens, "listener")),
    "requeue": Scenario(failed, writing(lambda: [Requeue("r")])),
    "steer": Scenario(
        family,
        writing(lambda: [Steer("detached", Way.PAUSE), Steer("detached", Way.REDISPATCH), Steer("awaited", Way.PAUSE)]),
    ),
    "spoiled": Scenario(family, writing(spoiled, "awaited", "detached", refused=1)),
    "unblock": Scenario(blocked, unblocking),
    "claim": Scenario(crowd, claiming),
    "release": Scenario(holders, releasing),
    "renew": Scenario(holders, renewing),
}
