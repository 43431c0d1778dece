"""Failures: an error is the same error after it was stored, and no error, however odd, breaks the storing."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model import errors
from perdure.model.errors import (
    ChildFailed,
    FatalError,
    GatherError,
    NonDeterminismError,
    PerdureError,
    RunCancelled,
    RunFailed,
    RunUnsuccessful,
    SignalTimeout,
    StepFailed,
    StepTimeout,
)
from perdure.model.failure import MAX_MESSAGE, Failure, capture, decode_failure, encode_failure, restore
from perdure.model.values import MAX_VALUE


@dataclass
class Order:
    id: uuid.UUID
    total: Decimal


class Declined(Exception):
    """Its `__init__` takes something else than what ends up in `args`."""

    retryable = False

    def __init__(self, order: Order, *, reason: str) -> None:
        super().__init__(f"order {order.id} was declined: {reason}")
        self.order = order
        self.reason = reason


class Silent(Exception):
    """Never calls `super().__init__`, and makes its text itself."""

    def __init__(self, a: int, b: int) -> None:
        self.a = a
        self.b = b

    def __str__(self) -> str:
        return f"{self.a} and {self.b}"


class Slotted(Exception):
    __slots__ = ("where",)

    def __init__(self, where: tuple[int, int]) -> None:
        super().__init__("slotted")
        self.where = where


@dataclass(frozen=True)
class FrozenError(Exception):
    n: int


class Timed(TimeoutError):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"took {seconds} s")
        self.seconds = seconds


class Coded(FatalError):
    def __init__(self, order_id: str) -> None:
        super().__init__(f"no stock for {order_id}", code="no_stock", details={"order": order_id})


class Tagged(ExceptionGroup[Exception]):
    """A group of its own class."""


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def stored(error: BaseException) -> Failure:
    return decode_failure(encode_failure(capture(error)))


def again(error: BaseException) -> Exception:
    return restore(stored(error))


def attributes(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if name != "__notes__"}


def decode_error() -> UnicodeDecodeError:
    try:
        b"\xff\xfe".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


OURS: list[PerdureError] = [
    *(cls("a message") for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, PerdureError)),
    FatalError("no", code="out_of_stock", details={"left": [0, None]}),
    StepFailed("no", type="shop:Gone", code="gone", details=[1], traceback="Traceback..."),
    StepTimeout("step 'a' ran longer than 3 s", type="x:Y"),
    ChildFailed("no", child_id="p.child.3", status="failed"),
    SignalTimeout("no 'approve' in 3 s", signal="approve", timeout=3.5),
    NonDeterminismError("no", run_id="r", seq=3, recorded="step a", issued="step b"),
    RunFailed("no", run_id="r"),
]


@pytest.mark.parametrize("error", OURS, ids=lambda error: type(error).__name__)
def test_errors_of_ours_keep_class_text_and_attributes(error: PerdureError) -> None:
    back = again(raised(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert attributes(back) == attributes(error)
    assert isinstance(back, PerdureError)
    assert back.code == error.code


def test_a_gather_error_keeps_its_failures_as_errors_and_its_results() -> None:
    cause = ChildFailed("child 1 failed", child_id="p.all.0.1", status="failed")
    cause.__cause__ = Declined(Order(uuid.UUID(int=1), Decimal("1.50")), reason="limit")
    back = again(
        GatherError("1 of 3 failed", [(1, "p.all.0.1", cause)], ["a", None, Order(uuid.UUID(int=2), Decimal(2))])
    )
    assert isinstance(back, GatherError)
    ((index, child_id, error),) = back.failures
    assert (index, child_id, type(error), str(error)) == (1, "p.all.0.1", ChildFailed, "child 1 failed")
    assert isinstance(error.__cause__, Declined)
    assert back.results == ["a", None, Order(uuid.UUID(int=2), Decimal(2))]


def test_a_gather_error_with_more_than_can_be_carried_still_is_one() -> None:
    failures: list[tuple[int, str, BaseException]] = [(n, f"c{n}", ValueError("x" * 1000)) for n in range(10_000)]
    back = again(GatherError("10000 failed", failures, ["y" * 1000] * 10_000))
    assert isinstance(back, GatherError)
    assert (str(back), back.failures, back.results) == ("10000 failed", [], [])


USERS: list[Exception] = [
    ValueError("bad"),
    ValueError(),
    KeyError("missing"),
    KeyError(("a", 1)),
    LookupError(1, "a", None, 2.5, True, b"\xff", ("x", ("y",)), {"k": [1]}, {1: 2}, {3}, float("inf")),
    FileNotFoundError(2, "No such file", "/nowhere"),
    ConnectionRefusedError(111, "refused"),
    StopIteration(3),
    StopAsyncIteration(),
    ImportError("no module", name="shop", path="/shop.py"),
    AttributeError("no such thing", name="thing"),
    SyntaxError("bad", ("f.py", 3, 4, "x = (", 3, 5)),
    decode_error(),
    json.JSONDecodeError("Expecting value", "{", 1),
    subprocess.CalledProcessError(3, ["ls", "-l"], output="out"),
    TimeoutError(),
    Declined(Order(uuid.UUID(int=1), Decimal("1.50")), reason="limit"),
    Silent(1, 2),
    Slotted((1, 2)),
    FrozenError(3),
    Timed(2.5),
    Coded("o1"),
]


@pytest.mark.parametrize("error", USERS, ids=lambda error: type(error).__name__)
def test_other_errors_keep_class_text_arguments_and_attributes_too(error: Exception) -> None:
    back = again(raised(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    assert attributes(back) == attributes(error)


def test_attributes_come_back_as_their_own_types() -> None:
    back = again(Declined(Order(uuid.UUID(int=1), Decimal("1.50")), reason="limit"))
    assert isinstance(back, Declined)
    assert back.order == Order(uuid.UUID(int=1), Decimal("1.50"))
    slotted = again(Slotted((1, 2)))
    assert isinstance(slotted, Slotted)
    assert slotted.where == (1, 2)
    missing = again(FileNotFoundError(2, "No such file", "/nowhere"))
    assert isinstance(missing, FileNotFoundError)
    assert (missing.errno, missing.filename) == (2, "/nowhere")
    imported = again(ImportError("no module", name="shop", path="/shop.py"))
    assert isinstance(imported, ImportError)
    assert (imported.name, imported.path) == ("shop", "/shop.py")


def test_an_error_whose_class_is_not_known_here_becomes_a_step_failed_with_all_of_it() -> None:
    class Local(Exception):
        def __init__(self) -> None:
            super().__init__("it broke")
            self.code = "broken"
            self.details = {"part": 3}
            self.retryable = False

    failure = stored(raised(Local()))
    back = restore(failure)
    assert type(back) is StepFailed
    assert str(back) == "it broke"
    assert back.type.endswith("<locals>.Local")
    assert (back.code, back.details) == ("broken", {"part": 3})
    assert back.traceback is not None
    assert "in raised" in back.traceback
    assert back.retryable is False  # type: ignore[attr-defined]  # not retryable, so that no one retries it blindly
    # Whoever catches and raises it on passes the original on, to those who know its class.
    assert stored(raised(back)) == failure


def test_modules_are_never_imported_to_restore_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "shop.not_there:Gone",
        "json:loads",
        "os:environ",
        "nonsense",
        ":",
        "builtins:int",
        "builtins:SystemExit",
    ):
        back = restore(Failure(name, "gone"))
        assert type(back) is StepFailed
        assert back.type == name
        assert str(back) == "gone"


def test_a_class_that_cannot_be_rebuilt_becomes_a_step_failed() -> None:
    class_name = f"{__name__}:Silent"
    back = restore(Failure(class_name, "1 and 2", args=[1, 2]))  # its attributes are missing, so its text fails
    assert type(back) is StepFailed
    assert back.type == class_name


def test_arguments_that_cannot_be_carried_leave_class_and_text() -> None:
    back = again(ValueError(object))
    assert type(back) is ValueError
    assert str(back) == "<class 'object'>"
    assert type(again(KeyError(object()))) is KeyError


def test_failures_written_by_hand_are_restored_with_their_defaults_and_code() -> None:
    back = restore(
        Failure("perdure.model.errors:ChildFailed", "no such child", code="child_start_failed", retryable=False)
    )
    assert isinstance(back, ChildFailed)
    assert (str(back), back.code, back.child_id, back.status) == ("no such child", "child_start_failed", "", "")
    cancelled = restore(Failure("perdure.model.errors:RunCancelled", "cancelled", code="cancelled", retryable=False))
    assert isinstance(cancelled, RunCancelled)
    assert cancelled.run_id == ""
    assert isinstance(cancelled, RunUnsuccessful)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (ValueError("x"), None),
        (FatalError("x"), False),
        (Declined(Order(uuid.UUID(int=1), Decimal(1)), reason=""), False),
        (ChildFailed("x"), False),
        (ExceptionGroup("g", [ValueError("x")]), None),
        (ExceptionGroup("g", [ValueError("x"), ExceptionGroup("h", [FatalError("y")])]), False),
    ],
)
def test_errors_that_say_so_are_not_retryable(error: Exception, retryable: bool | None) -> None:
    assert stored(error).retryable is retryable


def test_causes_are_rebuilt_as_a_chain() -> None:
    error = RunFailed("outer", run_id="r")
    error.__cause__ = ChildFailed("middle", child_id="c")
    error.__cause__.__cause__ = raised(KeyError("inner"))
    back = again(error)
    assert [type(e) for e in (back, back.__cause__, back.__cause__.__cause__)] == [RunFailed, ChildFailed, KeyError]  # type: ignore[union-attr]
    assert back.__suppress_context__
    assert "KeyError: 'inner'" in "".join(traceback.format_exception(back))


def test_a_context_that_is_no_cause_stays_out() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904  # the point
    except ValueError as error:
        back = again(error)
    assert back.__cause__ is None
    assert not back.__suppress_context__


def test_f34_exception_groups_are_rebuilt_so_that_except_star_works() -> None:
    async def fail(error: Exception) -> NoReturn:
        raise error

    async def children() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(Declined(Order(uuid.UUID(int=1), Decimal(1)), reason="limit")))
            group.create_task(fail(KeyError("k")))

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(children())
    back = again(ExceptionGroup("outer", [caught.value, ValueError("v")]))
    seen: list[str] = []
    try:
        raise back
    except* Declined as declined:
        inner = declined.exceptions[0]
        assert isinstance(inner, ExceptionGroup)
        seen += map(str, inner.exceptions)
    except* KeyError:
        seen.append("key")
    except* ValueError:
        seen.append("value")
    assert seen == ["order 00000000-0000-0000-0000-000000000001 was declined: limit", "key", "value"]
    assert str(back) == "outer (2 sub-exceptions)"


def test_f34_groups_of_an_own_class_stay_that_class() -> None:
    back = again(Tagged("g", [ValueError("a")]))
    assert type(back) is Tagged
    assert back.message == "g"
    assert [type(e) for e in back.exceptions] == [ValueError]


def test_f34_members_that_are_no_exceptions_are_carried_as_data() -> None:
    back = again(BaseExceptionGroup("g", [asyncio.CancelledError("stop"), ValueError("a")]))
    assert isinstance(back, ExceptionGroup)
    first, second = back.exceptions
    assert isinstance(first, StepFailed)
    assert first.type == "asyncio.exceptions:CancelledError"
    assert isinstance(second, ValueError)


@pytest.mark.parametrize("error", [asyncio.CancelledError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_is_no_exception_is_captured_without_harm_and_never_raised_as_itself(error: BaseException) -> None:
    back = again(error)
    assert type(back) is StepFailed
    assert back.type.endswith(type(error).__name__)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\0b", "a\\x00b"),
        ("a\ud800b", "a\\ud800b"),
        ("\\u0000", "\\u0000"),
        ("</script>\u2028\x1b[31m", "</script>\u2028\x1b[31m"),
    ],
)
def test_f59_error_text_is_cleaned_never_refused_and_ordinary_text_survives(text: str, cleaned: str) -> None:
    error = raised(ValueError(text))
    error.add_note(text)
    failure = stored(error)
    assert failure.message == cleaned
    assert b"\0" not in encode_failure(failure)
    back = restore(failure)
    assert type(back) is ValueError
    assert cleaned in back.__notes__
    keyed = ValueError({"a\ud800": text})
    keyed.add_note(text)
    assert type(again(keyed)) is ValueError


class NoText(Exception):
    def __init__(self, action: Callable[[], str]) -> None:
        self.action = action

    def __str__(self) -> str:
        return self.action()


def exits() -> str:
    raise SystemExit(1)


def recurses() -> str:
    return recurses()


class Trap:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)

    def __repr__(self) -> str:
        raise LookupError


class Loud(Exception):
    @property
    def code(self) -> str:
        raise RuntimeError("code")

    @property
    def details(self) -> Any:
        return Trap()

    @property
    def retryable(self) -> bool:
        raise SystemExit


@pytest.mark.parametrize(
    "error",
    [
        NoText(exits),
        NoText(recurses),
        NoText(lambda: 3),  # type: ignore[arg-type,return-value]
        Loud("loud"),
        ValueError(Trap()),
        ValueError({"a": [Trap()]}),
        ValueError(10**5000),
        ValueError(*range(10_000)),
    ],
    ids=["exits", "recurses", "no-str", "loud", "trap", "trap-inside", "huge-int", "many-args"],
)
def test_hostile_errors_are_captured_all_the_same(error: Exception) -> None:
    failure = stored(raised(error))
    assert failure.type == f"{type(error).__module__}:{type(error).__qualname__}"
    assert isinstance(restore(failure), Exception)
    assert "in raised" in failure.traceback


def test_hostile_notes_do_no_harm() -> None:
    for notes in (3, None, [1, Trap(), "fine"], {"a": 1}):
        error = ValueError("x")
        error.__notes__ = notes  # type: ignore[assignment]
        assert type(again(error)) is ValueError


def test_cycles_of_causes_attributes_and_members_end() -> None:
    one, two = ValueError("one"), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    one.self = one  # type: ignore[attr-defined]
    two.others = [one, two]  # type: ignore[attr-defined]
    group = ExceptionGroup("g", [one])
    two.group = group  # type: ignore[attr-defined]
    back = again(group)
    assert isinstance(back, ExceptionGroup)
    member = back.exceptions[0]
    assert (type(member), type(member.__cause__)) == (ValueError, KeyError)


def test_a_long_chain_is_cut_at_a_depth() -> None:
    error = last = ValueError("0")
    for n in range(1, 5000):
        last.__cause__ = ValueError(str(n))
        last = last.__cause__
    back: BaseException | None = again(error)
    depth = 0
    while back is not None:
        assert str(back) == str(depth)
        back, depth = back.__cause__, depth + 1
    assert 10 < depth < 50


def test_whatever_is_captured_fits_into_a_value() -> None:
    def monster(depth: int) -> Exception:
        members = (
            [monster(depth - 1) for _ in range(6)] if depth else [ValueError("\ud800\x01ö" * 10_000, b"x" * 10_000)] * 6
        )
        error = ExceptionGroup("\U0001f600" * 10_000, members)
        error.blob = {"x": ["\x01" * 100_000] * 9}  # type: ignore[attr-defined]
        error.details = "\x01" * 1_000_000  # type: ignore[attr-defined]
        error.__cause__ = ValueError("ö" * 1_000_000)
        error.__notes__ = ["n" * 100_000] * 1000
        return raised(error)  # type: ignore[return-value]

    data = encode_failure(capture(monster(3)))
    assert len(data) < MAX_VALUE
    assert isinstance(restore(decode_failure(data)), ExceptionGroup)


def test_a_huge_message_is_cut_in_the_middle_and_keeps_its_class() -> None:
    failure = stored(ValueError("begin" + "x" * 1_000_000 + "end"))
    assert len(failure.message) <= MAX_MESSAGE
    assert failure.message.startswith("begin")
    assert failure.message.endswith("end")
    assert "characters left out" in failure.message
    assert type(restore(failure)) is ValueError


def test_the_place_it_was_raised_at_travels_along_once_however_often_it_is_raised_again() -> None:
    error: Exception = again(raised(ValueError("x")))
    for _ in range(3):
        (note,) = error.__notes__
        assert note.startswith("First raised at:\n  File ")
        assert "in raised" in note
        error = again(raised(error))
    assert len(error.__notes__[0]) < 5000


def test_deep_recursion_is_captured_with_its_innermost_frames() -> None:
    failure = stored(raised_by(recurses))
    assert failure.type == "builtins:RecursionError"
    assert failure.traceback.count("in recurses") == 3
    assert "Previous line repeated 37 more times" in failure.traceback
    assert len(failure.traceback) < 20_000


def raised_by(action: Callable[[], object]) -> BaseException:
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"{}",
        b'{"type":1,"message":"x"}',
        b'{"type":"a:b","message":"x","cause":{}}',
        b"\xff\xfe",
        b"[" * 100_000,
        encode_failure(capture(ValueError("x" * 100)))[:-20],
    ],
)
def test_f64_a_failure_that_cannot_be_read_is_a_marker_that_says_so(data: bytes) -> None:
    failure = decode_failure(data)
    assert failure.code == "unreadable_failure"
    assert failure.retryable is False
    assert "cannot be read" in failure.message
    back = restore(failure)
    assert type(back) is StepFailed
    assert decode_failure(encode_failure(failure)) == failure


@pytest.mark.parametrize(
    "changes",
    [
        {"args": [{"$": "nonsense:Class", "v": 1}]},
        {"args": [{"$": "tuple"}]},
        {"args": [{"$": "bytes", "v": "!!"}]},
        {"args": [{"$": 3}]},
        {"args": [{"$": "error", "v": {}}]},
        {"state": {"__class__": 3, "__dict__": 4, "args": 5, "x": {"$": "set", "v": [[1]]}}},
        {"group": [{"type": "x", "message": "y"}], "args": []},
        {"type": "builtins:ExceptionGroup"},
    ],
)
def test_f64_damaged_parts_cost_the_class_at_most(changes: dict[str, Any]) -> None:
    plain = msgspec.to_builtins(capture(ValueError("x"))) | changes
    back = restore(decode_failure(msgspec.json.encode(plain)))
    assert isinstance(back, ValueError | StepFailed | ExceptionGroup)
    assert "x" in str(back)


def test_failures_of_a_newer_version_with_more_fields_are_read() -> None:
    plain = msgspec.to_builtins(capture(ValueError("x"))) | {"severity": 3}
    assert type(restore(decode_failure(msgspec.json.encode(plain)))) is ValueError


def parts(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | text | st.binary() | st.decimals() | st.uuids(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(text | st.integers() | st.just("$"), inner, max_size=3)
        ),
        max_leaves=6,
    )


#: What needs no cleaning.
CLEAN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(st.lists(parts(CLEAN), max_size=3), st.dictionaries(CLEAN, parts(CLEAN), max_size=3))
def test_any_arguments_and_attributes_are_carried(args: list[Any], state: dict[str, Any]) -> None:
    error = LookupError(*args)
    error.__dict__.update({f"_{name}": value for name, value in state.items()})
    back = again(error)
    assert type(back) is LookupError
    assert str(back) == str(error)


@given(
    st.lists(parts(st.text(max_size=8)), max_size=3), st.dictionaries(st.text(max_size=5), parts(st.text(max_size=5)))
)
def test_f59_any_text_at_all_is_carried_cleaned(args: list[Any], state: dict[str, Any]) -> None:
    error = KeyError(*args)
    error.__dict__.update(state)
    failure = stored(error)
    assert "\0" not in failure.message
    assert failure.message.encode("utf-8").decode("utf-8") == failure.message
    assert isinstance(restore(failure), KeyError | StepFailed)
