"""Entities: objects that live for ever, each in a run of its own, and do one thing at a time.

    @entity
    class Account:
        balance: int = 0

        async def deposit(self, amount: int) -> int:
            self.balance += amount
            return self.balance

    await app.entity(Account, "ada").deposit(5)

An entity is a run `entity:<name>:<key>` of a workflow that takes updates, one after the other; each names an operation and its
arguments, and is answered with what the operation returned or raised. All that have arrived are done in one turn, which is one
commit. An operation may use steps, timers and all else that workflows may; the next one waits for it. One that raises leaves
the state as it was. After so many operations the run continues as new, with the state as its input.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar, cast, dataclass_transform, overload

import msgspec

from perdure.authoring.asking import Question, ask, tell
from perdure.authoring.context import Context
from perdure.authoring.signature import Signature
from perdure.authoring.updates import Update
from perdure.authoring.workflow import WorkflowDefinition, workflow
from perdure.core.ambient import current
from perdure.model import values
from perdure.model.errors import InvalidArguments, NotInWorkflow, UsageError
from perdure.model.failure import capture, encode_failure
from perdure.model.ids import check_name, check_run_id
from perdure.model.shown import shown
from perdure.model.updates import encode_answer, encode_error

E = TypeVar("E")

#: The name of the updates that are calls, and of the query that is the state.
CALL: Final = "call"
STATE: Final = "state"
#: Operations of one link, if nothing else is said.
_LINK: Final = 1000
#: Where a class keeps what `@entity` made of it. (A workflow among a class's attributes is found with its module.)
_DEFINITION: Final = "__perdure_entity__"
_WORKFLOW: Final = "__perdure_workflow__"


class Call(msgspec.Struct, frozen=True):
    """What an update carries."""

    operation: str
    #: As JSON makes it.
    args: Any


class Operation:
    """One async method of an entity."""

    __slots__ = ("fn", "name", "signature")

    def __init__(self, name: str, fn: FunctionType, owner: str) -> None:
        self.name = name
        self.fn = fn
        self.signature = Signature(fn, f"{owner}.{name}", skip=1)


class EntityDefinition:
    """What `@entity` made of a class."""

    __slots__ = ("cls", "name", "operations", "workflow")

    def __init__(self, cls: type[Any], name: str, link: int) -> None:
        self.cls = cls
        self.name = name
        methods = {key: value for key, value in inspect.getmembers_static(cls) if not key.startswith("_")}
        found = {key: value for key, value in methods.items() if inspect.iscoroutinefunction(value)}
        if not found:
            raise UsageError(f"entity {name!r} has no operation: write its async methods")
        self.operations = {key: Operation(key, fn, f"entity {name!r}") for key, fn in found.items()}
        self.workflow = _workflow(self, tuple(found.values()), link)

    def run_id(self, key: str) -> str:
        """Of the entity's run, and its token. Raises `InvalidId`."""
        check_name(key, "an entity's key")
        return check_run_id(f"entity:{self.name}:{key}")

    def call(self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The update's argument. Raises `InvalidArguments` and `InvalidValue`."""
        data = self.operations[operation].signature.bind(args, kwargs)
        self.operations[operation].signature.unbind(data)
        return msgspec.json.encode({"operation": operation, "args": msgspec.Raw(data)})

    def has(self, operation: str) -> bool:
        """True if it is one. Raises `UsageError` for other names that a caller may have meant."""
        if operation.startswith("_"):
            return False
        if operation not in self.operations:
            there = ", ".join(sorted(self.operations))
            raise UsageError(f"entity {self.name!r} has no operation {operation!r}; its async methods are {there}")
        return True


class Calls:
    """Stands for an entity where it is called: its operations, and nothing else of it."""

    __slots__ = ("_definition", "_key", "_send")

    def __init__(self, definition: EntityDefinition, key: str, send: Callable[[str, bytes], Any]) -> None:
        self._definition = definition
        self._key = key
        self._send = send

    def __repr__(self) -> str:
        return f"<entity {self._definition.name}:{self._key}>"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not self._definition.has(name):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._send(name, self._definition.call(name, args, kwargs))

        return call


@overload
@dataclass_transform()
def entity(cls: type[E], /) -> type[E]: ...
@overload
@dataclass_transform()
def entity(*, name: str | None = None, link: int = _LINK) -> Callable[[type[E]], type[E]]: ...
@dataclass_transform()
def entity(cls: Any = None, /, *, name: str | None = None, link: int = _LINK) -> Any:
    """Make a class an entity: its fields are the state, its public async methods the operations.

    The class becomes a dataclass, unless it is one. Every field needs a default, and a type whose values can be stored.
    `name` defaults to the class's own; `link`: operations after which the run continues as new. Raises `UsageError` for a
    class that cannot be an entity.
    """
    decorate = functools.partial(_entity, name=name, link=link)
    return decorate if cls is None else decorate(cls)


def context() -> Context:
    """The context, in an operation: for `call_entity` and all else that it offers. Raises `NotInWorkflow` elsewhere."""
    instance = current()
    if instance is None or not isinstance(instance.context, Context):
        raise NotInWorkflow("context() is for the operations of entities; workflows have theirs as an argument")
    return instance.context


def _entity(given: Any, *, name: str | None, link: int) -> Any:
    cls: Any = given
    if not isinstance(given, type):
        raise UsageError(f"@entity needs a class, not {shown(cls)}")
    if isinstance(link, bool) or not isinstance(link, int) or link < 1:
        raise UsageError(f"link must be a number of operations, at least 1, not {shown(link)}")
    title = check_name(cls.__name__ if name is None else name, "an entity's name")
    if ":" in title:
        raise UsageError(f"an entity's name may have no colon, which divides it from the key: {title!r}")
    made: Any = cls if dataclasses.is_dataclass(given) else dataclasses.dataclass(cls)
    for field in dataclasses.fields(made):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UsageError(
                f"field {field.name!r} of entity {title!r} needs a default: nobody gives it a value at first"
            )
    definition = EntityDefinition(made, title, link)
    setattr(made, _DEFINITION, definition)
    setattr(made, _WORKFLOW, definition.workflow)
    return made


def definition_of(cls: object) -> EntityDefinition:
    """What `@entity` made of it. Raises `UsageError`."""
    found = vars(cls).get(_DEFINITION) if isinstance(cls, type) else None
    if not isinstance(found, EntityDefinition):
        raise UsageError(f"{shown(cls)} is no entity; decorate the class with @entity")
    return found


# ---------------------------------------------------------------- inside


def _workflow(definition: EntityDefinition, methods: tuple[Any, ...], link: int) -> WorkflowDefinition[..., Any]:
    """The workflow of an entity's runs. `methods` are in its closure, so that they count as its code."""
    cls = definition.cls

    async def live(ctx: Context, state: Any = None) -> None:
        assert methods
        self = cls() if state is None else state
        ctx.on_query(STATE, lambda: self)
        kept = _kept(definition, self)
        for _ in range(link):
            update = await ctx.wait_for_update(CALL, type=Call)
            kept = await _serve(definition, self, update, kept)
        ctx.continue_as_new(self)

    live.__module__ = cls.__module__
    live.__qualname__ = f"{cls.__qualname__}.live"
    live.__annotations__ = {"ctx": Context, "state": cls | None, "return": None}
    made: Any = workflow(name=f"entity:{definition.name}")(cast("Any", live))
    return cast("WorkflowDefinition[..., Any]", made)


async def _serve(definition: EntityDefinition, self: Any, update: Update[Call], kept: bytes) -> bytes:
    """Do one operation, and answer. Gives the state as it is to be kept; where the operation failed it is what it was."""
    operation = definition.operations.get(update.arg.operation)
    try:
        if operation is None:
            raise InvalidArguments(f"entity {definition.name!r} has no operation {update.arg.operation!r} any more")
        args, kwargs = operation.signature.unbind(msgspec.json.encode(update.arg.args))
        result = await operation.fn(self, *args, **kwargs)
        answer = operation.signature.encode_result(result)
        after = _kept(definition, self)
    except Exception as error:  # it is the user's: it may raise anything
        before = values.decode(kept, definition.cls, what=f"the state of entity {definition.name!r}")
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(before, field.name))
        update.tell(encode_error(encode_failure(capture(error))))
        return kept
    update.tell(encode_answer(answer))
    return after


