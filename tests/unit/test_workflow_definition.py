"""Workflows: what `@workflow` makes of functions, and how a definition starts runs, here and in other bodies."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Optional

import pytest

from perdure.authoring import ambient
from perdure.authoring import marker as typing_alias
from perdure.authoring.ambient import Started
from perdure.authoring.fingerprint import fingerprint
from perdure.authoring.marker import ContextMarker
from perdure.authoring.options import MAX_PRIORITY, StartKeywords, StartOptions
from perdure.authoring.step import step
from perdure.authoring.version import version_key
from perdure.authoring.workflow import WorkflowDefinition, workflow
from perdure.core.instance import Instance
from perdure.core.turn import Failed
from perdure.model.errors import ForbiddenInWorkflow, InvalidArguments, InvalidId, InvalidValue, UsageError
from perdure.model.failure import restore
from perdure.model.run import NewRun
from perdure.model.values import encode

if TYPE_CHECKING:
    import perdure
    from perdure.authoring.context import Context as Ctx


class Context(ContextMarker):
    """Stands in for the real one."""


@dataclass
class Order:
    id: int

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("an order's id is never negative")


@workflow(version="2", tags=["billing", "eu", "billing"], timeout=timedelta(hours=1), origin="shop")
async def checkout(ctx: Context, order: Order, note: str = "", *, urgent: bool = False) -> str:
    """Sell."""
    return f"{order.id}{note}{urgent}"


@workflow
async def ship(order: Order) -> Order:
    return order


# -- decorating -------------------------------------------------------------------------------------------------------


def test_a_workflow_looks_like_its_function() -> None:
    assert (checkout.__name__, checkout.__doc__, checkout.__module__) == ("checkout", "Sell.", __name__)
    assert str(checkout) == "workflow 'checkout' (version 2)"
    assert repr(checkout).startswith(f"<workflow 'checkout' (version 2) of {__name__}.checkout (")


def test_what_is_declared() -> None:
    assert (checkout.name, checkout.version, checkout.tags) == ("checkout", "2", ("billing", "eu"))
    assert (checkout.timeout_us, checkout.origin, checkout.wants_context) == (3_600_000_000, "shop", True)
    assert checkout.module == __name__


def test_f88_the_version_is_there_even_when_undeclared() -> None:
    assert (ship.name, ship.version, ship.tags, ship.timeout_us, ship.origin) == ("ship", "1", (), None, None)


def test_a_workflow_is_a_frozen_hashable_value() -> None:
    with pytest.raises(FrozenInstanceError):
        checkout.version = "3"  # type: ignore[misc]
    assert {checkout: 1}[checkout] == 1


async def test_the_function_itself_can_be_called_for_unit_tests() -> None:
    assert await checkout.fn(Context(), Order(1), "x", urgent=True) == "1xTrue"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "the name of a workflow is empty"),
        ({"version": ""}, "a version is empty"),
        ({"version": 2}, 'a version is text: write version="2"'),
        ({"version": None}, "a version must be a string"),
        ({"tags": "billing"}, "tags must be a list of strings"),
        ({"tags": [1]}, "a tag must be a string"),
        ({"tags": [""]}, "a tag is empty"),
        ({"timeout": 0}, "timeout must be positive"),
        ({"timeout": "1h"}, "timeout must be seconds or a timedelta"),
        ({"origin": ""}, "an origin is empty"),
        ({"validate": "x"}, "validate of workflow 'ship' must be a plain function"),
    ],
)
def test_a_bad_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        workflow(**options)(ship.fn)


def test_a_name_by_position_is_explained() -> None:
    with pytest.raises(UsageError, match='write @workflow\\(name="ship"\\)'):
        workflow("ship")  # type: ignore[call-overload]


def test_only_async_functions_can_be_workflows() -> None:
    def plain(ctx: Context) -> None: ...

    def generating(ctx: Context) -> Iterator[int]:
        yield 1

    async def generating_later(ctx: Context) -> AsyncIterator[int]:
        yield 1

    with pytest.raises(UsageError, match=r"needs an async function, but .*plain.* is a plain one: write `async def`"):
        workflow(plain)  # type: ignore[arg-type]
    for function in (generating, generating_later):
        with pytest.raises(UsageError, match="generator function"):
            workflow(function)  # type: ignore[arg-type]


def test_a_step_or_workflow_cannot_become_a_workflow() -> None:
    @step
    async def charge() -> None: ...

    for one in (charge, ship):
        with pytest.raises(UsageError, match=r"@workflow was put on (step|workflow) .*, which is one already"):
            workflow(one)  # type: ignore[arg-type]


def test_f56_methods_are_refused_and_staticmethods_work() -> None:
    with pytest.raises(UsageError, match=r"@workflow was put on the method .*Bad\.main, whose self cannot be stored"):

        class Bad:
            @workflow
            async def main(self, ctx: Context, order: Order) -> None: ...

    class Good:
        @staticmethod
        @workflow
        async def inner(ctx: Context, order: Order) -> None: ...

        @workflow
        @staticmethod
        async def outer(ctx: Context, order: Order) -> None: ...

    for one in (Good.inner, Good.outer, Good().inner, Good().outer):
        assert isinstance(one, WorkflowDefinition)
        assert one.wants_context
        assert one.encode_input((Order(1),), {}) == b'{"id":1}'


# -- the context ------------------------------------------------------------------------------------------------------


def test_a_context_is_found_by_its_annotation_or_name() -> None:
    async def hint(c: Context, order: Order) -> None: ...

    async def text(c: Context, order: Order) -> None: ...

    async def dotted(c: typing_alias.ContextMarker, order: Order) -> None: ...

    async def unresolvable(c: perdure.Context, order: Order) -> None: ...  # type: ignore[name-defined, unused-ignore]

    async def renamed(ctx: Ctx, order: Order) -> None: ...

    async def unannotated(ctx, order: Order) -> None: ...  # type: ignore[no-untyped-def]

    hint.__annotations__["c"] = Context
    text.__annotations__["c"] = "'Context'"
    for function in (hint, text, dotted, unresolvable, renamed, unannotated):
        definition = workflow(function)
        assert definition.wants_context, function
        assert [parameter.name for parameter in definition.signature.parameters] == ["order"]


def test_what_is_no_context_is_an_input() -> None:
    async def other_name(context, order: Order) -> None: ...  # type: ignore[no-untyped-def]

    async def other_hint(ctx: Order, order: Order) -> None: ...

    async def nothing() -> None: ...

    assert not workflow(other_name).wants_context
    assert not workflow(other_hint).wants_context
    assert not workflow(nothing).wants_context
    assert not ship.wants_context


def test_a_class_of_the_users_own_that_is_called_context_is_an_input() -> None:
    @dataclass
    class Context:
        tenant: str

    @workflow
    async def main(request: Context) -> None: ...

    assert not main.wants_context
    assert main.encode_input((Context("t"),), {}) == b'{"tenant":"t"}'


def test_a_context_elsewhere_or_optional_is_refused() -> None:
    async def later(order: Order, ctx: Context) -> None: ...

    async def optional(ctx: Context | None) -> None: ...

    async def optional_too(ctx: Optional[Context]) -> None: ...  # noqa: UP045

    with pytest.raises(UsageError, match="workflow 'later' takes its Context as a later parameter"):
        workflow(later)
    functions: list[Any] = [optional, optional_too]
    for function in functions:
        with pytest.raises(UsageError, match=r"parameter 'ctx' of workflow .* must be annotated plainly: Context"):
            workflow(function)


async def test_the_body_gets_context_and_arguments() -> None:
    context = Context()

    @workflow
    async def main(ctx: Context, order: Order, *, note: str = "x") -> tuple[Any, ...]:
        return ctx, order, note

    assert await main.call(context, b'{"order":{"id":1},"note":"y"}') == (context, Order(1), "y")
    assert await main.call(context, b'{"id":1}') == (context, Order(1), "x")
    assert await ship.call(context, b'{"id":1}') == Order(1)


# -- input ------------------------------------------------------------------------------------------------------------


def test_the_context_is_no_part_of_the_input() -> None:
    assert checkout.encode_input((Order(1),), {"note": "x"}) == b'{"order":{"id":1},"note":"x"}'
    assert ship.encode_input((Order(1),), {}) == b'{"id":1}'


def test_start_06_arguments_are_checked_before_anything_is_written() -> None:
    bad: Any = "x"
    with pytest.raises(InvalidArguments, match=r"argument 'order' of workflow 'ship' .*expected Order"):
        ship.encode_input((bad,), {})
    negative = Order(1)
    negative.id = -1
    with pytest.raises(InvalidArguments, match="an order's id is never negative"):
        ship.encode_input((negative,), {})
    with pytest.raises(InvalidArguments, match="workflow 'ship' needs 'order'"):
        ship.encode_input((), {})
    with pytest.raises(InvalidValue, match="argument 'note' of workflow 'checkout'"):
        checkout.encode_input((Order(1), float("nan")), {})


def test_start_06_a_validator_rejects_the_start() -> None:
    seen: list[Any] = []

    def affordable(order: Order, note: str = "", *, urgent: bool = False) -> None:
        seen.append((order, note, urgent))
        if order.id > 1000:
            raise RuntimeError("too dear")

    definition = workflow(validate=affordable)(checkout.fn)
    assert definition.encode_input((Order(1),), {"urgent": True})
    assert seen == [(Order(1), "", True)]
    with pytest.raises(
        InvalidArguments, match=r"workflow 'checkout' \(version 1\) refused its input: too dear"
    ) as caught:
        definition.encode_input((Order(2000),), {})
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(InvalidArguments, match="too dear"):
        definition.check_input(b'{"id":2000}')


# -- options ----------------------------------------------------------------------------------------------------------


def test_using_carries_checked_options() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    bound = checkout.using(id="c:1", priority=7, tags={"vip"}, attributes={"a": [1]}, start_at=when, origin="o")
    assert bound.options == StartOptions(
        id="c:1", priority=7, tags=("vip",), attributes=b'{"a":[1]}', start_at=1767225600000000, origin="o"
    )
    assert bound.using(namespace="t1", timeout=5, delay=1.5).options == StartOptions(
        id="c:1", priority=7, tags=("vip",), attributes=b'{"a":[1]}', delay=1_500_000, origin="o", namespace="t1",
        timeout=5_000_000,
    )  # fmt: skip


def test_an_option_that_is_none_is_not_given() -> None:
    assert checkout.using(id=None, priority=None, tags=None, timeout=None).options == StartOptions()
    assert checkout.using(id="x").using(id=None).options.id == "x"


def test_start_07_a_priority_is_absent_unless_given_and_clamped() -> None:
    assert checkout.using().options.priority is None
    assert checkout.using(priority=0).options.priority == 0
    assert checkout.using(priority=10**9).options.priority == MAX_PRIORITY
    assert checkout.using(priority=-(10**9)).options.priority == -MAX_PRIORITY


def test_start_08_tags_are_the_union_of_declared_and_given() -> None:
    declared = StartOptions(tags=("billing",))
    assert StartOptions(tags=("vip", "billing")).over(declared).tags == ("billing", "vip")


def test_start_18_a_given_origin_beats_the_declared_one() -> None:
    assert StartOptions().over(checkout.declared).origin == "shop"
    assert StartOptions(origin="mine", timeout=5).over(checkout.declared) == StartOptions(
        origin="mine", timeout=5, tags=("billing", "eu")
    )
    assert StartOptions().over(checkout.declared).timeout == 3_600_000_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": ""}, "a run id is empty"),
        ({"id": "  "}, "a run id is empty"),
        ({"id": "x" * 513}, "a run id has 513 characters"),
        ({"id": 5}, "a run id must be a string"),
        ({"id": "a\x00b"}, "not printable"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"priority": True}, "priority must be a whole number"),
        ({"tags": "vip"}, "tags must be a list of strings"),
        ({"tags": 5}, "tags must be a list of strings"),
        ({"attributes": [1]}, "attributes must be a mapping"),
        ({"attributes": {"": 1}}, "an attribute's name is empty"),
        ({"attributes": {"a": float("inf")}}, "attributes cannot be stored"),
        ({"start_at": datetime(2026, 1, 1)}, "start_at 2026-01-01T00:00:00 has no time zone"),  # noqa: DTZ001, RUF100
        ({"start_at": "tomorrow"}, "start_at must be seconds or a timedelta"),
        ({"delay": -1}, "delay cannot be negative"),
        ({"delay": float("nan")}, "delay must be finite"),
        ({"delay": 1, "start_at": 5}, "both start_at and delay"),
        ({"timeout": -1}, "timeout must be positive"),
        ({"namespace": ""}, "a namespace is empty"),
        ({"origin": "\n"}, "an origin"),
        ({"note": "x"}, r"has no option 'note'.*write workflow.using\(id=...\).start\(order, note=...\)"),
    ],
)
def test_a_bad_start_option_is_refused_naming_the_workflow(options: StartKeywords, message: str) -> None:
    with pytest.raises(UsageError, match=f"checkout.using.*{message}"):
        checkout.using(**options)


def test_f5_a_bad_id_is_an_invalid_id() -> None:
    with pytest.raises(InvalidId):
        checkout.using(id="")


def test_a_later_start_time_takes_the_place_of_an_earlier_one() -> None:
    assert checkout.using(start_at=5).using(delay=1).options == StartOptions(delay=1_000_000)
    assert checkout.using(delay=1).using(start_at=5).options == StartOptions(start_at=5_000_000)


# -- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ordered",
    [
        ["1", "2", "9", "10", "100"],
        ["1.9", "1.10", "2.0"],
        ["v1", "v2", "v10"],
        ["2024-01-31", "2024-02-01", "2024-12-01"],
        ["1", "1-beta", "2"],
        ["7", "alpha", "beta"],
        ["01", "1"],
        ["1", "²"],
    ],
)
def test_ver_01_versions_sort_naturally(ordered: list[str]) -> None:
    for shuffled in itertools.permutations(ordered):
        assert sorted(shuffled, key=version_key) == ordered


# -- fingerprints -----------------------------------------------------------------------------------------------------


def compiled(source: str) -> str:
    scope: dict[str, Any] = {}
    exec(compile(source, "somewhere.py", "exec", dont_inherit=True), scope)
    return fingerprint(scope["f"])


BASE = "async def f(x):\n    if x in {1, 2, 'a'}:\n        return await g(x, 'one')\n    return [i for i in (1, 2.0)]\n"


@pytest.mark.parametrize(
    "changed",
    [
        BASE.replace("'one'", "'two'"),
        BASE.replace("g(x", "h(x"),
        BASE.replace("{1, 2, 'a'}", "{1, 3, 'a'}"),
        BASE.replace("2.0", "2"),
        BASE.replace("(1, 2.0)", "(2.0, 1)"),
        BASE.replace("[i for", "[-i for"),
        BASE.replace("f(x)", "f(x, y=None)"),
        BASE.replace("return await", "await"),
    ],
)
def test_a_fingerprint_tells_code_apart(changed: str) -> None:
    assert compiled(changed) != compiled(BASE)


def test_a_fingerprint_does_not_see_lines_comments_or_files() -> None:
    assert compiled("\n\n# moved\n" + BASE.replace("\n    return [", "\n\n    # why\n    return [")) == compiled(BASE)


HELPED = """
async def f(ctx, n):
    return first(n)

