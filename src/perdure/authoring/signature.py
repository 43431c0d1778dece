"""A function's input as JSON, so that other languages can call it, and back to arguments.

The rule, by the number of parameters (a workflow's context is not counted):

* none: nothing, which is `null` (`{}` is understood too);
* one: the input itself;
* several: an object of the parameters' names. The first one is always in it; others may be left out if they have defaults.

So that a function can grow a second parameter with a default while old inputs are under way, a function whose parameters
after the first all have defaults also takes the input itself, for its first parameter: whatever is not an object with the
first parameter's name and none but parameters' names. A value for a single parameter that would then be misread, because it
is itself an object with the parameter's name in it, is written with its name on it: `{"$args": {"order": {"order": ...}}}`.
Any function understands that form. `null` means no arguments where the first parameter has a default and takes no `null`.

Defaults are not written (but for the first parameter's), so they need not be storable.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Never, NoReturn

import msgspec

from perdure.authoring.function import parameters_of
from perdure.authoring.hints import Unresolved, locals_around, resolve
from perdure.model.errors import InvalidArguments, InvalidValue, UsageError
from perdure.model.shape import hint_name
from perdure.model.shown import shown
from perdure.model.values import check_hint, decode, encode

ABSENT: Final = inspect.Parameter.empty
_NULL: Final = b"null"
_NAMED: Final = b'{"$args":'

Fields = dict[str, msgspec.Raw]
_fields: Final = msgspec.json.Decoder(Fields).decode
_named: Final = msgspec.json.Decoder(dict[str, Fields]).decode
_quote: Final = msgspec.json.Encoder().encode


class Parameter:
    """One parameter of a function: how it is passed, what it defaults to, and its hint (resolved once, when first needed)."""

    __slots__ = ("annotation", "default", "key", "keyword_only", "name", "positional_only")

    def __init__(self, parameter: inspect.Parameter) -> None:
        self.name = parameter.name
        self.positional_only = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        self.keyword_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        self.default: Any = parameter.default
        self.annotation: Any = parameter.annotation
        #: As it stands in an object: `"name":`.
        self.key = _quote(parameter.name) + b":"

    @property
    def required(self) -> bool:
        return self.default is ABSENT

    def __str__(self) -> str:
        hint = "" if self.annotation is ABSENT else f": {_hint_text(self.annotation)}"
        return self.name + hint + ("" if self.required else f" = {shown(self.default)}")


class Signature:
    """What a step or workflow takes and returns. `owner` names it in messages: `step 'charge'`.

    Raises `UsageError` for a function that cannot have a stored input. Hints that name what does not exist yet are resolved
    when they are first needed; if they cannot be then, that raises `UsageError`.
    """

    __slots__ = ("_annotations", "_hints", "_whole_hints", "function", "owner", "parameters")

    def __init__(self, function: Callable[..., Any], owner: str, *, skip: int = 0) -> None:
        self.function = function
        self.owner = owner
        signature = parameters_of(function, owner)
        found = list(signature.parameters.values())[skip:]
        for parameter in found:
            if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                raise UsageError(
                    f"{owner} takes {parameter.replace(annotation=ABSENT)!s}, which has no fixed names to store its "
                    f"input by; give it named parameters"
                )
        self.parameters = tuple(map(Parameter, found))
        #: As written, by position; what is returned comes last. Those that are resolved have left.
        self._annotations = dict(enumerate([*(p.annotation for p in found), signature.return_annotation]))
        self._hints: dict[int, Any] = {}
        self._whole_hints: tuple[Any, ...] | None = None
        try:
            self._resolve(locals_around(function))
        except Unresolved:
            pass  # Named later in the module, perhaps.

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parameters))})"

    # -- hints --------------------------------------------------------------------------------------------------------

    def hints(self) -> tuple[Any, ...]:
        """The hint of each parameter and, last, of what is returned (`Any` where there is none)."""
        if self._whole_hints is None:
            try:
                self._resolve({})
            except Unresolved as error:
                raise UsageError(f"{error}; import it where the function is written, also at run time") from error
            self._whole_hints = tuple(self._hints[index] for index in range(len(self.parameters) + 1))
        return self._whole_hints

    def _resolve(self, local: Mapping[str, Any]) -> None:
        """Resolve what is not resolved yet; then raise `Unresolved` if something could not be."""
        failed: Unresolved | None = None
        for index, annotation in list(self._annotations.items()):
            try:
                self._hints[index] = self._checked(index, annotation, local)
                self._annotations.pop(index, None)  # Two threads may be first.
            except Unresolved as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _checked(self, index: int, annotation: Any, local: Mapping[str, Any]) -> Any:
        """The hint, if its values can be restored. Raises `Unresolved` and `UsageError`."""
        returned = index == len(self.parameters)
        what = (
            f"the result of {self.owner}" if returned else f"parameter {self.parameters[index].name!r} of {self.owner}"
        )
        if annotation is ABSENT:
            return Any
        try:
            hint = resolve(annotation, self.function, local)
        except Unresolved as error:
            message = f"the hint {_hint_text(annotation)} of {what} cannot be resolved: {error}"
            raise (UsageError(message) if error.final else Unresolved(message)) from error
        if returned and hint in (NoReturn, Never):
            return None
        try:
            check_hint(hint, what)
        except InvalidValue as error:
            if _wants_name(error):
                raise Unresolved(str(error)) from error
            raise UsageError(str(error)) from error
        return hint

    # -- arguments to bytes -------------------------------------------------------------------------------------------

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The input that these arguments make. Raises `InvalidArguments` and `InvalidValue`."""
        values = self._arrange(args, kwargs)
        parameters = self.parameters
        hints = self.hints()
        if not parameters:
            return _NULL
        first = parameters[0]
        data = self._encode(0, values[0], hints)
        if len(parameters) == 1:
            return _NAMED + b"{" + first.key + data + b"}}" if _misread(data, first) else data
        parts = [first.key + data]
        parts += [
            parameter.key + self._encode(index, values[index], hints)
            for index, parameter in enumerate(parameters)
            if index and values[index] is not ABSENT
        ]
        return b"{" + b",".join(parts) + b"}"

    def _encode(self, index: int, value: Any, hints: tuple[Any, ...]) -> bytes:
        return encode(value, hints[index], what=f"argument {self.parameters[index].name!r} of {self.owner}")

    def _arrange(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """A value for each parameter; `ABSENT` for those left to their defaults, but for the first."""
        parameters = self.parameters
        values: list[Any] = list(args)
        if len(values) > len(parameters) or any(p.keyword_only for p in parameters[: len(values)]):
            most = sum(not parameter.keyword_only for parameter in parameters)
            raise self._misfit(f"takes at most {most} positional argument{'s' * (most != 1)}", args, kwargs)
        left = dict(kwargs) if kwargs else {}
        for index, parameter in enumerate(parameters):
            if index < len(args):
                if parameter.name in left:
                    raise self._misfit(f"was given {parameter.name!r} twice", args, kwargs)
                continue
            if parameter.positional_only and parameter.name in left:
                raise self._misfit(f"takes {parameter.name!r} by position only", args, kwargs)
            value = left.pop(parameter.name, ABSENT)
            if value is ABSENT:
                if parameter.required:
                    raise self._misfit(f"needs {parameter.name!r}", args, kwargs)
                value = ABSENT if index else parameter.default
            values.append(value)
        if left:
            raise self._misfit(f"has no parameter {next(iter(left))!r}", args, kwargs)
        return values

    def _misfit(self, what: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> InvalidArguments:
        given = [shown(a) for a in args] + [f"{name}={shown(value)}" for name, value in kwargs.items()]
        return InvalidArguments(f"{self.owner} {what}: it is {self}, called with ({', '.join(given)})")

    # -- bytes to arguments -------------------------------------------------------------------------------------------

    def unbind(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that an input stands for, restored by their hints. Raises `InvalidArguments` and `InvalidValue`."""
        data = data.strip()
        if not self.parameters:
            if data in (_NULL, b"{}"):
                return (), {}
            raise InvalidArguments(f"{self.owner} takes no input, but was given {_shown(data)}")
        if len(self.parameters) > 1 or data.startswith(_NAMED):
            named = self._named(data)
            if named is not None:
                return self._pass(named)
        return self._whole(data)

    def _named(self, data: bytes) -> Fields | None:
        """The arguments by name, or None if `data` is the first one itself. Raises `InvalidArguments` if it is neither."""
        if not data.startswith(b"{"):
            return None
        try:
            fields = _named(data)["$args"] if data.startswith(_NAMED) else _fields(data)
        except msgspec.DecodeError as error:
            raise InvalidArguments(f"the input of {self.owner} is no JSON: {error}: {_shown(data)}") from error
        names = {parameter.name for parameter in self.parameters}
        missing = [p.name for p in self.parameters if p.required and p.name not in fields]
        unknown = [name for name in fields if name not in names]
        if not missing and not unknown and self.parameters[0].name in fields:
            return fields
        if self._takes_whole() and not data.startswith(_NAMED):
            return None
        wrong = [f"lacks {name!r}" for name in missing] + [f"has {name!r}, which it does not take" for name in unknown]
        raise InvalidArguments(f"the input of {self.owner}{self} {' and '.join(wrong)}: {_shown(data)}")

    def _takes_whole(self) -> bool:
        return not any(parameter.required for parameter in self.parameters[1:])

    def _pass(self, fields: Fields) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for index, parameter in enumerate(self.parameters):
            raw = fields.get(parameter.name)
            value = parameter.default if raw is None else self._decode(index, bytes(raw))
            if parameter.keyword_only:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        return tuple(args), kwargs

    def _whole(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        first = self.parameters[0]
        if not self._takes_whole():
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise InvalidArguments(f"{self.owner} takes an object with {names}, but was given {_shown(data)}")
        try:
            value = self._decode(0, data)
        except UsageError:
            if data == _NULL and not first.required:
                return (), {}
            raise
        return ((), {first.name: value}) if first.keyword_only else ((value,), {})

    def _decode(self, index: int, data: bytes) -> Any:
        what = f"argument {self.parameters[index].name!r} of {self.owner}"
        hint = self.hints()[index]
        try:
            return decode(data, hint, what=what)
        except InvalidValue as error:
            raise InvalidArguments(f"{error} (given {_shown(data)})") from error

    # -- undos --------------------------------------------------------------------------------------------------------

    def takes_undo(self) -> bool:
        """Whether it can be given an `Undo`: by its one parameter, or as `input` and `output` by name."""
        names = {parameter.name for parameter in self.parameters}
        return bool(names) and (
            self._takes_whole() or (names >= {"input", "output"} and self._needs_only("input", "output"))
        )

    def _needs_only(self, *names: str) -> bool:
        return all(parameter.name in names for parameter in self.parameters if parameter.required)

    def plain(self, data: bytes) -> bytes:
        """A stored input as an undo sees it: the one argument itself, or an object of them by name."""
        data = data.strip()
        if not data.startswith(_NAMED):
            return data
        fields = _named(data)["$args"]
        return bytes(fields[self.parameters[0].name]) if len(self.parameters) == 1 else _quote(fields)

    # -- results ------------------------------------------------------------------------------------------------------

    def encode_result(self, value: Any) -> bytes:
        """The bytes of what the function returned. Raises `InvalidValue` if that is not what its hint says."""
        hint = self.hints()[-1]
        what = f"the result of {self.owner}"
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise InvalidValue(
                f"{what} is a {type(value).__name__} that nobody awaited; await it and return its result"
            )
        data = encode(value, hint, what=what)
        try:
            decode(data, hint, what=what)
        except InvalidValue as error:
            raise InvalidValue(
                f"{self.owner} says it returns {_hint_text(hint)}, but returned the {type(value).__name__} "
                f"{shown(value)}: {error}"
            ) from error
        return data

    def decode_result(self, data: bytes) -> Any:
        """What the function returned, restored by its hint. Raises `InvalidValue`."""
        return decode(data, self.hints()[-1], what=f"the result of {self.owner}")


def _misread(data: bytes, first: Parameter) -> bool:
    """True if a single argument's bytes would be taken for arguments by name, now or after the function has grown."""
    if not data.startswith(b"{") or (first.key not in data and not data.startswith(_NAMED)):
        return False
    fields = _fields(data)
    return first.name in fields or "$args" in fields


def _wants_name(error: BaseException | None) -> bool:
    """True if a hint cannot be used because something in it names what is not there (yet)."""
    while error is not None and not isinstance(error, NameError):
        error = error.__cause__ or error.__context__
    return error is not None


def _hint_text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else hint_name(annotation)


def _shown(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text if len(text) <= 120 else f"{text[:100]}... ({len(data):,} bytes)"
