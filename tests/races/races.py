"""What can meet. Each race is a preparation and two deeds; both are stopped."""

from __future__ import annotations

from typing import Final

from perdure.model.commit import Cancel, Create, Delete, Join, NewChild, Requeue, TokenWait
from perdure.model.messages import MessageKind, Outgoing
from perdure.model.run import Status
from perdure.ports.fleet import Serves
from perdure.ports.store import Finding, Store
from perdure.testing.conformance.create import first
from perdure.testing.conformance.events import feed, having, listen, publish
from perdure.testing.conformance.kit import (
    Kit,
    complete,
    control,
    fail,
    new,
    park,
    resolved,
    scheduled,
    to_run,
    to_token,
    turn,
)
from tests.races.duel import Actors, Batch, Race, Verb, claiming, releasing, renewing
from tests.races.gateraces import GATE_RACES

STOP, GONE = b'"stop"', b'"gone"'

# ---------------------------------------------------------------- who is there


async def held(kit: Kit) -> Actors:
    """One run that ada holds."""
    return {"r": await kit.hold("r")}


async def parked(kit: Kit) -> Actors:
    """One run parked on messages."""
    await kit.apply(park(await kit.hold("r")))
    return {"r": await kit.run("r")}


async def lapsed(kit: Kit) -> Actors:
    """One run whose lease has ended."""
    run = await kit.hold("r")
    kit.clock.set((run.wake_at or 0) + 1)
    return {"r": run}


async def one_due(kit: Kit) -> Actors:
    run = await kit.create("r")
    kit.clock.advance(1)
    return {"r": run}


async def two_due(kit: Kit) -> Actors:
    return {"r": await kit.create("r"), "s": await kit.create("s")}


async def two_held(kit: Kit) -> Actors:
    return {"r": await kit.hold("r"), "s": await kit.hold("s")}


async def two_lapsed(kit: Kit) -> Actors:
    actors = await two_held(kit)
    kit.clock.set((actors["s"].wake_at or 0) + 1)
    return actors


async def nobody(kit: Kit) -> Actors:
    return {}


async def failed(kit: Kit) -> Actors:
    await kit.apply(fail(await kit.hold("r"), entries=(scheduled(0),)))
    return {"r": await kit.run("r")}


async def blocked(kit: Kit) -> Actors:
    await kit.apply(turn(await kit.hold("r"), Status.BLOCKED, error=b'"odd"', fingerprint="print-b"))
    return {"r": await kit.run("r")}


async def family(kit: Kit) -> Actors:
    """A parent that awaits a child; ada holds the one, bob the other."""
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c", awaited_as="c", depth=1)),)))
    return {"p": parent, "c": await kit.take("c", "bob")}


async def siblings(kit: Kit) -> Actors:
    """A parent that awaits two children; ada holds it, bob the children."""
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=tuple(NewChild(seq, new(f"c{seq}", awaited_as=f"c{seq}")) for seq in (0, 1))))
    return {"p": parent} | {each.run.id: each.run for each in await kit.claim("bob")}


async def three(kit: Kit) -> Actors:
    """Grandmother, mother (who awaits nobody yet), both held."""
    grand = await kit.hold("g")
    await kit.apply(turn(grand, children=(NewChild(0, new("p", awaited_as="p", depth=1)),)))
    return {"g": grand, "p": await kit.take("p", "bob")}


async def loose(kit: Kit) -> Actors:
    """A child that was started but is not awaited; both held."""
    parent = await kit.hold("p")
    await kit.apply(turn(parent, children=(NewChild(0, new("c", depth=1)),)))
    return {"p": parent, "c": await kit.take("c", "bob")}


async def failed_child(kit: Kit) -> Actors:
    actors = await loose(kit)
    await kit.apply(fail(actors["c"]))
    return actors | {"c": await kit.run("c")}


async def waiting(kit: Kit) -> Actors:
    """One run that waits at the token, parked."""
    await kit.apply(park(await kit.hold("r"), waits=(TokenWait(0, "t"),)))
    return {"r": await kit.run("r")}


