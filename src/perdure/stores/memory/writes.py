"""Applies writes to the tables. Each function is one rule of the Store port; `DataRefused` leaves the caller to roll back."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.commit import (
    Answer,
    Append,
    Applied,
    Cancel,
    Changed,
    Configure,
    Create,
    Delete,
    Ended,
    Exists,
    Fenced,
    Full,
    Join,
    Missing,
    Moved,
    NewChild,
    Refused,
    Requeue,
    Send,
    Steer,
    TurnCommit,
    Write,
)
from perdure.model.endings import cancelled_failure, start_failure
from perdure.model.events import Publish
from perdure.model.failure import encode_failure
from perdure.model.gates import WHOLE_RUN
from perdure.model.history import Entry, Event
from perdure.model.messages import Message, MessageKind
from perdure.model.run import REQUEUABLE, TERMINAL, NewRun, Parent, Run, Status
from perdure.stores.memory import events, gates, inboxes, rules, waits
from perdure.stores.memory.tables import Actor, Letter, Tables


def apply(tables: Tables, write: Write, now: int) -> Answer:
    """Apply one write. Raises `DataRefused` with the tables half changed."""
    if not isinstance(write, TurnCommit | Create):
        rules.check_storable(write)  # Those two look at their fence or their id first.
    match write:
        case TurnCommit():
            return _turn(tables, write, now)
        case Create():
            return _create(tables, write, now)
        case Send():
            return inboxes.send(tables, write.message, now)
        case Publish():
            return events.publish(tables, write, now)
        case Append():
            return _append(tables, write, now)
        case Cancel():
            return _cancel(tables, write, now)
        case Requeue():
            return _requeue(tables, write, now)
        case Steer():
            return _steer(tables, write, now)
        case Delete():
            return _delete(tables, write, now)
        case Configure():
            gates.configure(tables, write, now)
            return Applied()


# ---------------------------------------------------------------- create


def _create(tables: Tables, create: Create, now: int) -> Answer:
    existing = tables.find(create.run.id)
    answer: Answer
    if existing is not None:
        answer = Exists(existing)
    else:
        rules.check_storable(create)
        run = rules.new_run(create.run, tables.next_number(), now, create.run.parent)
        if run.gate is not None and create.turn is None and run.status is Status.PENDING:
            waiting = gates.waiting_if_full(tables, run.namespace, run.gate, now)
            if waiting is not None:
                return Full(waiting)
        if create.turn is None:
            tables.add_actor(Actor(run))
            gates.ask_for_new(tables, run, now)
            answer = Applied(run.key)
        else:
            tables.add_actor(Actor(rules.begun_by(run, create.turn, now + create.lease)))
            answer = _advance(tables, run.incarnation, create.turn, now)
    sent = [inboxes.send(tables, message, now) for message in create.messages]
    if existing is not None:
        late = next((each for each in sent if isinstance(each, Ended)), None)
        return late or Exists(tables.actors[existing.incarnation].run)
    return answer


# ---------------------------------------------------------------- turn


def _turn(tables: Tables, commit: TurnCommit, now: int) -> Answer:
    actor = tables.actors.get(commit.run.incarnation)
    if actor is None:
        return Fenced(None)
    if not rules.holds(actor.run, commit):
        return Fenced(actor.run)
    return _advance(tables, commit.run.incarnation, commit, now)


def _advance(tables: Tables, incarnation: int, commit: TurnCommit, now: int) -> Answer:
    """Apply a turn of the one who holds the run."""
    key = tables.actors[incarnation].run.key
    if commit.status in TERMINAL:
        fresh = inboxes.unseen(tables, incarnation, commit.seen, commit.consumed)
        if rules.held_up(fresh, commit):
            return Refused(fresh)
    rules.check_storable(commit)
    _record(tables, incarnation, commit, now)
    _reach_out(tables, incarnation, commit, now)
    if commit.status is Status.RUNNING:
        return Applied(key)
    if commit.status in TERMINAL:
        _end(tables, incarnation, commit, now)
        return Applied(key)
    moved = inboxes.unseen(tables, incarnation, commit.seen)
    if moved and commit.status is Status.SUSPENDED:
        return Moved(key, moved)
    tables.put_run(rules.parked(tables.actors[incarnation].run, commit))
    return Applied(key)


def _record(tables: Tables, incarnation: int, commit: TurnCommit, now: int) -> None:
    """What concerns the run alone: history, inbox, values."""
    tables.append(incarnation, commit.entries)
    tables.write_chunks(incarnation, commit.epoch, commit.chunks, now)
    inboxes.consume(tables, incarnation, commit.consumed)
    actor = tables.actors[incarnation]
    values = dict(actor.values) | dict(commit.values)
    tables.put_actor(replace(actor, run=rules.advanced(actor.run, commit, now), values=tuple(values.items())))


def _reach_out(tables: Tables, incarnation: int, commit: TurnCommit, now: int) -> None:
    """What concerns others: tokens, children, messages."""
    if commit.unwaits:
        waits.end_waits(tables, [incarnation], lambda wait: wait.seq in commit.unwaits, now)
    for wait in commit.waits:
        inboxes.wait(tables, incarnation, wait, now)
    for listen in commit.listens:
        events.wait(tables, incarnation, listen, now)
    for child in commit.children:
        _start_child(tables, incarnation, child, now)
    for join in commit.joins:
        _join(tables, incarnation, join, now)
    for run_id in commit.cancels:
        child_run = tables.find(run_id)
        if child_run is not None and _is_child(child_run, incarnation):
            last = tables.last_link(child_run.incarnation)
            _cancel_tree(tables, last.incarnation, encode_failure(cancelled_failure()), now)
    for message in commit.sends:
        inboxes.send(tables, message, now)
    if commit.releases:
        gates.release(tables, [incarnation], commit.releases, now)
    for asked in commit.asks:
        gates.ask(tables, tables.actors[incarnation].run, asked, now)


def _append(tables: Tables, append: Append, now: int) -> Answer:
    actor = tables.actors.get(append.run.incarnation)
    if actor is None:
        return Fenced(None)
    run = actor.run
    if run.status is not Status.RUNNING or run.owner != append.owner or run.epoch != append.epoch:
        return Fenced(run)
    tables.write_chunks(run.incarnation, run.epoch, append.chunks, now)
    return Applied(run.key)


# ---------------------------------------------------------------- children


def _is_child(run: Run, parent: int) -> bool:
    return run.parent is not None and run.parent.incarnation == parent


def _start_child(tables: Tables, parent: int, child: NewChild, now: int) -> None:
    existing = tables.find(child.run.id)
    if existing is None:
        link = Parent(tables.actors[parent].run.id, parent, child.seq)
        run = rules.new_run(child.run, tables.next_number(), now, link)
        tables.add_actor(Actor(run))
        gates.ask_for_new(tables, run, now)
    elif not _is_child(existing, parent) or child.run.awaited_as is not None:
        _join(tables, parent, Join(child.seq, child.run.id, child.again), now)


def _join(tables: Tables, parent: int, join: Join, now: int) -> None:
    """Let the parent hear of the child's end: in its time, or at once where there is nothing to wait for."""
    child = tables.find(join.child_id)
    if child is None or not _is_child(child, parent):
        error = encode_failure(start_failure(join.child_id, taken=child is not None))
        inboxes.deliver_notice(tables, parent, _child_message(join.child_id, error, failed=True, now=now), now)
        return
    last = tables.last_link(child.incarnation)
    if last.status not in TERMINAL:
        tables.put_run(replace(last, awaited_as=join.child_id, updated_at=now))
        return
    failed = last.status is not Status.COMPLETED
    if last.status in REQUEUABLE and join.again:
        return
    payload = last.error if failed else last.output
    inboxes.deliver_notice(tables, parent, _child_message(join.child_id, payload, failed=failed, now=now), now)


