"""A run driven by hand: what the engine does with an instance, without an engine, one turn a call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.inbox import Key
from perdure.core.instance import Instance
from perdure.core.loop import OpFuture
from perdure.core.operation import Operation
from perdure.core.settle import Standing, settle
from perdure.core.turn import Arrival, Blocked, Completed, Failed, StepDone, Turn
from perdure.model import values
from perdure.model.commit import TurnCommit
from perdure.model.errors import PerdureError
from perdure.model.failure import capture, encode_failure, restore
from perdure.model.history import Entry, Event
from perdure.model.messages import Message, MessageKind
from perdure.model.policy import RetryPolicy
from perdure.model.run import NewRun, RunKey

#: Microseconds.
SECOND = 1_000_000
#: When the runs of these tests begin.
START = 1_700_000_000 * SECOND

ONCE = RetryPolicy()

#: Instances that were made here, to be closed when the test is over.
OPEN: list[Instance] = []

Main = Callable[[Instance], Coroutine[Any, Any, Any]]


class Program:
    """A workflow definition as the core sees it."""

    def __init__(self, main: Main) -> None:
        self.main = main

    def start(self, instance: Instance) -> Coroutine[Any, Any, Any]:
        return self.main(instance)

    def encode_result(self, value: Any) -> bytes:
        return values.encode(value, what="the result")


def new_run(id: str = "run1", seed: int = 7) -> NewRun:
    return NewRun(id=id, workflow="test", version="1", input=b"null", seed=seed)


def step(run: Instance, name: str, input: object = None, policy: RetryPolicy = ONCE) -> OpFuture[Any]:
    return run.step(name, values.encode(input, what="input"), policy=policy, decode=values.decoder(Any))


def signal(run: Instance, name: str, *, token: str | None = None, timeout: float | None = None) -> OpFuture[Any]:
    limit = None if timeout is None else round(timeout * SECOND)
    return run.signal(name, token=token, timeout=limit, decode=values.decoder(Any))


def child(run: Instance, id: str) -> OpFuture[Any]:
    return run.child(new_run(id), decode=values.decoder(Any))


def join(run: Instance, id: str) -> OpFuture[Any]:
    return run.join(id, decode=values.decoder(Any))


@dataclass(frozen=True)
class Facts:
    """What two instances of the same run must have in common."""

    next_seq: int
    pending: list[tuple[Any, ...]]
    steps: list[int]
    next_due: int | None
    listening: bool


def facts(instance: Instance) -> Facts:
    return Facts(
        instance.reserve(),
        [_facts(operation) for operation in instance.pending.values()],
        sorted(instance.steps),
        instance.next_due(),
        instance.listening(),
    )


def _facts(operation: Operation) -> tuple[Any, ...]:
    o = operation
    run = None if o.child is None else o.child.id
    key: Key | None = o.key
    return (o.seq, o.op, o.name, o.payload, o.due, o.since, key, run, o.attempts, o.failures, o.next_at)


class Driven:
    """A run of `main`: its instance, the history it has so far, and the last turn.

    After each turn a copy is replayed from the history and must stand where the instance stands.
    """

    def __init__(self, main: Main, *, id: str = "run1", seed: int = 7, handles: int | None = None) -> None:
        self.run = new_run(id, seed)
        self.handles = handles
        self.history: list[Entry] = []
        self.now = START
        self.numbers = 0
        self.instance = self._instance(main)
        self.main = main
        self.commit: TurnCommit | None = None
        self.turn = self._take_in(self.instance.begin(self.now))

    def _instance(self, main: Main) -> Instance:
        OPEN.append(Instance(self.run, Program(main), handles=self.handles))
        return OPEN[-1]

    # -- what happens to it -------------------------------------------------------------------------------------------

    def advance(self, *arrivals: Arrival, at: float | None = None) -> Turn:
        """One turn, `at` seconds after the start (None: no time passes)."""
        if at is not None:
            self.now = START + round(at * SECOND)
        return self._take_in(self.instance.advance(arrivals, self.now))

    def result(self, seq: int, value: object = None) -> Turn:
        return self.advance(self.done(seq, value))

    def failure(self, seq: int, error: BaseException) -> Turn:
        return self.advance(self.failed(seq, error))

    def signal(self, name: str, value: object = None, *, token: str | None = None) -> Turn:
        return self.advance(self.message(name, value, token=token))

    def cancel(self) -> Turn:
        return self.advance(self.cancelling())

    # -- arrivals -----------------------------------------------------------------------------------------------------

    def done(self, seq: int, value: object = None, *, at: float | None = None) -> StepDone:
        return StepDone(seq, values.encode(value, what="result"), False, self._at(at))

    def failed(self, seq: int, error: BaseException, *, at: float | None = None) -> StepDone:
        return StepDone(seq, encode_failure(capture(error)), True, self._at(at))

    def message(self, name: str, value: object = None, *, token: str | None = None, at: float | None = None) -> Message:
        return self._message(MessageKind.SIGNAL, name, token, values.encode(value, what="signal"), False, at)

    def ended(self, child_id: str, value: object = None, *, at: float | None = None) -> Message:
        return self._message(MessageKind.CHILD, child_id, None, values.encode(value, what="output"), False, at)

    def child_failed(self, child_id: str, error: BaseException, *, at: float | None = None) -> Message:
        return self._message(MessageKind.CHILD, child_id, None, encode_failure(capture(error)), True, at)

    def cancelling(self, *, at: float | None = None) -> Message:
        return self._message(MessageKind.CANCEL, "", None, None, False, at)

    def _message(
        self, kind: MessageKind, name: str, token: str | None, payload: bytes | None, failed: bool, at: float | None
    ) -> Message:
        self.numbers += 1
        return Message(self.numbers, kind, name, token, payload, failed, self._at(at))

    def _at(self, at: float | None) -> int:
        return self.now if at is None else START + round(at * SECOND)

    # -- what it is ---------------------------------------------------------------------------------------------------

    def events(self, *, all: bool = False) -> list[tuple[str, int, str]]:
        """(event, seq, name) of the last turn's entries, or of the whole history."""
        return shown(self.history if all else self.turn.entries)

    def output(self) -> Any:
        """What the body returned."""
        assert isinstance(self.turn.outcome, Completed), self.turn.outcome
        return values.decode(self.turn.outcome.output, what="output")

    def error(self) -> Exception:
        """What the body raised."""
        assert isinstance(self.turn.outcome, Failed), self.turn.outcome
        return restore(self.turn.outcome.failure)

    def fault(self) -> PerdureError:
        """Why the run is blocked."""
        return blocked(self.turn)

    def replay(self, main: Main | None = None, history: Sequence[Entry] | None = None) -> tuple[Instance, Turn]:
        """Another instance, brought to where the history (this run's, unless another is given) ends."""
        instance = self._instance(main or self.main)
        return instance, instance.replay(self.history if history is None else history, START)

    def fault_of(self, main: Main) -> PerdureError:
        """Why other code does not fit this run's history."""
        instance, turn = self.replay(main)
        fault = blocked(turn)
        instance.close()
        return fault

    def _take_in(self, turn: Turn) -> Turn:
        self.turn = turn
        if not isinstance(turn.outcome, Blocked):
            key = RunKey(self.run.id, 1)
            standing = Standing(key, "me", 1, len(self.history), None, "code")
            self.commit = settle(standing, self.instance, turn)
            self.history += self.commit.entries
            self._check_replay()
        return turn

    def _check_replay(self) -> None:
        copy, turn = self.replay()
        assert type(turn.outcome) is type(self.turn.outcome), (turn.outcome, self.turn.outcome)
        assert turn.entries == []
        if turn.outcome is None:
            assert facts(copy) == facts(self.instance)
        copy.close()


def blocked(turn: Turn) -> PerdureError:
    """The fault a turn ended in."""
    assert isinstance(turn.outcome, Blocked), turn.outcome
    return turn.outcome.error


def shown(entries: Iterable[Entry]) -> list[tuple[str, int, str]]:
    """Entries as a test writes them: (event, seq, name)."""
    return [(Event(entry.event).name.lower(), entry.seq, entry.name) for entry in entries]