async def served(kit: Kit) -> Actors:
    """Ada holds a run whose wait was served, unread; another one waits behind it."""
    run = await kit.hold("r")
    await kit.apply(turn(run, waits=(TokenWait(0, "t"),)), to_token("t", b"first"))
    await kit.apply(park(await kit.hold("s"), waits=(TokenWait(0, "t"),)))
    return {"r": run, "s": await kit.run("s")}


async def held_and_waiting(kit: Kit) -> Actors:
    """Ada holds one, another waits at the token."""
    actors = await waiting(kit)
    return actors | {"s": await kit.hold("s")}


async def letters(kit: Kit) -> Actors:
    """One message kept at the token, and two runs that ada and bob hold."""
    await kit.write(to_token("t", b"kept"))
    one = await kit.hold("r")
    return {"r": one, "s": await kit.hold("s", "bob")}


async def chained(kit: Kit) -> Actors:
    """A run that has continued once; ada holds the last link."""
    await kit.apply(complete(await kit.hold("r"), successor=new("r~1")))
    return {"r": await kit.run("r"), "last": await kit.take("r~1")}


async def listening(kit: Kit) -> Actors:
    """One run that waits for an event, parked; another one that ada holds."""
    await kit.apply(park(await kit.hold("r"), listens=(listen(0, x=1),)))
    return {"r": await kit.run("r"), "s": await kit.hold("s")}


async def two_listening(kit: Kit) -> Actors:
    """Two runs that wait for an event, the second parked."""
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=(listen(0, x=1),)))
    await kit.apply(park(await kit.hold("s"), listens=(listen(0),)))
    return {"r": await kit.run("r"), "s": await kit.run("s")}


async def reached(kit: Kit) -> Actors:
    """Ada holds a run that was given an event, unread; another one waits behind it."""
    run = await kit.hold("r")
    await kit.apply(turn(run, listens=(listen(0, x=1),)))
    await kit.write(publish("before", b"first", facets=having(x=1)))
    await kit.apply(park(await kit.hold("s"), listens=(listen(0),)))
    return {"r": await kit.run("r"), "s": await kit.run("s")}


async def unheard(kit: Kit) -> Actors:
    """One event kept, and two runs that ada and bob hold."""
    await kit.write(publish("before", b"kept", facets=having(x=1)))
    one = await kit.hold("r")
    return {"r": one, "s": await kit.hold("s", "bob")}


async def collecting(kit: Kit) -> Actors:
    """A run that collects events, which ada holds."""
    await kit.write(publish("before", feeds=(feed("r", b"0"),)))
    return {"r": await kit.take("r")}


async def collected(kit: Kit) -> Actors:
    """One that was cancelled."""
    await kit.write(publish("before", feeds=(feed("r", b"0"),)))
    await kit.write(Cancel("r", STOP))
    return {}


# ---------------------------------------------------------------- what they do

GOES_ON = Batch(lambda a: [turn(a["r"], entries=(scheduled(0), resolved(0)))])
PARKS = Batch(lambda a: [park(a["r"], entries=(scheduled(0),))])
ENDS = Batch(lambda a: [complete(a["r"], entries=(scheduled(0),))])
FAILS = Batch(lambda a: [fail(a["r"])])
DIES = Batch(lambda a: [turn(a["r"], Status.DEAD, error=b'"dead"')])
PUBLISHES = Batch(lambda a: [turn(a["r"], values=(("k", b"1"),))])
CONTINUES = Batch(lambda a: [complete(a["r"], successor=new("r~1"), entries=(scheduled(0),))])
WAITS = Batch(lambda a: [park(a["r"], waits=(TokenWait(0, "t"),))])
SENT = Batch(lambda a: [to_run("r", b"m")])
SENT_ONCE = Batch(lambda a: [to_run("r", b"m", dedup="d")])
CONTROLLED = Batch(lambda a: [control("r")])
CANCELLED = Batch(lambda a: [Cancel("r", STOP)])
DELETED = Batch(lambda a: [Delete("r", GONE)])
REQUEUED = Batch(lambda a: [Requeue("r")])
SIGNALLED = Batch(lambda a: [to_token("t", b"m")])
SIGNALLED_ONCE = Batch(lambda a: [to_token("t", b"m", dedup="d")])
LISTENS = Batch(lambda a: [park(a["r"], listens=(listen(0, x=1),))])
UNLISTENS = Batch(lambda a: [turn(a["r"], unwaits=(0,))])
PUBLISHED = Batch(lambda a: [publish("x", b"m", facets=having(x=1, y=2))])
PUBLISHED_TOO = Batch(lambda a: [publish("y", b"n", facets=having(x=1))])
PUBLISHED_BOTH = Batch(lambda a: [publish("x", b"m", name="f"), publish("y", b"n", facets=having(x=1))])
PUBLISHED_BOTH_TURNED = Batch(lambda a: [publish("v", b"n", facets=having(x=1)), publish("w", b"m", name="f")])
RENAMED = Batch(lambda a: [publish("x", b"o", name="f")])
STARTS = Batch(lambda a: [publish("x", b"m", starts=(new("q"), new("p")))])
STARTS_TOO = Batch(lambda a: [publish("y", b"m", starts=(new("p"), new("q")))])
FEEDS = Batch(lambda a: [publish("x", b"m", feeds=(feed("r", b"1"),))])
FEEDS_TOO = Batch(lambda a: [publish("y", b"n", feeds=(feed("r", b"2"),))])
CLAIMED = claiming("bob")
RENEWED = renewing("ada", "r")
RELEASED = releasing("ada", "r")
CREATED = Batch(lambda a: [Create(run=new("r", tags=("x",)))])