def _child_message(name: str, payload: bytes | None, *, failed: bool, now: int) -> Message:
    return Message(number=0, kind=MessageKind.CHILD, name=name, token=None, payload=payload, failed=failed, at=now)


# ---------------------------------------------------------------- ends


def _end(tables: Tables, incarnation: int, commit: TurnCommit, now: int) -> None:
    """A turn ends its run, or continues it as a new one."""
    run = rules.ended(tables.actors[incarnation].run, commit.status, now, output=commit.output, error=commit.error)
    if commit.successor is not None:
        _close(tables, [replace(run, continued_to=commit.successor.id)], now)
        _continue(tables, incarnation, commit.successor, now)
        return
    below: list[Run] = []
    if commit.status in (Status.CANCELLED, Status.DEAD) and not commit.spares:
        below = [rules.cancelled(each, now, commit.error) for each in _live_tree(tables, incarnation)]
    _close(tables, [run, *(each for each in below if each.incarnation != incarnation)], now)


def _live_tree(tables: Tables, incarnation: int) -> list[Run]:
    return [run for run in tables.tree(incarnation) if run.status not in TERMINAL]


def _close(tables: Tables, ended: list[Run], now: int) -> None:
    """Write the rows of runs that end together; give back what came to their tokens; tell the parents that wait."""
    for run in ended:
        tables.put_run(run)
    waits.end_waits(tables, [run.incarnation for run in ended], lambda _: True, now)
    for run in ended:
        if run.continued_to is None and run.parent is not None and run.awaited_as is not None:
            failed = run.status is not Status.COMPLETED
            payload = run.error if failed else run.output
            message = _child_message(run.awaited_as, payload, failed=failed, now=now)
            inboxes.deliver_notice(tables, run.parent.incarnation, message, now)
    gates.release(tables, [run.incarnation for run in ended if run.continued_to is None], None, now)


