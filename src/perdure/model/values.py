"""Values: what workflows, steps and messages carry, as JSON bytes, and back by type hint.

The rules:

* Values are stored as JSON and come back by the type hint of the place that reads them: JSON's own types, list, tuple, set,
  frozenset, dict, dataclasses, NamedTuple, TypedDict, `msgspec.Struct`, pydantic models, attrs classes, enums, Literal,
  unions, datetime, date, time, timedelta, Decimal, UUID, bytes, paths. Without a hint (`Any`) they come back in their plain
  JSON shape: lists, dicts with str keys, text.
* The engine passes every value through this form, also the first time: a body never sees the live object first and its
  copy later. So what is passed in may be changed by its owner afterwards, and nothing that was stored changes with it.
* What would not come back is refused at the call, with the path to it: NaN and infinities, half surrogate pairs, cycles,
  open files, iterators, objects without a known shape. Keys of dicts are str; keys that JSON writes as text (int, UUID, date,
  Decimal, enums...) are taken only where a hint restores them.
* An instance of a subclass comes back as what its hint says. Datetimes keep their instant and offset, not the zone's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import msgspec

from perdure.model.errors import InvalidValue, ValueTooLarge
from perdure.model.hints import hook, shape
from perdure.model.shape import hint_name
from perdure.model.storable import Misfit, OddKey, fields_of, fits, is_a, lower

#: Bytes of JSON.
MAX_VALUE = 2 * 1024 * 1024

_encode = msgspec.json.Encoder().encode


def encode(value: object, type: Any = Any, *, what: str, limit: int = MAX_VALUE) -> bytes:
    """JSON bytes of `value`, which are to be restored by the hint `type`.

    `what` names the value in errors, as in "input of step 'charge' of run 'r1'". Raises `InvalidValue` for what cannot be
    stored, `ValueTooLarge` above `limit` bytes. Measured: 0.1 us for a text or number, 0.8 for a dict of five, 1.4 for a
    dataclass of four fields; decoding takes half of that. Slower: pydantic models (5), and keys that are no str (3 each).
    """
    try:
        data = _encode(value) if fits(value) else None
    except Exception:  # also whatever properties of users' classes raise
        data = None
    if data is None:
        data = _encode_carefully(value, type, what)
    if len(data) > limit:
        raise ValueTooLarge(
            f"{what} is {len(data):,} bytes as JSON, more than the {limit:,} allowed: "
            "store it elsewhere and pass a reference to it"
        )
    return data


def _encode_carefully(value: object, type: Any, what: str) -> bytes:
    """The slow way: for what msgspec does not write exactly, or not at all."""
    try:
        try:
            return _encode(lower(value))
        except OddKey:
            if type is Any:
                raise
            return _encode_odd_keys(value, type, what)
    except Misfit as misfit:
        raise InvalidValue(f"{what} cannot be stored: at {misfit.where()}: {misfit.reason}") from None
    except RecursionError as error:
        raise InvalidValue(f"{what} cannot be stored: it is nested too deeply") from error
    except InvalidValue:
        raise
    except Exception as error:
        raise InvalidValue(f"{what} cannot be stored: {error.__class__.__name__}: {error}") from error


def _encode_odd_keys(value: object, type: Any, what: str) -> bytes:
    data = _encode(lower(value, odd_keys=True))
    if list(_keys(decode(data, type, what=what))) != list(_keys(value)):
        lower(value)  # raises, with the path to the first of them
    return data


def _keys(value: Any) -> Iterator[list[tuple[Any, Any]]]:
    """The keys of all dicts in `value`, outermost first, with their types (1 equals True)."""
    items: Any = ()
    if is_a(value, Mapping):
        yield [(key.__class__, key) for key in value]
        items = value.values()
    elif is_a(value, list, tuple, set, frozenset):
        items = value
    else:
        items = (getattr(value, name, None) for name in fields_of(value.__class__))
    for item in items:
        yield from _keys(item)


def decode(data: bytes, type: Any = Any, *, what: str) -> Any:
    """The value of JSON bytes, restored by the hint `type`. Raises `InvalidValue`; `what` names the value in it."""
    plan = _plan_of(type)
    try:
        return plan.decode(data)
    except Exception as error:
        raise InvalidValue(f"{what} {plan.explain(data, error)}") from error


def decoder(type: Any) -> Callable[[bytes], Any]:
    """A function that restores values of one hint: the same one each time, for those who keep many. Raises as `decode` does."""
    return _plan_of(type).restore


def check_hint(type: Any, what: str = "the value") -> None:
    """Raise `InvalidValue` for a hint whose values can never be restored; `what` says whose hint it is."""
    try:
        _plan_of(type)
    except InvalidValue as error:
        raise InvalidValue(f"{what}: {error}") from error.__cause__


class _Plan:
    """How to restore the values of one hint."""

    __slots__ = ("decode", "name", "restore", "shape")

    def __init__(self, hint: Any) -> None:
        self.name = hint_name(hint)
        try:
            self.shape = shape(hint)
        except Misfit as misfit:
            place = f" at {misfit.where()}" if misfit.path else ""
            raise InvalidValue(f"the type hint {self.name} cannot be used{place}: {misfit.reason}") from misfit
        except TypeError as error:  # not hashable, as no type is
            raise InvalidValue(f"{self.name} is no type hint") from error
        self.decode: Callable[[bytes], Any]
        try:
            self.decode = msgspec.json.Decoder(hint, dec_hook=hook).decode
        except Exception:  # a hint that msgspec does not know
            self.decode = self.decode_by_shape
        #: As `decode`, but raises `InvalidValue`. (A method would be a new object each time it is asked for.)
        self.restore: Callable[[bytes], Any] = partial(_restore, self)

    def decode_by_shape(self, data: bytes) -> Any:
        return self.shape.restore(msgspec.json.decode(data))

    def explain(self, data: bytes, error: Exception) -> str:
        """Why `data` could not be decoded."""
        try:
            plain = msgspec.json.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as malformed:
            return f"is not JSON ({malformed}); it begins {bytes(data[:100])!r}"
        try:
            self.shape.restore(plain)
        except Misfit as misfit:
            return f"does not fit its type {self.name}: at {misfit.where()}: {misfit.reason}"
        except RecursionError:
            return f"is nested too deeply for its type {self.name}"
        return f"does not fit its type {self.name}: {error}"


def _restore(plan: _Plan, data: bytes) -> Any:
    try:
        return plan.decode(data)
    except Exception as error:
        raise InvalidValue(f"the value {plan.explain(data, error)}") from error


def _plan_of(hint: Any) -> _Plan:
    try:
        return _plan(hint)
    except TypeError:  # not hashable, as some Annotated are
        return _Plan(hint)


_plan = lru_cache(maxsize=4096)(_Plan)