def _kept(definition: EntityDefinition, self: Any) -> bytes:
    return values.encode(self, definition.cls, what=f"the state of entity {definition.name!r}")


# ---------------------------------------------------------------- from workflows


def call_entity(ctx: Context, cls: type[E], key: str) -> E:
    """An entity, seen from a workflow: `await call_entity(ctx, Account, "ada").deposit(5)` waits for the answer durably.

    The call is made once, whatever crashes; the run may sleep until it is answered. Raises what the operation raised.
    """
    definition = definition_of(cls)
    run_id = definition.run_id(key)

    def send(operation: str, arg: bytes) -> Any:
        what = f"operation {operation!r} of entity {definition.name}:{key}"
        decode = definition.operations[operation].signature.decode_result
        question = Question(workflow=definition.workflow, run_id=run_id, name=CALL, arg=arg, what=what)
        return ask(ctx, question, decode)

    return cast("E", Calls(definition, key, send))


def signal_entity(ctx: Context, cls: type[E], key: str) -> E:
    """As `call_entity`, but nobody waits for the answer: it returns, with None, when the call is durable."""
    definition = definition_of(cls)
    run_id = definition.run_id(key)

    def send(operation: str, arg: bytes) -> Any:
        what = f"operation {operation!r} of entity {definition.name}:{key}"
        return tell(ctx, Question(workflow=definition.workflow, run_id=run_id, name=CALL, arg=arg, what=what))

    return cast("E", Calls(definition, key, send))