BEARS = Batch(lambda a: [turn(a["p"], children=(NewChild(1, new("c", awaited_as="c", depth=2)),))])
PARENT_PARKS = Batch(lambda a: [park(a["p"])])
PARENT_ENDS = Batch(lambda a: [complete(a["p"])])
PARENT_DIES = Batch(lambda a: [turn(a["p"], Status.DEAD, error=b'"dead"')])
PARENT_JOINS = Batch(lambda a: [park(a["p"], joins=(Join(5, "c"),))])
PARENT_JOINS_AGAIN = Batch(lambda a: [park(a["p"], joins=(Join(5, "c", True),))])
PARENT_CANCELS = Batch(lambda a: [turn(a["p"], cancels=("c",))])
CHILD_ENDS = Batch(lambda a: [complete(a["c"], b"7")])
CHILD_CONTINUES = Batch(lambda a: [complete(a["c"], successor=new("c~1", depth=1))])
CHILD_BEARS = Batch(lambda a: [turn(a["c"], children=(NewChild(0, new("gc", depth=2)),))])
BOTH_GO_ON = Batch(lambda a: [turn(a["r"], entries=(scheduled(0),)), turn(a["s"], entries=(scheduled(0),))])
BOTH_PARK = Batch(lambda a: [park(a["s"]), park(a["r"])])
BOTH_END = Batch(lambda a: [complete(a["r"]), complete(a["s"])])
CHILDREN_END = Batch(lambda a: [complete(a["c0"], b"0"), complete(a["c1"], b"1")])
FIRST_TURN = Batch(
    lambda a: [
        Create(
            run=new("r"),
            turn=first(Status.SUSPENDED, entries=(scheduled(0),), waits=(TokenWait(0, "t"),), listening=True),
            messages=(Outgoing(kind=MessageKind.SIGNAL, run_id="r", name="go", payload=b"with"),),
        )
    ]
)


async def _unblock(store: Store, actors: Actors) -> int:
    return await store.unblock([Serves("work", "1", "print-a")])


async def _audit(store: Store, actors: Actors) -> list[Finding]:
    return list(await store.audit())


async def _block(store: Store, actors: Actors) -> list[Finding]:
    return list(await store.block_unserved(0))


BLOCKED = Verb(_block, skips=True)
UNBLOCKED = Verb(_unblock)
AUDITED = Verb(_audit)


