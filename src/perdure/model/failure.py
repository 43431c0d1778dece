"""Failures: errors as data, so that they can be stored, sent, and raised again elsewhere.

`capture` and `restore` never raise: they run where something has already gone wrong. Text is cleaned and cut, attributes
that cannot be carried are left out; `restore` rebuilds an error's own class only where that is already imported, without
running its `__init__`, and falls back to `StepFailed`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from perdure.model.errors import GatherError, StepFailed
from perdure.model.tagged import Json, class_name, clean, find_class, pack, unpack
from perdure.model.values import encode

#: Characters of a message, and of a traceback.
MAX_MESSAGE = 8 * 1024
MAX_TRACEBACK = 16 * 1024
#: Bytes of the arguments, attributes and details of one error with all its causes and members.
MAX_STATE = 256 * 1024
#: How many errors, and how deep, one failure holds.
MAX_ERRORS = 256
MAX_DEPTH = 16
#: Frames of a traceback: the innermost ones.
MAX_FRAMES = 40

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
        message = f"the recorded failure cannot be read ({error}); it begins {data[:200]!r}"
        return Failure("perdure:UnreadableFailure", clean(message), code="unreadable_failure", retryable=False)


_decode = msgspec.json.Decoder(Failure).decode


class _Capture:
    """Takes one error apart, with its causes and members, within bounds that they share."""

    def __init__(self) -> None:
        self.errors = MAX_ERRORS
        self.room = MAX_STATE
        #: The errors that we are inside of: a cause may lead back to one of them.
        self.inside: set[int] = set()

    def failure(self, error: BaseException, depth: int) -> Failure:
        self.errors -= 1
        if self.errors < 0 or depth > MAX_DEPTH or id(error) in self.inside:
            return Failure(_type_name(error), clean(_text(error), 200))
        origin = vars(error).get("_failure") if type(error) is StepFailed else None
        if isinstance(origin, Failure):  # it passes through: whoever knows its class shall have it
            return msgspec.structs.replace(origin, traceback=_traceback(error, origin.traceback))
        self.inside.add(id(error))
        try:
            return self._take(error, depth)
        finally:
            self.inside.discard(id(error))

    def _take(self, error: BaseException, depth: int) -> Failure:
        args, state = self._parts(error, depth)
        group: tuple[Failure, ...] = ()
        if isinstance(error, BaseExceptionGroup):
            members = cast("BaseExceptionGroup[BaseException]", error).exceptions
            group = tuple(self.failure(member, depth + 1) for member in members[: max(self.errors, 1)])
        cause = error.__cause__
        return Failure(
            type=_type_name(error),
            message=clean(_text(error), MAX_MESSAGE),
            code=_code(error),
            details=self._details(error),
            retryable=_retryable(error, group),
            args=args,
            state=state,
            cause=None if cause is None or id(cause) in self.inside else self.failure(cause, depth + 1),
            group=group,
            traceback=_traceback(error, _own_note(error)),
        )

    def _parts(self, error: BaseException, depth: int) -> tuple[list[Any] | None, dict[str, Any]]:
        """The arguments and attributes as pickle would take them, by the built-in base: no user's code is run."""
        parts: tuple[Any, ...] = _quietly(lambda: _builtin_base(type(error)).__reduce__(error)) or (None, error.args)  # type: ignore[assignment]
        args: Any = parts[1][:1] if isinstance(error, BaseExceptionGroup) else parts[1]
        packed = self._packed([*args], depth)
        attributes: dict[str, Any] = dict(parts[2]) if len(parts) > 2 and parts[2] else {}
        attributes.update(_slots(error))
        notes = [note for note in attributes.pop("__notes__", ()) if not _is_ours(note)]
        if notes:
            attributes["__notes__"] = notes
        state: dict[str, Any] = {}
        for name, value in attributes.items():
            item = self._packed(value, depth)
            if item is not None or value is None:
                state[clean(str(name))] = item
        return packed, state

    def _packed(self, value: Any, depth: int) -> Json:
        """Tagged JSON; None if it cannot be carried, or there is no room left."""

        def nested(error: BaseException) -> Json:
            return msgspec.to_builtins(self.failure(error, depth + 1))

        packed = _quietly(lambda: pack(value, nested))
        return self._fitting(packed)

    def _details(self, error: BaseException) -> Json:
        details = _attribute(error, "details")
        plain = _quietly(lambda: msgspec.json.decode(encode(details, what="an error's details")))
        return self._fitting(plain)

    def _fitting(self, json: Json) -> Json:
        size = len(msgspec.json.encode(json))
        if size > self.room:
            return None
        self.room -= size
        return json