def first(n):
    return second(n) + first(0) if n else 1

def second(n):
    return {constant}

def unrelated(n):
    return {other}
"""


@pytest.mark.parametrize(("constant", "other", "same"), [(1, 1, True), (2, 1, False), (1, 2, True)])
def test_a_fingerprint_covers_the_helpers_that_the_code_calls(constant: int, other: int, same: bool) -> None:
    assert (
        compiled(HELPED.format(constant=constant, other=other)) == compiled(HELPED.format(constant=1, other=1))
    ) is same


def test_a_fingerprint_is_sixteen_hex_digits() -> None:
    assert len(checkout.fingerprint) == 16
    assert int(checkout.fingerprint, 16)
    assert fingerprint(None) == fingerprint(None)


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "from perdure.authoring.fingerprint import fingerprint\n"
        f"scope = {{}}\nexec({BASE!r}, scope)\nprint(fingerprint(scope['f']))"
    )
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == compiled(BASE)


# -- starting from outside a workflow ---------------------------------------------------------------------------------


class Run:
    def __init__(self, id: str, value: Any) -> None:
        self.id = id
        self.value = value

    async def result(self) -> Any:
        return self.value


class App:
    """An open app, as definitions see it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.launched: list[tuple[Any, bytes, StartOptions]] = []

    async def launch(self, definition: Any, input: bytes, options: StartOptions) -> Started[Any]:
        self.launched.append((definition, input, options))
        return Run(f"{self.name}:run", f"{self.name}:result")

    async def deliver(self, question: Any, update_id: str, reply: str | None) -> None:
        raise AssertionError("no definition of these tests is an entity's")


