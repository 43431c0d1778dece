"""Type hints: how values of a hint look in JSON, and how they are made again.

A hint becomes a tree of `Shape`s. msgspec decodes most hints by itself, far faster; the tree says which hints can be
restored at all, restores what msgspec cannot (unions of classes, enums of other things than texts and numbers), and finds
the exact path where a value does not fit.

Members of a union are told apart by their JSON alone: by its form (text, number, list, object), objects by the names of
their fields. Members that can never be told apart are refused.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Sequence
from enum import EnumType
from functools import lru_cache
from typing import Any, Literal

import msgspec

from perdure.model.leaves import enumeration, leaf, literal, pydantic_model, scalar_class
from perdure.model.shape import (
    BOOL,
    EVERYTHING,
    LIST,
    NULL,
    OBJECT,
    SCALARS,
    Restore,
    Shape,
    as_is,
    at,
    describe,
    expect,
    hint_name,
    is_literal,
    refuse,
)
from perdure.model.shown import shown, told
from perdure.model.storable import Misfit, is_a, is_pydantic
from perdure.model.unions import check_apart, restore_union

_LISTS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
}
_DICTS = frozenset({dict, abc.Mapping, abc.MutableMapping})
_WRAPPERS = frozenset({typing.Final, typing.ClassVar, typing.Required, typing.NotRequired, typing.Annotated})


def shape(hint: Any) -> Shape:
    """The shape of `hint`. Raises `Misfit`, with the path of fields to it, for a hint that cannot be restored."""
    return _Compiler({}, {}).shape(hint)


_shape_of = lru_cache(maxsize=1024)(shape)


def hook(cls: Any, value: Any) -> Any:
    """For msgspec: makes an instance of a class that it does not know. Raises ValueError, to which it adds the path."""
    try:
        return _shape_of(cls).restore(value)
    except Misfit as misfit:
        raise ValueError(f"{misfit.reason} (in it at {misfit.where()})" if misfit.path else misfit.reason) from misfit


class _Compiler:
    """Makes shapes. `done` holds those of this hint, finished or not; `params` what type variables stand for."""

    def __init__(self, done: dict[Any, Shape], params: dict[Any, Any]) -> None:
        self.done = done
        self.params = params

    def shape(self, hint: Any) -> Shape:
        hint = self._substituted(hint)
        try:
            known = self.done.get(hint)
        except TypeError:  # an unhashable one, which cannot refer to itself
            return self._fill(hint, Shape(hint_name(hint)))
        if known is not None:
            return known
        self.done[hint] = fresh = Shape(hint_name(hint))
        return self._fill(hint, fresh)

    def _substituted(self, hint: Any) -> Any:
        if not self.params:
            return hint
        if isinstance(hint, typing.TypeVar):
            return self.params.get(hint, hint)
        variables: Sequence[Any] = getattr(hint, "__parameters__", ())
        if not variables or isinstance(hint, type):
            return hint
        return hint[tuple(self.params.get(variable, Any) for variable in variables)]

    def _fill(self, hint: Any, into: Shape) -> Shape:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if hint is Any or hint is object:
            into.forms, into.restore = EVERYTHING, as_is
        elif hint is None or hint is type(None):
            into.forms, into.restore = frozenset({NULL}), leaf(None)
        elif isinstance(hint, type) and hint in SCALARS:
            into.forms, into.restore = SCALARS[hint], leaf(hint)
        elif origin is typing.Union or origin is types.UnionType:
            self._union(args, into)
        elif origin is Literal:
            literal(args, into)
        elif hint is typing.NoReturn or hint is typing.Never:
            into.restore = _nothing
        elif origin in _WRAPPERS or isinstance(hint, typing.NewType | typing.TypeVar) or hasattr(hint, "__value__"):
            self._alias(self._behind(hint, origin, args), into)
        elif isinstance(hint, str | typing.ForwardRef):
            refuse(f"the name {shown(hint)} stands for no class yet: define it at the top level of its module")
        else:
            self._class(hint if origin is None else origin, args, into)
        return into

    def _alias(self, hint: Any, into: Shape) -> None:
        into.become(self.shape(hint))

    def _behind(self, hint: Any, origin: Any, args: tuple[Any, ...]) -> Any:
        if isinstance(hint, typing.NewType):
            return hint.__supertype__
        if isinstance(hint, typing.TypeVar):
            constraints: tuple[Any, ...] = hint.__constraints__
            return typing.Union[constraints] if constraints else hint.__bound__ or Any  # noqa: UP007  # a tuple of them
        if origin is not None and origin in _WRAPPERS:
            return args[0]
        value = hint.__value__
        return value[args] if args else value

    def _class(self, cls: Any, args: tuple[Any, ...], into: Shape) -> None:
        if cls in _LISTS:
            self._list(_LISTS[cls], args, into)
        elif cls is tuple and (not args or args[-1] is Ellipsis):
            self._list(tuple, args[:1], into)
        elif cls is tuple:
            self._record(args, into)
        elif cls in _DICTS:
            self._dict(args, into)
        elif not is_a(cls, type):
            refuse(f"{hint_name(cls)} is no type whose values can be stored")
        elif is_a(cls, EnumType):
            enumeration(cls, into)
        elif is_pydantic(cls):
            pydantic_model(cls, into)
        elif tuple in cls.__mro__ and "_fields" in dir(cls):
            self._named_tuple(cls, args, into)
        elif typing.is_typeddict(cls):
            self._typed_dict(cls, args, into)
        elif dataclasses.is_dataclass(cls):
            self._dataclass(cls, args, into)
        elif msgspec.Struct in cls.__mro__ or "__attrs_attrs__" in cls.__dict__:
            self._foreign(cls, args, into)
        else:
            scalar_class(cls, into)

    def _union(self, members: Sequence[Any], into: Shape) -> None:
        if Any in members or object in members:
            into.forms, into.restore = EVERYTHING, as_is
            return
        shapes = [self.shape(member) for member in members]
        for number, one in enumerate(shapes):
            for other in shapes[number + 1 :]:
                check_apart(one, other)
        into.forms = frozenset().union(*(member.forms for member in shapes))
        into.restore = lambda value: restore_union(shapes, value)

    def _list(self, make: Callable[[list[Any]], Any], args: Sequence[Any], into: Shape) -> None:
        into.forms = frozenset({LIST})
        member = self._within("[]", args[0] if args else Any)

        def restore(value: Any) -> Any:
            items = [at(index, member, item) for index, item in enumerate(expect(list, value, into))]
            try:
                return make(items)
            except TypeError as error:
                raise Misfit(f"{into.name} cannot hold these items: {error}") from None

        into.restore = restore

    def _record(self, args: Sequence[Any], into: Shape) -> None:
        into.forms = frozenset({LIST})
        members = [self._within(index, arg) for index, arg in enumerate(args)]

        def restore(value: Any) -> Any:
            items = expect(list, value, into)
            if len(items) != len(members):
                raise Misfit(f"expected {len(members)} items for {into.name}, found {len(items)}")
            return tuple(
                at(index, member, item) for index, (member, item) in enumerate(zip(members, items, strict=True))
            )

        into.restore = restore

    def _dict(self, args: Sequence[Any], into: Shape) -> None:
        into.forms = frozenset({OBJECT})
        key, item = (args[0], self._within("{}", args[1])) if args else (str, self.shape(Any))
        restore_key = self._key(self._substituted(key))

        def restore(value: Any) -> Any:
            return {restore_key(name): at(name, item, inner) for name, inner in expect(dict, value, into).items()}

        into.restore = restore

    def _key(self, hint: Any) -> Restore:
        if hint is str or hint is Any or hint is object:
            return as_is
        forms = self.shape(hint).forms
        if not forms or forms & {NULL, BOOL, LIST, OBJECT}:
            refuse(f"keys of {hint_name(hint)} have no JSON form: use str keys, or a list of pairs")
        table: Any = dict[hint, None]
        try:
            msgspec.json.Decoder(table)
        except TypeError as error:
            refuse(f"keys of {hint_name(hint)} cannot be restored: {error}")
        restore = leaf(table)  # JSON's keys are texts, which only msgspec's tables turn into other things
        return lambda name: next(iter(restore({name: None})))

    def _within(self, step: str | int, hint: Any) -> Shape:
        try:
            return self.shape(hint)
        except Misfit as misfit:
            raise misfit.within(step) from None

    def _fields(self, cls: Any, args: tuple[Any, ...], names: Iterable[str], into: Shape) -> dict[str, Shape]:
        """The shapes of a class's fields; also says what its objects are known by."""
        into.forms, into.names = frozenset({OBJECT}), frozenset(names)
        hints = _class_hints(cls)
        inner = _Compiler(self.done, dict(zip(getattr(cls, "__parameters__", ()), args, strict=False)))
        into.discriminated = any(is_literal(hints.get(name)) for name in names)
        return {name: inner._within(name, hints.get(name, Any)) for name in names}

    def _dataclass(self, cls: Any, args: tuple[Any, ...], into: Shape) -> None:
        if any(
            isinstance(hint, dataclasses.InitVar) or hint is dataclasses.InitVar for hint in _class_hints(cls).values()
        ):
            refuse(f"{cls.__qualname__} has an InitVar, which is not stored: make it a field")
        fields = {field.name: field for field in dataclasses.fields(cls)}
        shapes = self._fields(cls, args, fields, into)

        def restore(value: Any) -> Any:
            given = expect(dict, value, into)
            made: Any = object.__new__(cls)
            for name, field in fields.items():
                if name in given:
                    object.__setattr__(made, name, at(name, shapes[name], given[name]))
                elif field.default is not dataclasses.MISSING:
                    object.__setattr__(made, name, field.default)
                elif field.default_factory is not dataclasses.MISSING:
                    object.__setattr__(made, name, field.default_factory())
                elif field.init:
                    raise Misfit(f"the field {name!r} of {into.name} is missing")
            _finish(made)
            return made

        into.restore = restore

    def _typed_dict(self, cls: Any, args: tuple[Any, ...], into: Shape) -> None:
        hints = _class_hints(cls)
        shapes = self._fields(cls, args, hints, into)
        optional = {name for name, hint in hints.items() if typing.get_origin(hint) is typing.NotRequired}
        required: set[str] = {name for name, hint in hints.items() if typing.get_origin(hint) is typing.Required}
        required |= cls.__required_keys__ - optional

        def restore(value: Any) -> Any:
            given = expect(dict, value, into)
            for name in required:
                if name not in given:
                    raise Misfit(f"the key {name!r} of {into.name} is missing")
            return {name: at(name, shapes[name], item) for name, item in given.items() if name in shapes}

        into.restore = restore

    def _named_tuple(self, cls: Any, args: tuple[Any, ...], into: Shape) -> None:
        names: tuple[str, ...] = cls._fields
        shapes = self._fields(cls, args, names, into)
        into.forms, into.names = frozenset({LIST}), None
        defaults: dict[str, Any] = cls._field_defaults

        def restore(value: Any) -> Any:
            items = expect(list, value, into)
            rest = names[len(items) :]
            if len(items) > len(names) or any(name not in defaults for name in rest):
                raise Misfit(f"expected {len(names)} items for {into.name}, found {len(items)}")
            values = [at(index, shapes[names[index]], item) for index, item in enumerate(items)]
            row: Any = tuple
            return row.__new__(cls, [*values, *(defaults[name] for name in rest)])

        into.restore = restore

    def _foreign(self, cls: Any, args: tuple[Any, ...], into: Shape) -> None:
        """A class that msgspec knows better; its fields are looked at all the same, for what cannot be restored."""
        is_struct = msgspec.Struct in cls.__mro__
        attributes: Sequence[Any] = () if is_struct else cls.__attrs_attrs__
        names = cls.__struct_fields__ if is_struct else tuple(field.name for field in attributes)
        self._fields(cls, args, names, into)
        if is_struct:
            into.names = frozenset(cls.__struct_encode_fields__)
            into.discriminated |= cls.__struct_config__.tag is not None
            into.forms = frozenset({LIST if cls.__struct_config__.array_like else OBJECT})
        hint = cls[args] if args else cls
        try:
            msgspec.json.Decoder(hint, dec_hook=hook)
        except (TypeError, NameError, RecursionError) as error:
            refuse(f"{cls.__qualname__}: {error}")
        into.restore = leaf(hint, hook)


def _class_hints(cls: Any) -> dict[str, Any]:
    module = vars(sys.modules.get(cls.__module__, types))
    try:
        # A class made inside a function is found by nobody, but may refer to itself.
        return typing.get_type_hints(
            cls, {cls.__name__: cls, **module} if cls.__name__ not in module else None, include_extras=True
        )
    except NameError as error:
        refuse(
            f"an annotation of {cls.__qualname__} cannot be resolved ({error}): define it at the top level of its module"
        )
    except TypeError as error:
        refuse(f"an annotation of {cls.__qualname__} is no type ({error})")


def _nothing(value: Any) -> Any:
    raise Misfit(f"expected no value at all, found {describe(value)}")


def _finish(made: Any) -> None:
    try:
        if hasattr(made, "__post_init__"):
            made.__post_init__()
    except Exception as error:
        raise Misfit(f"{hint_name(type(made))} does not accept it: {type(error).__name__}: {told(error)}") from error