#: By name: the one, against, the other.
RACES: Final[dict[str, Race]] = {
    "turn-send": Race(held, GOES_ON, SENT),
    "park-send": Race(held, PARKS, SENT),
    "end-send": Race(held, ENDS, SENT),
    "end-control": Race(held, ENDS, CONTROLLED),
    "parked-send-send": Race(parked, SENT_ONCE, SENT_ONCE),
    "parked-send-claim": Race(parked, SENT, CLAIMED),
    "turn-cancel": Race(held, GOES_ON, CANCELLED),
    "park-cancel": Race(held, PARKS, CANCELLED),
    "end-cancel": Race(held, ENDS, CANCELLED),
    "fail-cancel": Race(held, FAILS, CANCELLED),
    "values-cancel": Race(held, PUBLISHES, CANCELLED),
    "turn-claim": Race(lapsed, GOES_ON, CLAIMED),
    "park-claim": Race(lapsed, PARKS, CLAIMED),
    "end-claim": Race(lapsed, ENDS, CLAIMED),
    "wait-claim": Race(lapsed, WAITS, CLAIMED),
    "turn-renew": Race(held, GOES_ON, RENEWED),
    "park-renew": Race(held, PARKS, RENEWED),
    "claim-renew": Race(lapsed, CLAIMED, RENEWED),
    "cancel-renew": Race(held, CANCELLED, RENEWED),
    "turn-release": Race(held, GOES_ON, RELEASED),
    "end-release": Race(held, ENDS, RELEASED),
    "claim-release": Race(lapsed, CLAIMED, RELEASED),
    "turn-delete": Race(held, GOES_ON, DELETED),
    "end-delete": Race(held, ENDS, DELETED),
    "wait-delete": Race(held, WAITS, DELETED),
    "send-delete": Race(parked, SENT, DELETED),
    "claim-delete": Race(lapsed, CLAIMED, DELETED),
    "renew-delete": Race(held, RENEWED, DELETED),
    "cancel-delete": Race(waiting, CANCELLED, DELETED),
    "delete-delete": Race(family, *(Batch(lambda a: [Delete("p", GONE)]),) * 2),
    "create-delete": Race(held, CREATED, DELETED),
    "continue-send": Race(held, CONTINUES, SENT),
    "continue-control": Race(held, CONTINUES, CONTROLLED),
    "continue-cancel": Race(held, CONTINUES, CANCELLED),
    "continue-delete": Race(held, CONTINUES, DELETED),
    "continue-signal": Race(served, CONTINUES, SIGNALLED),
    "continue-create": Race(held, CONTINUES, Batch(lambda a: [Create(run=new("r~1"))]), anew=True),
    "continue-requeue": Race(held, CONTINUES, REQUEUED),
    "continued-send-cancel": Race(chained, SENT, CANCELLED),
    "continued-end-send": Race(chained, Batch(lambda a: [complete(a["last"])]), SENT),
    "continued-again-cancel": Race(chained, Batch(lambda a: [complete(a["last"], successor=new("r~2"))]), CANCELLED),
    "child-ends-parent-parks": Race(family, CHILD_ENDS, PARENT_PARKS),
    "child-ends-parent-ends": Race(family, CHILD_ENDS, PARENT_ENDS),
    "child-ends-parent-cancelled": Race(family, CHILD_ENDS, Batch(lambda a: [Cancel("p", STOP)])),
    "child-ends-parent-deleted": Race(family, CHILD_ENDS, Batch(lambda a: [Delete("p", GONE)])),
    "child-ends-parent-joins": Race(loose, CHILD_ENDS, PARENT_JOINS),
    "child-ends-parent-cancels": Race(family, CHILD_ENDS, PARENT_CANCELS),
    "child-continues-parent-joins": Race(loose, CHILD_CONTINUES, PARENT_JOINS),
    "child-continues-parent-cancels": Race(family, CHILD_CONTINUES, PARENT_CANCELS),
    "child-continues-parent-dies": Race(family, CHILD_CONTINUES, PARENT_DIES),
    "one-batch-send": Race(
        family, Batch(lambda a: [complete(a["c"], b"7"), park(a["p"])]), Batch(lambda a: [to_run("p", b"m")])
    ),
    "one-batch-turned-cancel": Race(
        family, Batch(lambda a: [park(a["p"]), complete(a["c"], b"7")]), Batch(lambda a: [Cancel("p", STOP)])
    ),
    # Plain turns and new runs in one batch go a way of their own.
    "both-go-on-send": Race(two_held, BOTH_GO_ON, SENT),
    "both-go-on-both-go-on": Race(two_held, BOTH_GO_ON, BOTH_PARK),
    "both-park-send": Race(two_held, BOTH_PARK, SENT),
    "both-end-cancel": Race(two_held, BOTH_END, CANCELLED),
    "both-end-delete": Race(two_held, BOTH_END, DELETED),
    "both-end-claim": Race(two_lapsed, BOTH_END, CLAIMED),
    "both-park-renew": Race(two_held, BOTH_PARK, RENEWED),
    "children-end-parent-parks": Race(siblings, CHILDREN_END, PARENT_PARKS),
    "children-end-parent-ends": Race(siblings, CHILDREN_END, PARENT_ENDS),
    "children-end-parent-cancelled": Race(siblings, CHILDREN_END, Batch(lambda a: [Cancel("p", STOP)])),
    "children-end-one-cancelled": Race(siblings, CHILDREN_END, Batch(lambda a: [Cancel("c1", STOP)])),
    "create-two-create-two": Race(
        nobody,
        Batch(lambda a: [Create(run=new("r")), Create(run=new("s"))]),
        Batch(lambda a: [Create(run=new("s")), Create(run=new("r"))]),
        anew=True,
    ),
    "requeue-parent-joins": Race(failed_child, Batch(lambda a: [Requeue("c")]), PARENT_JOINS),
    "requeue-parent-joins-again": Race(failed_child, Batch(lambda a: [Requeue("c")]), PARENT_JOINS_AGAIN),
    "birth-cancel": Race(three, BEARS, Batch(lambda a: [Cancel("p", STOP)])),
    "birth-cascade": Race(three, BEARS, Batch(lambda a: [Cancel("g", STOP)])),
    "birth-death-above": Race(three, BEARS, Batch(lambda a: [turn(a["g"], Status.DEAD, error=b'"dead"')])),
    "birth-cancelled-by-turn": Race(three, BEARS, Batch(lambda a: [turn(a["g"], cancels=("p",))])),
    "birth-delete": Race(three, BEARS, Batch(lambda a: [Delete("g", GONE)])),
    "birth-parent-dies": Race(family, CHILD_BEARS, PARENT_DIES),
    "birth-create": Race(three, BEARS, Batch(lambda a: [Create(run=new("c"))]), anew=True),
    "birth-birth": Race(
        three,
        BEARS,
        Batch(lambda a: [turn(a["g"], children=(NewChild(1, new("c", awaited_as="c", depth=2)),))]),
    ),
    "claim-claim": Race(two_due, CLAIMED, claiming("eve")),
    "claim-one-claim-one": Race(two_due, claiming("bob", limit=1), claiming("eve", limit=1)),
    "claim-cancel": Race(two_due, CLAIMED, CANCELLED),
    "create-create": Race(nobody, CREATED, CREATED, anew=True),
    "create-first-turn": Race(nobody, FIRST_TURN, CREATED, anew=True),
    "first-turn-first-turn": Race(nobody, FIRST_TURN, FIRST_TURN),
    "first-turn-signal": Race(nobody, FIRST_TURN, SIGNALLED),
    "first-turn-send": Race(nobody, FIRST_TURN, SENT),
    "first-turn-claim": Race(nobody, FIRST_TURN, CLAIMED),
    "signal-wait": Race(held, SIGNALLED, WAITS),
    "signal-signal": Race(waiting, SIGNALLED, SIGNALLED),
    "signal-signal-once": Race(waiting, SIGNALLED_ONCE, SIGNALLED_ONCE),
    "signal-unwait": Race(served, Batch(lambda a: [turn(a["r"], unwaits=(0,))]), SIGNALLED),
    "signal-end": Race(served, ENDS, SIGNALLED),
    "signal-cancel": Race(waiting, SIGNALLED, CANCELLED),
    "signal-delete": Race(waiting, SIGNALLED, DELETED),
    "give-back-cancel": Race(served, ENDS, Batch(lambda a: [Cancel("s", STOP)])),
    "wait-wait": Race(letters, WAITS, Batch(lambda a: [park(a["s"], waits=(TokenWait(0, "t"),))])),
    "turn-sends-cancel": Race(
        held_and_waiting,
        Batch(lambda a: [turn(a["s"], sends=(to_token("t", b"m").message, to_run("r", b"n").message))]),
        CANCELLED,
    ),
    "crosswise": Race(
        held_and_waiting,
        Batch(lambda a: [complete(a["s"]), to_run("r"), to_token("u")]),
        Batch(lambda a: [to_token("u"), to_run("r"), Cancel("s", STOP)]),
    ),
    "publish-listen": Race(held, PUBLISHED, LISTENS),
    "publish-publish": Race(two_listening, PUBLISHED, PUBLISHED_TOO),
    "publish-publish-once": Race(two_listening, PUBLISHED, PUBLISHED),
    "publish-publish-nobody": Race(nobody, PUBLISHED, PUBLISHED_TOO),
    "publish-publish-crosswise": Race(listening, PUBLISHED_BOTH, PUBLISHED_BOTH_TURNED),
    "publish-publish-renamed": Race(nobody, PUBLISHED, RENAMED, anew=True),
    "publish-turn": Race(two_listening, PUBLISHED, GOES_ON),
    "publish-park": Race(two_listening, PUBLISHED, PARKS),
    "publish-unlisten": Race(two_listening, PUBLISHED, UNLISTENS),
    "publish-end": Race(two_listening, PUBLISHED, ENDS),
    "publish-continue": Race(two_listening, PUBLISHED, CONTINUES),
    "publish-cancel": Race(listening, PUBLISHED, CANCELLED),
    "publish-delete": Race(two_listening, PUBLISHED, DELETED),
    "publish-claim": Race(listening, PUBLISHED, CLAIMED),
    "publish-audit": Race(listening, PUBLISHED, AUDITED),
    "listen-listen": Race(unheard, LISTENS, Batch(lambda a: [park(a["s"], listens=(listen(0),))])),
    "listen-cancel": Race(unheard, LISTENS, CANCELLED),
    "offer-publish": Race(reached, UNLISTENS, PUBLISHED),
    "offer-cancel": Race(reached, ENDS, Batch(lambda a: [Cancel("s", STOP)])),
    "offer-listen": Race(
        reached, Batch(lambda a: [Cancel("r", STOP), Cancel("s", STOP)]), Batch(lambda a: [publish("x", b"m")])
    ),
    "starts-starts": Race(nobody, STARTS, STARTS_TOO, anew=True),
    "starts-create": Race(nobody, STARTS, Batch(lambda a: [Create(run=new("p"))]), anew=True),
    "feed-feed": Race(nobody, FEEDS, FEEDS_TOO),
    "feed-park": Race(collecting, FEEDS, Batch(lambda a: [park(a["r"], seen=1, consumed=(1,))])),
    "feed-end": Race(collecting, FEEDS, Batch(lambda a: [complete(a["r"], seen=1, consumed=(1,))])),
    "feed-continue": Race(collecting, FEEDS, CONTINUES),
    "feed-cancel": Race(collecting, FEEDS, CANCELLED),
    "feed-delete": Race(collecting, FEEDS, DELETED, anew=True),
    "feed-feed-again": Race(collected, FEEDS, FEEDS_TOO),
    "requeue-cancel": Race(failed, REQUEUED, CANCELLED),
    "requeue-send": Race(failed, REQUEUED, SENT),
    "requeue-delete": Race(failed, REQUEUED, DELETED),
    "requeue-requeue": Race(failed, REQUEUED, REQUEUED),
    "requeue-blocked-cancel": Race(blocked, REQUEUED, CANCELLED),
    "unblock-cancel": Race(blocked, UNBLOCKED, CANCELLED),
    "unblock-requeue": Race(blocked, UNBLOCKED, REQUEUED),
    "unblock-claim": Race(blocked, UNBLOCKED, CLAIMED),
    "block-claim": Race(one_due, BLOCKED, CLAIMED),
    "block-cancel": Race(one_due, BLOCKED, CANCELLED),
    "block-delete": Race(one_due, BLOCKED, DELETED),
    "block-send": Race(one_due, BLOCKED, SENT),
    "block-turn": Race(lapsed, BLOCKED, GOES_ON),
    "block-end": Race(lapsed, BLOCKED, ENDS),
    "block-renew": Race(lapsed, BLOCKED, RENEWED),
    "block-block": Race(one_due, BLOCKED, BLOCKED),
    "audit-park": Race(held, AUDITED, PARKS),
    "audit-send": Race(parked, AUDITED, SENT),
    "die-send": Race(held, DIES, SENT),
    **GATE_RACES,
}