async def test_outside_a_workflow_the_only_open_app_is_used() -> None:
    app = App("a")
    leave = ambient.enter(app)
    try:
        other = contextvars.Context()  # Nothing was entered here.
        started = await other.run(asyncio.create_task, ship.using(id="x").start(Order(1)))
        assert started.id == "a:run"
        result: Any = await ship.run(Order(2))
        assert result == "a:result"
    finally:
        leave()
    assert app.launched == [(ship, b'{"id":1}', StartOptions(id="x")), (ship, b'{"id":2}', StartOptions())]


async def test_outside_a_workflow_the_app_entered_around_is_used() -> None:
    outer, inner = App("outer"), App("inner")
    leave_outer = ambient.enter(outer)
    leave_inner = ambient.enter(inner)
    assert (await ship.start(Order(1))).id == "inner:run"
    leave_inner()
    assert (await ship.start(Order(1))).id == "outer:run"
    leave_outer()
    with pytest.raises(UsageError, match="no app is open"):
        _ = ship.start(Order(1))


async def test_tasks_use_the_app_that_was_entered_where_they_began() -> None:
    apps = [App("a"), App("b")]
    ready = asyncio.Barrier(2)

    async def working(app: App) -> str:
        leave = ambient.enter(app)
        await ready.wait()
        found = (await asyncio.create_task(_start_one())).id
        await ready.wait()
        leave()
        return found

    assert await asyncio.gather(*map(working, apps)) == ["a:run", "b:run"]


