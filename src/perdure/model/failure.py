"""Failures: errors as data, so that they can be stored, sent, and raised again elsewhere.

`capture` and `restore` never raise: they run where something has already gone wrong. Text is cleaned and cut, attributes
that cannot be carried are left out; `restore` rebuilds an error's own class only where that is already imported, without
running its `__init__`, and falls back to `StepFailed`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from perdure.model import errors
from perdure.model.errors import StepFailed
from perdure.model.storable import is_a
from perdure.model.tagged import Json, class_name, clean, find_class, pack, unpack
from perdure.model.values import encode

#: Characters of a message, of the outermost error's traceback, and of each inner one's.
MAX_MESSAGE = 8 * 1024
MAX_TRACEBACK = 16 * 1024
MAX_INNER_TRACEBACK = 4 * 1024
#: About how many bytes the parts of one error with all its causes and members take together.
MAX_PARTS = 384 * 1024
#: How many errors, and how deep, one failure holds.
MAX_ERRORS = 128
MAX_DEPTH = 16
#: Frames of a traceback: the innermost ones.
MAX_FRAMES = 40

#: Begins the note that a restored error carries. An error that is captured again gives its earlier traceback back.
_NOTE = "First raised at:\n"

T = TypeVar("T")


class Failure(Struct, frozen=True, omit_defaults=True):
    """An error as data."""

    #: `module:qualname` of its class.
    type: str
    #: Its `str()`, cleaned and cut.
    message: str
    code: str | None = None
    #: Plain JSON, for people and other languages.
    details: Any = None
    #: False: no more attempts. None: the error does not say.
    retryable: bool | None = None
    #: What its class is built from again, as tagged JSON; None: they cannot be carried.
    args: list[Any] | None = None
    #: Its attributes, as tagged JSON.
    state: dict[str, Any] = {}  # msgspec copies it
    cause: Failure | None = None
    #: The members of an exception group.
    group: tuple[Failure, ...] = ()
    traceback: str = ""


def capture(error: BaseException) -> Failure:
    """The failure that `error` is. Never raises."""
    failure = _quietly(lambda: _Capture().failure(error, 0))
    return failure or Failure(_type_name(error), "(the error cannot be shown)")


def encode_failure(failure: Failure) -> bytes:
    """JSON bytes."""
    return msgspec.json.encode(failure)


def decode_failure(data: bytes) -> Failure:
    """The failure of JSON bytes. Bytes that are none give a marker that says so: what lists failures must not fail."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        message = f"the recorded failure cannot be read ({error}); it begins {bytes(data[:200])!r}"
        return Failure("perdure:UnreadableFailure", clean(message), code="unreadable_failure", retryable=False)


_decode = msgspec.json.Decoder(Failure).decode


