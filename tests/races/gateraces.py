"""What can meet at a gate: asking, giving back, giving up, and whoever it is granted to."""

from __future__ import annotations

from typing import Any, Final

from perdure.model.commit import Cancel, Configure, Create, Delete, NewChild
from perdure.model.gates import WHOLE_RUN, Ask, Rules
from perdure.testing.conformance.kit import SECOND, Kit, complete, new, park, scheduled, to_run, turn
from tests.races.duel import Actors, Batch, Race, claiming

STOP, GONE = b'"stop"', b'"gone"'
ONE = Rules(limit=1)


def ask(seq: int = 0, rules: Rules = ONE, **fields: Any) -> Ask:
    usual: dict[str, Any] = {"seq": seq, "name": "g", "rules": rules, "fairness": "f"}
    return Ask(**usual | fields)


WHOLE = ask(WHOLE_RUN)

# ---------------------------------------------------------------- who is there


async def free(kit: Kit) -> Actors:
    """Two held runs; nobody has asked yet."""
    return {"r": await kit.hold("r"), "u": await kit.hold("u")}


async def line(kit: Kit) -> Actors:
    """`r` holds the slot; `s` and `t` are parked in line; `u` has not asked. Ada holds `r` and `u`."""
    runs = {"r": await kit.hold("r")}
    await kit.apply(turn(runs["r"], asks=(ask(),)))
    for name in "st":
        await kit.apply(park(await kit.hold(name), asks=(ask(),)))
        runs[name] = await kit.run(name)
    runs["u"] = await kit.hold("u")
    return runs


async def crossed(kit: Kit) -> Actors:
    """The oldest run waits, and the youngest holds: who is woken was born before."""
    runs = {name: await kit.hold(name) for name in "sr"}
    await kit.apply(turn(runs["r"], asks=(ask(),)))
    await kit.apply(turn(runs["s"], asks=(ask(),)))
    return runs


async def two_gates(kit: Kit) -> Actors:
    """`r` holds one gate and waits at another, which `s` holds, who waits at the first."""
    runs = {name: await kit.hold(name) for name in "rs"}
    await kit.apply(turn(runs["r"], asks=(ask(),)), turn(runs["s"], asks=(ask(name="h"),)))
    await kit.apply(turn(runs["r"], asks=(ask(1, name="h"),)), turn(runs["s"], asks=(ask(1),)))
    return runs


async def single(kit: Kit) -> Actors:
    """A whole run holds the slot, another waits in line."""
    held = await kit.hold("r", gate=WHOLE)
    return {"r": held, "s": await kit.create("s", gate=WHOLE)}


async def window(kit: Kit) -> Actors:
    """`s` waits at a gate whose window is over, and nobody has looked; `r` was let in."""
    rules = Rules(rate=1, window=SECOND)
    held = await kit.hold("r")
    await kit.apply(turn(held, asks=(ask(rules=rules),)))
    await kit.apply(park(await kit.hold("s"), asks=(ask(rules=rules),)))
    kit.clock.advance(1)
    return {"r": held, "s": await kit.run("s")}


async def family(kit: Kit) -> Actors:
    """A child of `r` holds the slot, its sibling waits, and so does a stranger. Bob holds the first child."""
    parent = await kit.hold("r")
    await kit.apply(turn(parent, children=tuple(NewChild(seq, new(f"c{seq}", gate=WHOLE)) for seq in (0, 1))))
    child = await kit.take("c0", "bob")
    return {"r": parent, "c": child, "s": await kit.create("s", gate=WHOLE)}


# ---------------------------------------------------------------- what they do

