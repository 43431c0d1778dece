"""The short way for the plain writes that make up the load: many runs' turns in a few statements.

Plain is a turn that only adds to its own run (history, consumed messages, status), and a new run without messages. Plain
writes that follow one another in a transaction, on different runs, do not see each other: they are gathered, their runs
are read in one statement, and those whose fence holds and that nothing special awaits are written together. All others
go the long way (`writes.apply`), one by one and in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from perdure.model.commit import Answer, Applied, Create, TurnCommit, Write
from perdure.model.run import RunKey, Status
from perdure.stores.sqlite import inboxes, writes
from perdure.stores.sqlite.inboxes import Notice
from perdure.stores.sqlite.newruns import COLUMNS, INSERT_RUNS, add_beside, new_row
from perdure.stores.sqlite.rows import FIRST_TERMINAL, RUNNING, STATUS_CODES, Row
from perdure.stores.sqlite.sized import execute_sized, parts
from perdure.stores.sqlite.transaction import Transaction

#: What a batch's answers are put into, by position.
Answers: TypeAlias = list[Answer]


class State(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A run before the turns of a group, as `_STATES` reads it."""

    incarnation: int
    owner: str | None
    epoch: int
    n: int
    status: int
    inbox: int
    parent: int | None
    awaited_as: str | None
    #: Whether it waits for tokens, and how many tickets of gates it has.
    waits: int
    tickets: int


#: A new run's row, where it comes from, and where its answer goes.
Begun: TypeAlias = tuple[Row, Create, Answers, int]

#: One row for all, since each row that SQLite hands out is a step of its own.
_STATES: Final = """
    SELECT json_group_array(json_array(incarnation, owner, epoch, n, status, inbox, parent, awaited_as,
        EXISTS (SELECT 1 FROM waits AS w WHERE w.incarnation = runs.incarnation), tickets))
    FROM runs WHERE incarnation IN (@rows)
"""
_TAKEN: Final = "SELECT json_group_array(id) FROM runs WHERE id IN (@rows)"

#: Columns 1 to 4 are the fence.
_FENCE: Final = f"""
    FROM (VALUES @rows) AS v
    WHERE runs.incarnation = v.column1 AND runs.owner = v.column2 AND runs.epoch = v.column3 AND runs.n = v.column4
    AND runs.status = {RUNNING}
"""
#: Neither status nor wake time: a turn that goes on changes no index.
_GO_ON: Final = f"""
    UPDATE runs SET n = v.column5, seen = v.column6, recoveries = CASE v.column7 WHEN 1 THEN 0 ELSE recoveries END,
        started_at = coalesce(started_at, v.column8), updated_at = ?, output = NULL, error = NULL, fingerprint = NULL
    {_FENCE}
"""
#: Up to what the turn has seen, the inbox holds nothing that could refuse or move it; and its end concerns nobody, or those
#: are seen to (column 16).
_STOP: Final = f"""
    UPDATE runs SET n = v.column5, seen = v.column6, recoveries = CASE v.column7 WHEN 1 THEN 0 ELSE recoveries END,
        started_at = coalesce(started_at, v.column8), updated_at = ?,
        status = v.column9, owner = NULL, wake_at = v.column10, listening = v.column11, ended_at = v.column12,
        output = v.column13, error = v.column14, fingerprint = v.column15
    {_FENCE} AND runs.inbox <= v.column6 AND (v.column9 < {FIRST_TERMINAL} OR v.column16 OR (runs.awaited_as IS NULL
        AND runs.tickets = 0 AND NOT EXISTS (SELECT 1 FROM waits AS w WHERE w.incarnation = runs.incarnation)))
"""
_GO_ON_COLUMNS: Final = 8
_STOP_COLUMNS: Final = 16

_decode_states = msgspec.json.Decoder(list[State]).decode
_decode_ids = msgspec.json.Decoder(set[str]).decode

_ENDING: Final = (Status.COMPLETED, Status.FAILED)
_CASCADING: Final = (Status.CANCELLED, Status.DEAD)