class _Capture:
    """Takes one error apart, with its causes and members, within bounds that they share."""

    def __init__(self) -> None:
        self.errors = MAX_ERRORS
        self.room = MAX_PARTS
        #: The errors that we are inside of: a cause may lead back to one of them.
        self.inside: set[int] = set()

    def failure(self, error: BaseException, depth: int) -> Failure:
        self.errors -= 1
        if self.errors < 0 or depth > MAX_DEPTH or id(error) in self.inside:
            return Failure(_type_name(error), clean(_text(error), 200))
        origin = error.__dict__.get("_failure") if type(error) is StepFailed else None
        if isinstance(origin, Failure):  # it passes through: whoever knows its class shall have it
            return origin
        self.inside.add(id(error))
        try:
            return self._take(error, depth)
        finally:
            self.inside.discard(id(error))

    def _take(self, error: BaseException, depth: int) -> Failure:
        message = self._cut(_text(error), MAX_MESSAGE)
        trace = self._cut(_traceback(error), MAX_INNER_TRACEBACK if depth else MAX_TRACEBACK)
        args, state = self._parts(error, depth)
        details = self._fitting(_plain(_attribute(error, "details")))
        cause = error.__cause__
        inner = None if cause is None or id(cause) in self.inside else self.failure(cause, depth + 1)
        group: tuple[Failure, ...] = ()
        if is_a(error, BaseExceptionGroup):
            members = cast("BaseExceptionGroup[BaseException]", error).exceptions
            group = tuple(self.failure(member, depth + 1) for member in members[: max(self.errors, 1)])
        return Failure(
            type=_type_name(error),
            message=message,
            code=_code(error),
            details=details,
            retryable=_retryable(error, group),
            args=args,
            state=state,
            cause=inner,
            group=group,
            traceback=trace,
        )

    def _parts(self, error: BaseException, depth: int) -> tuple[list[Any] | None, dict[str, Any]]:
        """The arguments and attributes as pickle would take them, by the built-in base: no user's code is run."""
        reduced: Any = _quietly(lambda: _builtin_base(type(error)).__reduce__(error)) or (type(error), error.args)
        args = reduced[1][:1] if is_a(error, BaseExceptionGroup) else reduced[1]
        attributes: dict[str, Any] = {**_slots(error), **(reduced[2] if len(reduced) > 2 and reduced[2] else {})}
        notes = _notes(error)
        state: dict[str, Any] = {"__notes__": notes} if notes else {}
        for name, value in attributes.items():
            packed = None if _is_special(name) else self._packed(value, depth)
            if packed is not None or value is None:
                state[clean(name)] = packed
        return self._packed(list(args), depth), state

    def _packed(self, value: Any, depth: int) -> Json:
        """Tagged JSON; None if it cannot be carried, or there is no room left."""

        def inner(error: BaseException) -> Json:
            return msgspec.to_builtins(self.failure(error, depth + 1))

        return self._fitting(_quietly(lambda: pack(value, inner))) if self.room > 0 else None

    def _fitting(self, json: Json) -> Json:
        size = _quietly(lambda: len(msgspec.json.encode(json)))  # an integer may have too many digits
        if size is None or size > self.room:
            return None
        self.room -= size
        return json

    def _cut(self, text: str, limit: int) -> str:
        text = clean(text, min(limit, max(self.room, 200)))
        self.room -= len(text)
        return text


def summary(failure: Failure) -> str:
    """The failure in a few words, for sentences: its message, with its class where that alone says too little."""
    name = failure.type.rpartition(":")[2].rpartition(".")[2]
    if not failure.message:
        return name
    return f"{name}: {failure.message}" if name == "KeyError" else failure.message


def restore(failure: Failure) -> Exception:
    """The error again: its own class where that is imported here and can be rebuilt, else `StepFailed`. Never raises.

    A note on it says where it was first raised.
    """
    error = _quietly(lambda: _own_class(failure)) or _unknown(failure)
    if failure.cause is not None:
        error.__cause__ = restore(failure.cause)
    if failure.traceback:
        _quietly(lambda: error.add_note(_NOTE + failure.traceback))
    return error


def _own_class(failure: Failure) -> Exception | None:
    cls = find_class(failure.type)
    if failure.group:
        return _group(failure, cls)
    if cls is None or not issubclass(cls, Exception):
        return None
    if cls.__module__ == errors.__name__:
        return _one_of_ours(failure, cls)
    if failure.args is not None:
        args = failure.args
        error = _quietly(lambda: _rebuilt(cls, unpack(args, _inner), failure))
        if error is not None and _says(error) == failure.message:
            return error
    # Arguments that could not be carried, or do not say what the error said: its text must do. The class counts most.
    error = _quietly(lambda: _rebuilt(cls, [failure.message], failure))
    return error if error is not None and failure.message in (_says(error) or "") else None


def _rebuilt(cls: type[Exception], args: list[Any], failure: Failure) -> Exception:
    """An instance made by its built-in base alone: the class's own `__init__` need not take what ended up in `args`."""
    base = _builtin_base(cls)
    error = base.__new__(cls, *args)
    base.__init__(error, *args)
    _set_state(error, failure)
    return error


def _one_of_ours(failure: Failure, cls: type[Exception]) -> Exception:
    """Ours all take a message alone; a failure that was written by hand has no state, but may have a code of its own."""
    error = cls(failure.message)
    _set_state(error, failure)
    for name in ("code", "details", "retryable"):
        value = getattr(failure, name)
        if value is not None and name not in failure.state and getattr(error, name, None) != value:
            setattr(error, name, value)
    return error