RELEASES = Batch(lambda a: [turn(a["r"], releases=(0,), seen=1)])
ENDS = Batch(lambda a: [complete(a["r"], seen=a["r"].inbox, entries=(scheduled(0),))])
ASKS = Batch(lambda a: [park(a["r"], asks=(ask(),))])
OTHER_ASKS = Batch(lambda a: [park(a["u"], asks=(ask(priority=1),))])
CANCELLED = Batch(lambda a: [Cancel("r", STOP)])
DELETED = Batch(lambda a: [Delete("r", GONE)])
NEXT_CANCELLED = Batch(lambda a: [Cancel("s", STOP)])
NEXT_DELETED = Batch(lambda a: [Delete("s", GONE)])
NEXT_SENT = Batch(lambda a: [to_run("s")])
GIVES_UP = Batch(lambda a: [park(a["s"], releases=(0,))])
CREATED = Batch(lambda a: [Create(run=new("n", gate=WHOLE))])
OTHER_CREATED = Batch(lambda a: [Create(run=new("o", gate=ask(WHOLE_RUN, Rules(limit=1, depth=1))))])
WIDER = Batch(lambda a: [Configure("g", Rules(limit=2, fair=True, lifo=True, stamp=1))])
CONTINUES = Batch(lambda a: [complete(a["r"], seen=1, successor=new("r~1"))])
CLAIMED = claiming("bob")

GATE_RACES: Final[dict[str, Race]] = {
    "gate-ask-ask": Race(free, ASKS, OTHER_ASKS),
    "gate-release-ask": Race(line, RELEASES, OTHER_ASKS),
    "gate-end-ask": Race(line, ENDS, OTHER_ASKS),
    "gate-release-next-cancelled": Race(line, RELEASES, NEXT_CANCELLED),
    "gate-release-next-deleted": Race(line, RELEASES, NEXT_DELETED),
    "gate-release-next-sent": Race(line, RELEASES, NEXT_SENT),
    "gate-end-next-cancelled": Race(line, ENDS, NEXT_CANCELLED),
    "gate-cancel-ask": Race(line, CANCELLED, OTHER_ASKS),
    "gate-cancel-release": Race(line, CANCELLED, RELEASES),
    "gate-delete-ask": Race(line, DELETED, OTHER_ASKS),
    "gate-delete-next-cancelled": Race(line, DELETED, NEXT_CANCELLED),
    "gate-grant-gives-up": Race(crossed, RELEASES, GIVES_UP),
    "gate-end-gives-up": Race(crossed, ENDS, GIVES_UP),
    "gate-grant-cancelled": Race(crossed, RELEASES, NEXT_CANCELLED),
    "gate-crosswise": Race(two_gates, RELEASES, Batch(lambda a: [turn(a["s"], releases=(0,), seen=1)])),
    "gate-crosswise-ends": Race(two_gates, ENDS, Batch(lambda a: [complete(a["s"], seen=1)])),
    "gate-create-create": Race(free, CREATED, OTHER_CREATED),
    "gate-single-end-create": Race(single, ENDS, OTHER_CREATED),
    "gate-single-end-next-cancelled": Race(single, ENDS, NEXT_CANCELLED),
    "gate-single-cancel-create": Race(single, CANCELLED, CREATED),
    "gate-single-continues-create": Race(single, CONTINUES, CREATED),
    "gate-single-continues-cancel": Race(single, CONTINUES, CANCELLED),
    "gate-wider-release": Race(line, WIDER, RELEASES),
    "gate-wider-ask": Race(line, WIDER, OTHER_ASKS),
    "gate-wider-next-cancelled": Race(line, WIDER, NEXT_CANCELLED),
    "gate-window-claim": Race(window, CLAIMED, claiming("eve")),
    "gate-window-release": Race(window, CLAIMED, RELEASES),
    "gate-window-next-cancelled": Race(window, CLAIMED, NEXT_CANCELLED),
    "gate-window-next-sent": Race(window, CLAIMED, NEXT_SENT),
    "gate-family-cancel-create": Race(family, CANCELLED, CREATED),
    "gate-family-cancel-child-ends": Race(family, CANCELLED, Batch(lambda a: [complete(a["c"], seen=1)])),
    "gate-family-cancel-next-cancelled": Race(family, CANCELLED, NEXT_CANCELLED),
}