def _continue(tables: Tables, incarnation: int, successor: NewRun, now: int) -> None:
    """Start the next link, with all that is unread and not an answer to an operation of the old one."""
    if tables.find(successor.id) is not None:
        raise rules.DataRefused(f"the run cannot continue as {successor.id!r}: another run has that id")
    old = tables.actors[incarnation]
    run = rules.new_run(successor, tables.next_number(), now, old.run.parent)
    tables.add_actor(Actor(replace(run, awaited_as=old.run.awaited_as, paused_at=old.run.paused_at)))
    moving = [letter for letter in old.inbox if _moves(letter)]
    staying = tuple(letter for letter in old.inbox if not _moves(letter))
    tables.put_actor(replace(old, inbox=staying, successor=run.incarnation))
    for letter in moving:
        inboxes.deliver(tables, run.incarnation, letter, now)
    gates.hand_over(tables, incarnation, run.incarnation, now)


def _moves(letter: Letter) -> bool:
    """Whether an unread message is for the next link too: not what answers an operation of the old one."""
    kind, name = letter.message.kind, letter.message.name
    return kind is not MessageKind.CHILD and (kind is not MessageKind.GRANT or name == str(WHOLE_RUN))


def _cancel_tree(tables: Tables, incarnation: int, error: bytes, now: int) -> tuple[Run, ...]:
    """Cancel a run and everything below it; returns the rows that changed, the upper ones first."""
    changed = [rules.cancelled(run, now, error) for run in _live_tree(tables, incarnation)]
    _close(tables, changed, now)
    return tuple(tables.actors[run.incarnation].run for run in changed)


# ---------------------------------------------------------------- from outside


def _named(tables: Tables, write: Cancel | Requeue | Steer | Delete) -> Run | None:
    run = tables.find(write.run_id)
    return None if run is None or write.incarnation not in (None, run.incarnation) else run


def _cancel(tables: Tables, cancel: Cancel, now: int) -> Answer:
    run = _named(tables, cancel)
    if run is None:
        return Missing(cancel.run_id)
    last = tables.last_link(run.incarnation)
    if last.status in TERMINAL:
        return Ended(last)
    return Changed(_cancel_tree(tables, last.incarnation, cancel.error, now))


def _requeue(tables: Tables, requeue: Requeue, now: int) -> Answer:
    run = _named(tables, requeue)
    if run is None:
        return Missing(requeue.run_id)
    if run.status is Status.BLOCKED:
        tables.put_run(rules.due_now(run, now))
        return Changed((tables.actors[run.incarnation].run,))
    revived = rules.requeued(run, now)
    if revived is None:
        return Changed(())
    tables.put_run(revived)
    tables.append(run.incarnation, (Entry(Event.REQUEUED, -1, None, "", None, now),))
    return Changed((tables.actors[run.incarnation].run,))


def _steer(tables: Tables, steer: Steer, now: int) -> Answer:
    run = _named(tables, steer)
    if run is None:
        return Missing(steer.run_id)
    last = tables.last_link(run.incarnation)
    if last.status in TERMINAL:
        return Ended(last)
    steered = rules.steered(last, steer.way, now)
    if steered is None:
        return Changed(())
    tables.put_run(steered)
    return Changed((steered,))


def _delete(tables: Tables, delete: Delete, now: int) -> Answer:
    run = _named(tables, delete)
    if run is None:
        return Missing(delete.run_id)
    links = tables.chain(run.incarnation)
    for link in links:
        _cancel_tree(tables, link, delete.error, now)
    gone = {each.incarnation: each for link in links for each in tables.tree(link)}
    for incarnation in gone:
        tables.drop_actor(incarnation)
    return Changed(tuple(gone.values()))