def _set_state(error: Exception, failure: Failure) -> None:
    for name, value in failure.state.items():
        if name == "__notes__" or not _is_special(name):
            # Past a __setattr__ of its own, as a frozen dataclass has.
            BaseException.__setattr__(error, name, unpack(value, _inner))


def _group(failure: Failure, cls: type | None) -> Exception:
    members = [restore(member) for member in failure.group]
    message = str((failure.args or [failure.message])[0])
    kind: Any = cls if cls is not None and ExceptionGroup in cls.__mro__ else ExceptionGroup
    error = _quietly(lambda: ExceptionGroup[Exception].__new__(kind, message, members)) or ExceptionGroup(
        message, members
    )
    _quietly(lambda: _set_state(error, failure))
    return error


def _unknown(failure: Failure) -> StepFailed:
    error = StepFailed(
        failure.message,
        type=failure.type,
        code=failure.code,
        details=failure.details,
        traceback=failure.traceback or None,
    )
    if failure.retryable is not None:
        error.__dict__["retryable"] = failure.retryable
    error.__dict__["_failure"] = failure
    return error


def _inner(json: Json) -> Exception:
    return restore(msgspec.convert(json, Failure))


def _builtin_base(cls: type[BaseException]) -> type[BaseException]:
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _slots(error: BaseException) -> dict[str, Any]:
    declared = [vars(cls).get("__slots__", ()) for cls in type(error).__mro__]
    names = [name for slots in declared for name in ((slots,) if isinstance(slots, str) else slots)]
    return {name: getattr(error, name) for name in names if not _is_special(name) and hasattr(error, name)}


def _is_special(name: str) -> bool:
    return name.startswith("__")


def _type_name(error: BaseException) -> str:
    return clean(_quietly(lambda: class_name(type(error))) or "perdure:UnknownError", 300)


def _text(error: BaseException) -> str:
    text = _quietly(lambda: str(error))
    return text if text is not None else f"(a {type(error).__name__} whose text cannot be shown)"


def _says(error: Exception) -> str | None:
    return _quietly(lambda: clean(str(error), MAX_MESSAGE))


def _attribute(error: BaseException, name: str) -> Any:
    return _quietly(lambda: getattr(error, name, None))


def _plain(value: object) -> Json:
    return None if value is None else _quietly(lambda: msgspec.json.decode(encode(value, what="an error's details")))


def _code(error: BaseException) -> str | None:
    code = _attribute(error, "code")
    if isinstance(code, str | int) and not isinstance(code, bool):
        return _quietly(lambda: clean(str(code), 200))
    return None


def _retryable(error: BaseException, group: tuple[Failure, ...]) -> bool | None:
    """What the error says; a group is not retryable if one member is not."""
    own = _attribute(error, "retryable")
    if isinstance(own, bool):
        return own
    return False if any(member.retryable is False for member in group) else None


def _traceback(error: BaseException) -> str:
    """Where it was raised, innermost frame last, and before that where it was raised before it was stored."""
    frames = _quietly(lambda: traceback.format_tb(_from_user_code(error.__traceback__), limit=-MAX_FRAMES)) or []
    before = next((note.removeprefix(_NOTE) for note in _all_notes(error) if note.startswith(_NOTE)), "")
    return "".join(frames) + (_NOTE if frames and before else "") + before


def _notes(error: BaseException) -> list[str]:
    """The notes of users."""
    return [clean(note, 1000) for note in _all_notes(error) if not note.startswith(_NOTE)][:20]


def _all_notes(error: BaseException) -> list[str]:
    notes = _attribute(error, "__notes__")
    return [note for note in notes if isinstance(note, str)] if is_a(notes, list) else []


def _quietly(action: Callable[[], T]) -> T | None:
    """What `action` returns; None if it raises. The errors of others misbehave in every way; only Ctrl-C passes."""
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _from_user_code(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames of ours that it begins with: how a step came to be called is of no interest to its author."""
    start = trace
    while start is not None and str(start.tb_frame.f_globals.get("__name__", "")).startswith("perdure."):
        start = start.tb_next
    return trace if start is None else start