async def _start_one() -> Started[Any]:
    return await ship.start(Order(1))


def test_two_open_apps_and_none_entered_is_an_error_that_says_so() -> None:
    leaves = [ambient.enter(App(name)) for name in "ab"]
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            _ = ship.run(Order(1))
        except UsageError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    for leave in leaves:
        leave()
    assert "ship.run(...) was called, but 2 apps are open and none was entered here" in str(errors[0])
    assert "await app.start(ship, ...)" in str(errors[0])


def test_an_app_that_was_left_is_not_used_where_it_is_still_entered() -> None:
    app = App("a")
    leave = ambient.enter(app)
    remembering = contextvars.copy_context()
    leave()
    with pytest.raises(UsageError, match="no app is open"):
        _ = remembering.run(ship.start, Order(1))
    leave()  # Again is harmless.


def test_bad_arguments_are_told_before_the_app_is_asked() -> None:
    app = App("a")
    leave = ambient.enter(app)
    with pytest.raises(InvalidArguments):
        _ = ship.start(5)  # type: ignore[arg-type]
    leave()
    assert app.launched == []


def test_a_workflow_cannot_be_called() -> None:
    call: Any = checkout
    with pytest.raises(
        UsageError, match=r"workflow 'checkout' .* cannot be called; write `await app.start\(checkout, ...\)`"
    ):
        call(Order(1))


