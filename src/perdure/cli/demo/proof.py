"""What the demo proves, from the side log and the store as they were at the kill and are at the end. Pure.

Delivery is at least once: a step whose result was not on disk when its process was killed runs again. So:

* every file was analysed to its end, by one step, and the results that the report is made of have it exactly once;
* no step whose result was on disk before the kill began again after it;
* every step that was in flight at the kill (in the side log it had begun and not ended) began again and ended;
* no attempt's number was used twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from perdure.cli.demo.sidelog import Mark, ended, in_flight

#: How many offenders a complaint names.
_NAMED = 3


class Evidence(Struct, frozen=True, kw_only=True):
    """What was seen."""

    #: The files that there are, found by the demo itself.
    files: Sequence[str]
    #: The side log at the kill, and at the end (which begins with the former).
    before: Sequence[Mark]
    marks: Sequence[Mark]
    #: Keys of the steps whose result was in the store after the kill, before the next worker began.
    durable: frozenset[str]
    #: The files among the results in the store at the end, as often as they are there.
    counted: Sequence[str]


class Proof(Struct, frozen=True, kw_only=True):
    """What follows from it. Nothing in `complaints`: it is proven."""

    files: int
    #: Steps whose result was on disk at the kill, and that did not run again.
    kept: int
    #: Steps cut off in flight, which ran again.
    cut: int
    #: Steps that had ended, but whose result was not on disk yet, so that they ran again too.
    unrecorded: int
    #: Steps that began more than once for other reasons: a lease that ran out on a machine that was too busy.
    others: int
    complaints: tuple[str, ...]


def prove(evidence: Evidence) -> Proof:
    """Weigh the evidence."""
    before, marks = list(evidence.before), list(evidence.marks)
    after = marks[len(before) :]
    cut = in_flight(before)
    unrecorded = ended(before) - evidence.durable
    begun = Counter(mark.key for mark in marks if mark.at == "begin")
    again = {key for key, times in begun.items() if times > 1}
    complaints = [
        *_about_files(evidence.files, marks, evidence.counted),
        *_complaint("ran again though its result was on disk", evidence.durable & _begun(after)),
        *_complaint("was cut off and never ran again to its end", cut - (_begun(after) & ended(after))),
        *_complaint("used the number of an attempt twice", _reused(marks)),
    ]
    if not cut:
        complaints.append("no step was cut off in flight: the kill proved nothing")
    return Proof(
        files=len(evidence.files),
        kept=len(evidence.durable - again),
        cut=len(cut),
        unrecorded=len(unrecorded & again),
        others=len(again - cut - unrecorded),
        complaints=tuple(complaints),
    )


def _about_files(files: Sequence[str], marks: Sequence[Mark], counted: Sequence[str]) -> list[str]:
    expected, counts = set(files), Counter(counted)
    done = {mark.file for mark in marks if mark.at == "end"}
    steps: dict[str, set[str]] = {}
    for mark in marks:
        steps.setdefault(mark.file, set()).add(mark.key)
    return [
        *_complaint("was never analysed to its end", expected - done),
        *_complaint("was analysed by more than one step", {file for file, keys in steps.items() if len(keys) > 1}),
        *_complaint("is not in the report exactly once", {file for file in expected if counts[file] != 1}),
        *_complaint("is in the report but not among the files", counts.keys() - expected),
    ]


def _begun(marks: Iterable[Mark]) -> set[str]:
    return {mark.key for mark in marks if mark.at == "begin"}


def _reused(marks: Iterable[Mark]) -> set[str]:
    times = Counter((mark.key, mark.attempt) for mark in marks if mark.at == "begin")
    return {key for (key, _), count in times.items() if count > 1}


def _complaint(what: str, offenders: Iterable[str]) -> list[str]:
    found = sorted(offenders)
    if not found:
        return []
    names = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    return [f"{what}: {names}"]
