"""The registry: what one process can run, by name."""

from __future__ import annotations

import importlib
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.authoring.marker import ContextMarker
from perdure.authoring.registry import Registry
from perdure.authoring.step import AsyncStep, step
from perdure.authoring.workflow import WorkflowDefinition, workflow
from perdure.model.errors import NameTaken, NotRegistered, UsageError
from perdure.ports.fleet import Serves

Write = Callable[[str, str], str]


class Context(ContextMarker):
    """Stands in for the real one."""


@step
async def charge(x: int) -> int:
    return x


@step
async def unused(x: int) -> int:
    return x


@workflow
async def ship(ctx: Context, x: int) -> int:
    return x


@workflow
async def checkout(ctx: Context, x: int) -> int:
    await charge(x)
    return await helper(x)


async def helper(x: int) -> int:
    return await ship.run(x)


def version(number: str, *, name: str = "checkout") -> WorkflowDefinition[[int], int]:
    @workflow(name=name, version=number)
    async def main(ctx: Context, x: int) -> int:
        return len(number)

    return main


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module that can be imported, and gives its name back."""
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []

    def write(name: str, source: str) -> str:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from perdure.authoring.step import step\nfrom perdure.authoring.workflow import workflow\n")
        with path.open("a") as file:
            file.write(textwrap.dedent(source))
        importlib.invalidate_caches()
        names.append(name)
        return name

    yield write
    for name in names:
        for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name.partition('.')[0]}.")]:
            sys.modules.pop(loaded, None)
        sys.modules.pop(name.partition(".")[0], None)


def names(registry: Registry) -> tuple[list[str], list[str]]:
    return [f"{one.name}@{one.version}" for one in registry.workflows()], [one.name for one in registry.steps()]


# -- looking up -------------------------------------------------------------------------------------------------------


def test_what_was_added_is_found() -> None:
    registry = Registry()
    assert registry.add(ship, charge)
    assert registry.workflow("ship") is ship
    assert registry.workflow("ship", "1") is ship
    assert registry.step("charge") is charge
    assert registry.has_step("charge")
    assert not registry.has_step("ship")


def test_ver_01_ver_04_the_newest_version_is_found_in_whatever_order_they_came() -> None:
    for order in (["1", "2", "9", "10"], ["10", "9", "2", "1"], ["9", "10", "1", "2"]):
        registry = Registry()
        for number in order:
            registry.add(version(number))
        assert registry.workflow("checkout").version == "10"
        assert [one.version for one in registry.workflows()] == ["1", "2", "9", "10"]


def test_ver_02_an_old_version_is_found_beside_the_new_one() -> None:
    old, new = version("1"), version("2")
    registry = Registry()
    registry.add(new, old)
    assert registry.workflow("checkout", "1") is old


def test_start_05_an_unknown_name_is_told_with_what_there_is() -> None:
    registry = Registry()
    with pytest.raises(NotRegistered, match="workflow 'ghost' is not registered here; No workflow is registered"):
        registry.workflow("ghost")
    registry.add(ship, charge)
    with pytest.raises(NotRegistered, match="workflow 'shop' is not registered here; did you mean 'ship'\\?"):
        registry.workflow("shop")
    with pytest.raises(NotRegistered, match=r"step 'refund' is not registered here; Registered are charge.*include"):
        registry.step("refund")


def test_ver_03_an_unknown_version_is_told_with_skew_protection() -> None:
    registry = Registry()
    registry.add(version("2"), version("3"))
    with pytest.raises(
        NotRegistered, match=r"workflow checkout@1 is not registered here, only version 2, 3;.*skew protection"
    ):
        registry.workflow("checkout", "1")


def test_serves_is_what_claims_ask_for_and_stays_the_same_object() -> None:
    registry = Registry()
    assert registry.serves() == ()
    registry.add(version("1"), charge)
    first = registry.serves()
    assert first == (Serves("checkout", "1", version("1").fingerprint),)
    assert not registry.add(charge)
    assert registry.serves() is first
    registry.add(version("2"))
    assert len(registry.serves()) == 2


def test_two_registries_are_independent() -> None:
    one, other = Registry(), Registry()
    one.add(ship)
    assert names(other) == ([], [])


# -- what a workflow names --------------------------------------------------------------------------------------------


def test_what_a_workflow_names_comes_with_it() -> None:
    registry = Registry()
    registry.add(checkout)
    assert names(registry) == (["checkout@1", "ship@1"], ["charge"])


def test_what_a_workflow_encloses_comes_with_it() -> None:
    @step
    async def local(x: int) -> int:
        return x

    class Base:
        nested = step(name="nested")(lambda: 1)

    class Steps(Base):
        """Enclosed by the body, as the others."""

    dotted = types.ModuleType("dotted")
    dotted.inner = step(name="inner")(lambda: 1)  # type: ignore[attr-defined]
    bound = version("1", name="bound").using(priority=1)

    @workflow
    async def main(ctx: Context, x: int) -> None:
        async def inside() -> None:
            await local(x)

        await inside()
        print(Steps.nested, bound, dotted.inner)  # noqa: T201

    registry = Registry()
    registry.add(main)
    assert names(registry) == (["bound@1", "main@1"], ["local"])


def test_a_module_that_a_workflow_names_gives_the_steps_it_uses(write: Write) -> None:
    write("payments", "@step\nasync def charge(): ...\n@step\nasync def refund(): ...\n")
    write("orders", "import payments\n@workflow\nasync def main(ctx): await payments.charge()\n")
    registry = Registry()
    registry.include("orders")
    assert names(registry) == (["main@1"], ["charge"])


def test_a_workflow_that_names_itself_or_another_in_a_circle(write: Write) -> None:
    write("circle", "@workflow\nasync def a(ctx): await b.run()\n@workflow\nasync def b(ctx): await a.run()\n")
    circle = importlib.import_module("circle")
    registry = Registry()
    registry.add(circle.a)
    assert names(registry) == (["a@1", "b@1"], [])


# -- names taken ------------------------------------------------------------------------------------------------------


def test_the_same_object_twice_is_fine() -> None:
    registry = Registry()
    assert registry.add(charge, charge)
    assert not registry.add(charge)


def test_a_step_with_other_options_is_the_same_step() -> None:
    registry = Registry()
    registry.add(charge)
    assert not registry.add(charge.using(max_attempts=5))
    assert registry.step("charge") is charge


def test_f56_a_name_for_two_functions_is_refused_naming_both_places(write: Write) -> None:
    write("one", "@step\nasync def charge(): ...\n")
    write("other", "\n\n@step\nasync def charge(): ...\n")
    registry = Registry()
    registry.include("one")
    with pytest.raises(NameTaken, match="step 'charge' is defined twice") as caught:
        registry.include("other")
    assert "one.charge (" in str(caught.value)
    assert "one.py:3)" in str(caught.value)
    assert "other.charge (" in str(caught.value)
    assert "other.py:5)" in str(caught.value)


def test_a_workflow_is_taken_only_under_its_version(write: Write) -> None:
    write("one", "@workflow\nasync def main(ctx): ...\n")
    write(
        "other", '@workflow(version="2")\nasync def main(ctx): ...\n@workflow(name="main")\nasync def again(ctx): ...\n'
    )
    registry = Registry()
    registry.include("one")
    with pytest.raises(NameTaken, match=r"workflow 'main' \(version 1\) is defined twice"):
        registry.include("other")
    assert names(registry) == (["main@1"], []), "all or nothing"


def test_two_functions_of_one_module_under_one_name_are_refused(write: Write) -> None:
    write("twice", "@step(name='x')\nasync def a(): ...\n@step(name='x')\nasync def b(): ...\n")
    with pytest.raises(NameTaken, match=r"step 'x' is defined twice, as twice\.a .* and as twice\.b"):
        Registry().include("twice")


def test_a_reloaded_module_takes_the_place_of_what_it_was(write: Write) -> None:
    write("again", "@step\nasync def charge(): return 1\n")
    registry = Registry()
    registry.include("again")
    module = importlib.reload(importlib.import_module("again"))
    registry.include("again")
    assert registry.step("charge") is module.charge
    write("again", "@step\nasync def charge(x: int): return 'changed since'\n")
    changed: Any = types.ModuleType("again")
    exec((Path(module.__file__ or "")).read_text(), vars(changed))
    registry.include(changed)
    assert registry.step("charge") is changed.charge


def test_a_file_run_as_main_and_imported_again_is_the_same(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("registry_program", "@step\nasync def charge(): ...\n@workflow\nasync def main(ctx): await charge()\n")
    imported = importlib.import_module("registry_program")
    main = types.ModuleType("__main__")
    assert imported.__file__ is not None
    exec(compile(Path(imported.__file__).read_text(), imported.__file__, "exec"), vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    registry = Registry()
    registry.add_main()
    registry.include("registry_program")
    assert names(registry) == (["main@1"], ["charge"])
    assert registry.step("charge") is imported.charge


def make(value: int) -> AsyncStep[[], int]:
    @step(name="made")
    async def inner() -> int:
        return value

    return inner


def test_functions_made_in_a_function_are_one_if_nothing_tells_them_apart() -> None:
    registry = Registry()
    registry.add(make(1))
    registry.add(make(1))
    with pytest.raises(NameTaken, match="step 'made' is defined twice"):
        registry.add(make(2))


def test_a_step_and_a_workflow_may_share_a_name() -> None:
    registry = Registry()
    registry.add(version("1", name="charge"), charge)
    assert names(registry) == (["charge@1"], ["charge"])


# -- including --------------------------------------------------------------------------------------------------------


def test_include_finds_attributes_imports_and_what_classes_hold(write: Write) -> None:
    write(
        "shared",
        """
        @step
        async def imported(): ...

        class Base:
            @step
            @staticmethod
            async def inherited(): ...
        """,
    )
    write(
        "many",
        """
        import functools
        from shared import Base, imported as other_name

        @step
        def plain(): ...

        class Payments:
            @staticmethod
            @step
            async def inner(): ...

            @step
            @staticmethod
            async def outer(): ...

            class Deep:
                @workflow
                @staticmethod
                async def deep(ctx): ...

        class Inherits(Base): ...

        def log(function):
            @functools.wraps(function)
            async def wrapper(*args): return await function(*args)
            return wrapper

        @log
        @step
        async def wrapped(): ...

        def undecorated(): ...
        """,
    )
    registry = Registry()
    assert registry.include("many")
    assert names(registry) == (["deep@1"], ["imported", "inherited", "inner", "outer", "plain", "wrapped"])


def test_include_takes_a_module_and_a_package_that_re_exports(write: Write) -> None:
    write("shop.orders", "@workflow\nasync def main(ctx): ...\n")
    write("shop.__init__", "from shop.orders import main\n")
    by_name, by_module = Registry(), Registry()
    by_name.include("shop")
    by_module.include(importlib.import_module("shop.orders"))
    assert names(by_name) == names(by_module) == (["main@1"], [])


def test_include_of_a_module_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match=r"there is no module nowhere\.at_all to include"):
        Registry().include("nowhere.at_all")


def test_include_passes_on_what_the_module_raises(write: Write) -> None:
    write("broken", "import nowhere_at_all\n")
    write("raising", "raise RuntimeError('on import')\n")
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        Registry().include("broken")
    with pytest.raises(RuntimeError, match="on import"):
        Registry().include("raising")


def test_include_of_a_module_without_definitions_is_told(write: Write) -> None:
    write("empty", "def undecorated(): ...\n")
    with pytest.raises(UsageError, match="module empty has no workflow and no step"):
        Registry().include("empty")


def test_add_main_registers_what_the_program_has(monkeypatch: pytest.MonkeyPatch) -> None:
    main: Any = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    registry = Registry()
    assert not registry.add_main()
    main.renamed = checkout
    assert registry.add_main()
    assert names(registry) == (["checkout@1", "ship@1"], ["charge"])


def test_what_is_no_definition_is_refused() -> None:
    wrong: Any = charge.fn
    with pytest.raises(UsageError, match="is neither a workflow nor a step; decorate it first"):
        Registry().add(wrong)


def test_a_module_with_odd_attributes_is_scanned() -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            return self

    odd: Any = types.ModuleType("odd")
    odd.anything = Odd()
    odd.itself = odd
    odd.unused = unused
    registry = Registry()
    registry.include(odd)
    assert names(registry) == ([], ["unused"])