def restore(failure: Failure) -> Exception:
    """The error again: its own class where that is imported here and can be rebuilt, else `StepFailed`. Never raises."""
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
    if failure.args is not None:
        error = _quietly(lambda: _rebuilt(cls, unpack(failure.args, _nested), failure))
        if error is not None:
            return error
    # Arguments that could not be carried, or do not say what the error said: its text must do.
    return _quietly(lambda: _rebuilt(cls, [failure.message], failure))


def _rebuilt(cls: type[Exception], args: list[Any], failure: Failure) -> Exception | None:
    """An instance made by its built-in base alone: the class's own `__init__` need not take what ended up in `args`."""
    base = _builtin_base(cls)
    error = cast("Exception", base.__new__(cls, *args))
    base.__init__(error, *args)
    _set_state(error, failure)
    return error if clean(str(error), MAX_MESSAGE) == failure.message else None


def _set_state(error: Exception, failure: Failure) -> None:
    for name, value in failure.state.items():
        # Past a __setattr__ of its own, as a frozen dataclass has.
        BaseException.__setattr__(error, name, unpack(value, _nested))
    if isinstance(error, GatherError):
        for name in ("failures", "results"):
            if name not in failure.state:  # too large to carry
                setattr(error, name, [])


def _group(failure: Failure, cls: type | None) -> Exception:
    members = [restore(member) for member in failure.group]
    message = str((failure.args or [failure.message])[0])
    kind = cls if cls is not None and issubclass(cls, ExceptionGroup) else ExceptionGroup
    error = _quietly(lambda: ExceptionGroup.__new__(kind, message, members)) or ExceptionGroup(message, members)
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
        error.retryable = failure.retryable  # type: ignore[attr-defined]
    error._failure = failure  # type: ignore[attr-defined]
    return error


def _nested(json: Json) -> Exception:
    return restore(msgspec.convert(json, Failure))


def _builtin_base(cls: type[BaseException]) -> type[BaseException]:
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _slots(error: BaseException) -> dict[str, Any]:
    names = [name for cls in type(error).__mro__ for name in _names(cls.__dict__.get("__slots__", ()))]
    return {name: getattr(error, name) for name in names if hasattr(error, name)}


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _type_name(error: BaseException) -> str:
    return clean(_quietly(lambda: class_name(type(error))) or "perdure:UnknownError", 500)


def _text(error: BaseException) -> str:
    text = _quietly(lambda: str(error))
    return text if text is not None else f"(a {type(error).__name__} whose text cannot be shown)"


def _attribute(error: BaseException, name: str) -> Any:
    return _quietly(lambda: getattr(error, name, None))


def _code(error: BaseException) -> str | None:
    code = _attribute(error, "code")
    if isinstance(code, str | int) and not isinstance(code, bool):
        return clean(str(code), 200)
    return None


def _retryable(error: BaseException, group: tuple[Failure, ...]) -> bool | None:
    """What the error says; a group is not retryable if one member is not."""
    own = _attribute(error, "retryable")
    if isinstance(own, bool):
        return own
    return False if any(member.retryable is False for member in group) else None


def _traceback(error: BaseException, before: str) -> str:
    """Where it was raised, innermost frames last, and where it was before it came here."""
    frames = _quietly(lambda: traceback.format_tb(error.__traceback__, limit=-MAX_FRAMES)) or []
    text = clean("".join(frames), MAX_TRACEBACK)
    return clean(f"{text}{_NOTE}{before}" if text and before else text or before, MAX_TRACEBACK)


def _own_note(error: BaseException) -> str:
    for note in _attribute(error, "__notes__") or ():
        if _is_ours(note):
            return cast("str", note).removeprefix(_NOTE)
    return ""


def _is_ours(note: object) -> bool:
    return isinstance(note, str) and note.startswith(_NOTE)


def _quietly(action: Callable[[], T]) -> T | None:
    """What `action` returns; None if it raises. The errors of others misbehave in every way; only Ctrl-C passes."""
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
