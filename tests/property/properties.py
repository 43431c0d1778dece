"""What holds for every program: each property takes a recording and raises `Broken` where it does not hold."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any

import msgspec

from perdure.core.instance import Instance
from perdure.core.settle import settle
from perdure.core.turn import Arrival, Blocked, Outcome, Turn
from perdure.model.commit import TurnCommit
from perdure.model.errors import NonDeterminismError
from perdure.model.history import Entry, Event
from perdure.model.messages import Message, MessageKind
from perdure.model.run import NewRun, Status
from tests.property.grammar import Node, generate
from tests.property.programs import Program
from tests.property.world import STANDING, START, Round, World, is_over, play
from tests.unit.core.driving import Facts, facts

#: A program that is still not over by then is left there.
ROUNDS = 60


class Broken(AssertionError):
    """A property does not hold."""


@dataclass(frozen=True)
class Shown:
    """A turn, in what must be the same whenever it is made."""

    entries: tuple[Entry, ...]
    issued: tuple[int, ...]
    abandoned: tuple[int, ...]
    resolved: tuple[int, ...]
    consumed: tuple[int, ...]
    commit: TurnCommit
    outcome: Any


@dataclass
class Boundary:
    """A commit: what was durable after it, and where the run stood."""

    entries: int
    #: What the body had seen: so many items of this list.
    seen: int
    sight: list[Any]
    #: The number of the last message taken in, and the unconsumed ones up to there.
    last_message: int
    unread: tuple[Message, ...]
    facts: Facts
    #: The turn that was committed; None where a requeue was.
    shown: Shown | None
    #: What the next turn was given; None at an end.
    next: Round | None = None


@dataclass
class Recording:
    """One program, lived through: perhaps to an end, requeued, and on."""

    tree: Node
    run: NewRun
    seed: int
    world: World
    boundaries: list[Boundary] = field(default_factory=list)

    @property
    def history(self) -> list[Entry]:
        return self.world.history

    @property
    def outcome(self) -> Any:
        last = self.boundaries[-1].shown
        return None if last is None else last.outcome

    def instance(self, chaos: int | None = None) -> tuple[Instance, Program]:
        program = Program(self.tree, None if chaos is None else Random(chaos))
        return Instance(self.run, program), program

    def replayed(self, boundary: Boundary, chaos: int | None = None) -> tuple[Instance, Program]:
        """Another instance, brought to a boundary by replay."""
        instance, program = self.instance(chaos)
        history = self.history[: boundary.entries]
        turn = instance.replay(history, START, seen=boundary.last_message, unread=boundary.unread)
        if isinstance(turn.outcome, Blocked) and isinstance(turn.outcome.error, NonDeterminismError):
            raise Broken(f"replay to {boundary.entries}: {turn.outcome.error}")
        return instance, program


def shown(turn: Turn, commit: TurnCommit) -> Shown:
    return Shown(
        tuple(turn.entries),
        tuple(operation.seq for operation in turn.issued),
        tuple(operation.seq for operation in turn.abandoned),
        tuple(operation.seq for operation in turn.resolved),
        tuple(turn.consumed),
        commit,
        _outcome(turn.outcome),
    )


def _outcome(outcome: Outcome | None) -> Any:
    return repr(outcome.error) if isinstance(outcome, Blocked) else outcome


def same(what: str, one: object, other: object) -> None:
    if one != other:
        raise Broken(f"{what}:\n" + "\n".join(_difference("it", one, other)))


def _difference(path: str, one: object, other: object) -> Iterator[str]:
    """Where two things differ, down to the smallest part."""
    if one == other:
        return
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _difference(f"{path}[{index}]", a, b)
    elif type(one) is type(other) and isinstance(one, Shown | Facts | msgspec.Struct):
        names = one.__struct_fields__ if isinstance(one, msgspec.Struct) else tuple(vars(one))
        for name in names:
            yield from _difference(f"{path}.{name}", getattr(one, name), getattr(other, name))
    else:
        yield f"  {path}: {one!r}\n  {' ' * len(path)}  {other!r}"


# ---------------------------------------------------------------- living through


def record(seed: int) -> Recording:
    """Make the program of this seed and live through it."""
    return live(tree_of(seed), seed)


def tree_of(seed: int) -> Node:
    """The program of this seed."""
    rng = Random(seed)
    return generate(rng, rng.choice((4, 8, 12, 20)))


def live(tree: Node, seed: int) -> Recording:
    """Run a program in the world of this seed, on one instance to its end."""
    run = NewRun(id="p", workflow="program", version="1", input=b"null", seed=Random(seed + 2).getrandbits(62))
    world = World(Random(seed + 1))
    recording = Recording(tree, run, seed, world)
    instance, program = recording.instance(chaos=seed)
    turn = instance.begin(world.now)
    commit = settle(STANDING, instance, turn)
    for _ in range(ROUNDS):
        world.apply(commit)
        boundary = _note(recording, instance, program, shown(turn, commit))
        if commit.status is Status.FAILED and world.rng.random() < 0.3:
            instance.close()
            world.requeue()
            boundary = _note(recording, instance, program, None)
            instance, program = recording.replayed(boundary, chaos=seed)
            boundary.facts, boundary.sight, boundary.seen = facts(instance), program.seen, len(program.seen)
        elif is_over(commit):
            break
        boundary.next = world.next(instance)
        if boundary.next is None:
            break
        turn, commit = play(instance, boundary.next)
    instance.close()
    return recording


def _note(recording: Recording, instance: Instance, program: Program, turn: Shown | None) -> Boundary:
    world, seen = recording.world, instance.inbox.seen
    unread = tuple(message for message in world.unread.values() if message.number <= seen)
    boundary = Boundary(len(world.history), len(program.seen), program.seen, seen, unread, facts(instance), turn)
    recording.boundaries.append(boundary)
    return boundary


# ---------------------------------------------------------------- the properties


def check_replay(recording: Recording) -> None:
    """Any prefix that ends at a commit replays to the same operations, and goes on with the same commands."""
    for index, (boundary, following) in enumerate(pairwise(recording.boundaries)):
        if boundary.next is None:
            continue
        where = f"after commit {index}"
        instance, program = recording.replayed(boundary, chaos=index)
        same(f"what is open {where}", boundary.facts, facts(instance))
        same(f"what was seen {where}", boundary.sight[: boundary.seen], program.seen)
        turn, commit = play(instance, boundary.next)
        same(f"the turn {where}", following.shown, _without_repeats(recording, index, shown(turn, commit)))
        same(f"what was seen in the turn {where}", following.sight[: following.seen], program.seen)
        instance.close()
    last = recording.boundaries[-1]
    if last.shown is None or isinstance(last.shown.outcome, str):
        return  # blocked: its last turn is not in the history
    instance, program = recording.replayed(last)
    same("what was seen in the end", last.sight[: last.seen], program.seen)
    same("the outcome", last.shown.outcome, instance.advance((), instance.now).outcome)
    instance.close()


def _without_repeats(recording: Recording, index: int, turn: Shown) -> Shown:
    """The turn after commit `index`, but for what each instance says again until a requeue is not the last entry."""
    boundary = recording.boundaries[index]
    if index < 0 or boundary.shown is None or recording.history[boundary.entries - 1].event is not Event.REQUEUED:
        return turn
    commit, closed = turn.commit, (*turn.resolved, *turn.abandoned)
    bare = msgspec.structs.replace(
        commit,
        joins=tuple(join for join in commit.joins if not join.again),
        children=tuple(child for child in commit.children if not child.again),
        waits=tuple(wait for wait in commit.waits if wait.seq in turn.issued),
        unwaits=tuple(seq for seq in commit.unwaits if seq in closed),
        asks=tuple(asked for asked in commit.asks if asked.seq in turn.issued),
    )
    return replace(turn, commit=bare)


def check_rebuilt(recording: Recording) -> None:
    """An instance that is dropped and replayed at random commits writes what one that was kept wrote."""
    rng = Random(recording.seed)
    instance, program = recording.instance()
    turn = instance.begin(START)
    commit = settle(STANDING, instance, turn)
    for index, boundary in enumerate(recording.boundaries):
        if boundary.shown is not None:
            same(
                f"the turn of commit {index}",
                boundary.shown,
                _without_repeats(recording, index - 1, shown(turn, commit)),
            )
        if boundary.next is None:
            continue
        if boundary.shown is None or rng.random() < 0.3:
            instance.close()
            instance, program = recording.replayed(boundary, chaos=index)
        turn, commit = play(instance, boundary.next)
    last = recording.boundaries[-1]
    if last.shown is not None:
        same("what was seen", last.sight[: last.seen], program.seen)
    instance.close()


def check_batches(recording: Recording) -> None:
    """The same arrivals give the same history, one a turn or many in one.

    Exactly: (1) where nothing else falls due meanwhile, any partition of the arrivals into turns at the same now writes the
    very same entries. (2) Where timers fall due among the arrivals, one turn at the end of the window takes them in in the
    order in which a turn at each one's own time would have: the same results win. What is new in the window then differs in
    its times alone. A cancel goes first within its turn, by design, so here it has the first place in both.
    """
    rng = Random(recording.seed + 2)
    for boundary in recording.boundaries:
        if boundary.next is None or len(boundary.next.arrivals) < 2:
            continue
        arrivals = _by_time(boundary.next.arrivals)
        if not arrivals:
            continue
        _check_partitions(recording, boundary, arrivals, rng)
        _check_on_time(recording, boundary, arrivals, rng)


def _check_partitions(recording: Recording, boundary: Boundary, arrivals: list[Arrival], rng: Random) -> None:
    due = boundary.facts.next_due
    now = max(arrival.at for arrival in arrivals)
    if due is not None and due <= now:
        return
    whole, _ = recording.replayed(boundary)
    turn = whole.advance(arrivals, now)
    if _never_began(whole, turn):
        whole.close()
        return
    parts, _ = recording.replayed(boundary)
    pieces = [parts.advance(piece, now) for piece in _cut(arrivals, rng)]
    for index, piece in enumerate(pieces):
        if piece.outcome is not None:
            pieces = pieces[: index + 1]
            break
    same("entries of a batch and of its parts", turn.entries, [e for piece in pieces for e in piece.entries])
    same("messages consumed", turn.consumed, [number for piece in pieces for number in piece.consumed])
    same("outcomes", _outcome(turn.outcome), _outcome(pieces[-1].outcome))
    if turn.outcome is None:
        same("what is open after a batch and after its parts", facts(whole), facts(parts))
    whole.close()
    parts.close()


def _check_on_time(recording: Recording, boundary: Boundary, arrivals: list[Arrival], rng: Random) -> None:
    """The arrivals are moved into a window that begins before a timer is due, and is shorter than any new one."""
    late, _ = recording.replayed(boundary)
    begin = late.now
    times = sorted({o.due for o in late.pending.values() if o.due is not None})
    if not times or any(isinstance(a, Message) and a.kind is MessageKind.CANCEL for a in arrivals):
        late.close()
        return
    begin = max(begin, times[0] - 400_000)
    end = begin + 800_000
    moments = sorted(rng.choice((begin, times[0], end, rng.randint(begin, end))) for _ in arrivals)
    moved = [msgspec.structs.replace(a, at=at) for a, at in zip(arrivals, moments, strict=True)]
    turn = late.advance(moved, end)
    punctual, _ = recording.replayed(boundary)
    entries: list[Entry] = []
    outcome: Any = None
    for moment in sorted({*moments, *(t for t in times if t <= end)}):
        if outcome is None:
            one = punctual.advance([a for a in moved if a.at == moment], moment)
            entries += one.entries
            outcome = one.outcome
    if not _never_began(late, turn):
        same("who wins, late and on time", _timeless(turn.entries), _timeless(entries))
        same("how it ends, late and on time", type(turn.outcome), type(outcome))
    late.close()
    punctual.close()


def _never_began(instance: Instance, turn: Turn) -> bool:
    """True if the turn gave up what it had asked for itself, and what would have been let go a turn later: steps begin between
    turns, and what never began need not be undone. (Which of the two it was is recorded.)"""
    new = {operation.seq for operation in turn.issued}
    cancelled = instance.undoing is not None and instance.undoing.order is not None
    return any(
        operation.seq in new and (operation.undo is not None or (operation.op in ("child", "join") and cancelled))
        for operation in turn.abandoned
    )


def _timeless(entries: Sequence[Entry]) -> list[Any]:
    return [(entry.event, entry.seq, entry.op, entry.name, entry.payload) for entry in entries]


def _by_time(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """As single turns would take them in: messages by number. So only a cancel that is the first message can go first."""
    numbers = [a.number for a in arrivals if isinstance(a, Message)]
    cancels = [a for a in arrivals if isinstance(a, Message) and a.kind is MessageKind.CANCEL]
    first = [a for a in cancels if a.number == min(numbers)]
    others = [a for a in arrivals if a not in cancels]
    return [*first, *sorted(others, key=lambda a: (a.at, a.number if isinstance(a, Message) else 0))]


def _cut(arrivals: list[Arrival], rng: Random) -> Iterator[list[Arrival]]:
    piece: list[Arrival] = []
    for arrival in arrivals:
        piece.append(arrival)
        if rng.random() < 0.7:
            yield piece
            piece = []
    yield piece


def check_close(recording: Recording) -> None:
    """Closing at any commit runs no operation, leaves no task behind, and nobody is told of it."""
    for boundary in recording.boundaries:
        with silence():
            instance, program = recording.replayed(boundary)
            turn = instance.advance((), instance.now)
            loop, before = instance.loop, shown(turn, settle(STANDING, instance, turn))
            issued = instance.reserve()
            instance.close()
            same("operations after the close", issued, instance.reserve())
            same("commands after the close", before.entries, tuple(turn.entries))
            same("tasks after the close", set(), asyncio.all_tasks(loop))
            del instance, program, turn, loop
    with silence():
        gc.collect()


@contextmanager
def silence() -> Iterator[None]:
    """Whatever is warned of, or raised where nobody can catch it, is an error."""
    told: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: told.append(str(unraisable))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        sys.unraisablehook = hook
    same("complaints", [], told)


def check_all(recording: Recording) -> None:
    """Every property."""
    check_replay(recording)
    check_rebuilt(recording)
    check_batches(recording)
    check_close(recording)


def check_seed(seed: int) -> Recording:
    """Every property of the program of this seed."""
    try:
        recording = record(seed)
        check_all(recording)
    except Exception as error:
        raise Broken(f"seed {seed}: {error}\n  {tree_of(seed)}") from error
    return recording


def digest(seeds: Sequence[int]) -> str:
    """A hash of the histories of these programs: the same in every process."""
    total = hashlib.sha256()
    for seed in seeds:
        recording = record(seed)
        total.update(msgspec.json.encode(recording.history))
        total.update(repr(recording.boundaries[-1].sight).encode())
    return total.hexdigest()