# -- starting from inside a workflow ----------------------------------------------------------------------------------


class Children(ContextMarker):
    """What the real context does for definitions."""

    def __init__(self) -> None:
        self.started: list[tuple[Any, ...]] = []

    def start_workflow(self, *args: Any, detached: bool) -> asyncio.Future[Any]:
        self.started.append((*args, detached))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result("from the context")
        return future


class Program:
    def __init__(self, main: Callable[[], Coroutine[Any, Any, Any]], context: Children) -> None:
        self.main = main
        self.context = context

    def start(self, instance: Instance) -> Coroutine[Any, Any, Any]:
        instance.context = self.context
        return self.main()

    def encode_result(self, value: Any) -> bytes:
        return encode(value, what="result")


def outcome(main: Callable[[], Coroutine[Any, Any, Any]], context: Children) -> Any:
    run = NewRun(id="r1", workflow="parent", version="1", input=b"null", seed=7)
    instance = Instance(run, Program(main, context))
    turn = instance.begin(0)
    instance.close()
    return turn.outcome


def test_child_21_in_a_workflow_run_and_start_ask_the_context() -> None:
    context = Children()
    leave = ambient.enter(App("never asked"))

    async def body() -> None:
        await ship.run(Order(1))
        await checkout.using(id="c", priority=3).start(Order(2), note="x")

    outcome(body, context)
    leave()
    assert context.started == [
        (ship, (Order(1),), {}, StartOptions(), False),
        (checkout, (Order(2),), {"note": "x"}, StartOptions(id="c", priority=3), True),
    ]


def test_calling_a_workflow_in_a_workflow_says_what_to_write() -> None:
    call: Any = ship

    async def body() -> None:
        await call(Order(1))

    ended = outcome(body, Children())
    assert isinstance(ended, Failed)
    error = restore(ended.failure)
    assert isinstance(error, ForbiddenInWorkflow)
    assert "run 'r1' (parent@1) called workflow 'ship' (version 1) directly; write `await ship.run(...)`" in str(error)


def test_validate_must_be_a_plain_function() -> None:
    async def never_awaited(n: int) -> None: ...

    with pytest.raises(UsageError, match="plain function"):

        @workflow(validate=never_awaited)
        async def checked(ctx: Context, n: int) -> None: ...