def _is_plain(turn: TurnCommit) -> bool:
    return not (
        turn.waits
        or turn.listens
        or turn.unwaits
        or turn.children
        or turn.joins
        or turn.cancels
        or turn.sends
        or turn.values
        or turn.attributes is not None
        or turn.asks
        or turn.releases
        or turn.chunks
        or turn.successor is not None
        or turn.status in _CASCADING
    )


def _ignores_nothing(turn: TurnCommit) -> bool:
    """Whether a turn that does not park leaves out what only parking uses. (The long way checks that it could be stored.)"""
    return turn.wake_at is None and turn.fingerprint is None


def _parks(turn: TurnCommit) -> bool:
    return turn.status is Status.SUSPENDED or turn.status is Status.BLOCKED


def _is_plain_create(create: Create) -> bool:
    turn = create.turn
    if create.messages or create.run.gate is not None:
        return False
    if turn is None:
        return True
    told = create.run.awaited_as is not None and turn.status is not Status.RUNNING
    return _is_plain(turn) and not turn.consumed and not told


class Bulk:
    """Takes the writes of one transaction in order; all are applied once `flush` has returned."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._gathered: list[tuple[Write, Answers, int]] = []
        #: The runs of those, by incarnation or id: none is twice among them.
        self._keys: set[int | str] = set()
        self._begun: list[Begun] = []
        self._going_on: list[Row] = []
        self._stopped: list[Row] = []
        self._consumed: list[tuple[int, int]] = []
        self._notices: list[Notice] = []

    def add(self, write: Write, answers: Answers, position: int) -> None:
        """Apply `write`, now or with those that follow, and put its answer in its place."""
        key: int | str
        if type(write) is TurnCommit and _is_plain(write) and (_parks(write) or _ignores_nothing(write)):
            key = write.run.incarnation
        elif type(write) is Create and _is_plain_create(write):
            key = write.run.id
        else:
            self.flush()
            answers[position] = writes.apply(self._tx, write)
            return
        if key in self._keys:
            self.flush()
        self._keys.add(key)
        self._gathered.append((write, answers, position))

    def flush(self) -> None:
        if len(self._gathered) == 1 and self._apply_alone(*self._gathered[0]):
            self._gathered.clear()
        if self._gathered:
            self._apply()
            self._gathered.clear()
        self._keys.clear()

    def _apply_alone(self, write: Write, answers: Answers, position: int) -> bool:
        """One write by itself need not be read for before. False: it was not that simple, and nothing was changed."""
        now = self._tx.now
        if type(write) is Create:
            row = new_row(write.run, now, write.run.parent, write.turn)
            return self._insert([(row, write, answers, position)])
        if type(write) is not TurnCommit:
            return False
        row = _row(write, now, told=False)
        template = _GO_ON if len(row) == _GO_ON_COLUMNS else _STOP
        if not execute_sized(self._tx.connection, template, len(row), [row], now).rowcount:
            return False
        self._record(write)
        self._write_out()
        answers[position] = Applied(write.run)
        return True

    def _apply(self) -> None:
        states, taken = self._read()
        self._tx.touched.clear()
        for write, answers, position in self._gathered:
            if type(write) is TurnCommit:
                state = states.get(write.run.incarnation)
                if state is not None and self._fits(write, state):
                    self._take(write, state)
                    answers[position] = Applied(write.run)
                    continue
            elif type(write) is Create and write.run.id not in taken:
                run = write.run
                self._begun.append((new_row(run, self._tx.now, run.parent, write.turn), write, answers, position))
                continue
            self._write_out()
            answers[position] = writes.apply(self._tx, write)
        self._write_out()

    def _fits(self, turn: TurnCommit, state: State) -> bool:
        """Whether the fence holds, and the turn changes nothing beside its own run's rows and perhaps its parent's inbox."""
        if state.owner != turn.owner or state.epoch != turn.epoch or state.n != turn.n or state.status != RUNNING:
            return False
        if state.incarnation in self._tx.touched:
            return False
        if turn.status is Status.RUNNING:
            return True
        if state.inbox > turn.seen:
            return False
        # A parent that is written itself must be written in its place.
        return STATUS_CODES[turn.status] < FIRST_TERMINAL or not (
            state.waits or state.tickets or state.parent in self._keys
        )

    def _take(self, turn: TurnCommit, state: State) -> None:
        row = _row(turn, self._tx.now, told=True)
        if len(row) == _GO_ON_COLUMNS:
            self._going_on.append(row)
        else:
            self._stopped.append(row)
            if state.parent is not None and state.awaited_as is not None and turn.status in _ENDING:
                failed = turn.status is Status.FAILED
                payload = turn.error if failed else turn.output
                self._notices.append(Notice(state.parent, state.awaited_as, payload, failed))
        self._record(turn)

    def _read(self) -> tuple[dict[int, State], set[str]]:
        """The runs as they are now, and which of the new ids are taken."""
        states: dict[int, State] = {}
        taken: set[str] = set()
        connection = self._tx.connection
        incarnations = [(key,) for key in self._keys if type(key) is int]
        for part in parts(incarnations):
            found = execute_sized(connection, _STATES, 1, part).fetchone()[0]
            states.update((state.incarnation, state) for state in _decode_states(found))
        ids = [(key,) for key in self._keys if type(key) is str]
        for some in parts(ids):
            taken |= _decode_ids(execute_sized(connection, _TAKEN, 1, some).fetchone()[0])
        return states, taken

    def _record(self, turn: TurnCommit) -> None:
        """What a turn writes beside its run's row."""
        for number in turn.consumed:
            self._consumed.append((turn.run.incarnation, number))
        self._tx.append(turn.run.incarnation, turn.n, turn.entries)

    def _write_out(self) -> None:
        connection, now = self._tx.connection, self._tx.now
        for new in parts(self._begun):
            inserted = self._insert(new)
            assert inserted, "an id was taken meanwhile"
        self._begun.clear()
        for template, columns, rows in (
            (_GO_ON, _GO_ON_COLUMNS, self._going_on),
            (_STOP, _STOP_COLUMNS, self._stopped),
        ):
            for part in parts(rows):
                changed = execute_sized(connection, template, columns, part, now).rowcount
                assert changed == len(part), f"{changed} of {len(part)} turns were written"  # all were read just before
            rows.clear()
        inboxes.consume(self._tx, self._consumed)
        self._consumed.clear()
        if self._notices:
            inboxes.tell(self._tx, self._notices)
            self._notices.clear()

    def _insert(self, begun: Sequence[Begun]) -> bool:
        """Whether none of the ids was taken."""
        cursor = execute_sized(self._tx.connection, INSERT_RUNS, COLUMNS, [row for row, *_ in begun])
        if cursor.rowcount != len(begun):
            return False
        assert cursor.lastrowid is not None  # an INSERT has one
        # AUTOINCREMENT counts up by one within a statement.
        for incarnation, (_, create, answers, position) in enumerate(begun, start=cursor.lastrowid - len(begun) + 1):
            add_beside(self._tx, incarnation, create.run)
            if create.turn is not None:
                self._tx.append(incarnation, 0, create.turn.entries)
            answers[position] = Applied(RunKey(create.run.id, incarnation))
        return True


def _row(turn: TurnCommit, now: int, *, told: bool) -> Row:
    """For `_GO_ON` or `_STOP`, by its length."""
    row = (
        turn.run.incarnation,
        turn.owner,
        turn.epoch,
        turn.n,
        turn.n + len(turn.entries),
        turn.seen,
        turn.progress,
        turn.started_at,
    )
    if turn.status is Status.RUNNING:
        return row
    code = STATUS_CODES[turn.status]
    if code < FIRST_TERMINAL:
        return (*row, code, turn.wake_at, turn.listening, None, turn.output, turn.error, turn.fingerprint, told)
    return (*row, code, None, 0, now, turn.output, turn.error, None, told)
