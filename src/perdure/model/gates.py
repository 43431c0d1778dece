"""Gates: how many runs or steps may go on at once, and how many in a time. Values and pure rules; stores keep the rows.

A gate has a name and perhaps a key. Who wants through *asks* and gets a *ticket*, which is held (a slot) or waits in line. What
is held is released by whoever asked, at its end; then the next in line is admitted.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

#: The position by which a whole run asks. (Steps ask by their own.)
WHOLE_RUN: Final = -1
#: So many tickets at most are admitted at one go; the rest follow with the next claim.
MOST_ADMITTED: Final = 200
#: So many services back a gate remembers whom it has served, for fairness.
FAIR_MEMORY: Final = 1_000


class Rules(Struct, frozen=True, kw_only=True):
    """What a gate lets through."""

    #: So many hold it at once; None: any number.
    limit: int | None = None
    #: So many are admitted within a window (microseconds) from the first one on; None: any number.
    rate: int | None = None
    window: int = 0
    #: True: among equals, who came last goes first.
    lifo: bool = False
    #: True: among those of the same priority, the fairness key that was served longest ago goes first.
    fair: bool = False
    #: New runs are refused while so many wait; None: any number may.
    depth: int | None = None
    #: False: forgotten when nobody holds it or waits, and no window is open.
    lasting: bool = True
    #: When this was declared: the newest declaration counts.
    stamp: int = 0


class GateKey(Struct, frozen=True, gc=False):
    """Names a gate."""

    namespace: str
    name: str
    key: str = ""


class Ask(Struct, frozen=True, kw_only=True):
    """Operation `seq` of a run (or `WHOLE_RUN`) wants through a gate of the run's namespace."""

    seq: int
    name: str
    key: str = ""
    rules: Rules = Rules()
    #: Greater first.
    priority: int = 0
    fairness: str = ""


encode_ask = msgspec.json.Encoder().encode
decode_ask = msgspec.json.Decoder(Ask).decode


def has_slot(rules: Rules, held: int) -> bool:
    """Whether one more may hold a gate."""
    return rules.limit is None or held < rules.limit


def window_over(rules: Rules, opened: int, now: int) -> bool:
    """Whether a window that was opened then is over; of a gate without a rate it always is."""
    return rules.rate is None or now >= opened + rules.window


def in_rate(rules: Rules, opened: int, used: int, now: int) -> bool:
    """Whether the rate lets one more through."""
    return rules.rate is None or used < rules.rate or window_over(rules, opened, now)


def look_again(rules: Rules, held: int, waiting: int, opened: int, used: int, now: int) -> int | None:
    """When somebody must look at a gate next though nobody releases it; None: not before somebody asks or releases."""
    if waiting and has_slot(rules, held):
        return now if in_rate(rules, opened, used, now) else opened + rules.window
    if not rules.lasting and not held and not waiting and not window_over(rules, opened, now):
        return opened + rules.window  # to be forgotten
    return None


def forgettable(rules: Rules, held: int, waiting: int, opened: int, now: int) -> bool:
    """Whether nothing would be lost with a gate's row."""
    return not rules.lasting and not held and not waiting and window_over(rules, opened, now)
