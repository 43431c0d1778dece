"""Budgets that keep the code readable. They tighten: an exception that is no longer needed, or grew slack, fails too.

An exception names its thing, says how much it may be, and why. Whoever wants one writes that sentence.
"""

from __future__ import annotations

import graphlib
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house import source
from tests.house.source import Function, Module

ROOT = Path(__file__).parents[2]

MODULE_LINES = 400
FUNCTION_LINES = 80
FUNCTION_LINES_P95 = 45
PUBLIC_METHODS = 20
FIELDS = 10


class Allowed(NamedTuple):
    """What one thing may be, and why."""

    limit: int
    reason: str


#: A row has the columns it has: splitting it would only hide them.
ROW = "a frozen row of the store"

LONG_MODULES: dict[str, Allowed] = {}
LONG_FUNCTIONS: dict[str, Allowed] = {}
WIDE_CLASSES: dict[str, Allowed] = {
    "perdure.core.issuing.Issuing": Allowed(25, "one method for each thing a body can ask for"),
    "perdure.ports.store.Store": Allowed(26, "one verb for each business transition"),
    "perdure.stores.memory.store.MemoryStore": Allowed(27, "the port's verbs, and another view of the data"),
    "perdure.stores.postgres.store.PostgresStore": Allowed(28, "the port's verbs, and what tests ask of locks"),
    "perdure.stores.sqlite.store.SqliteStore": Allowed(28, "the port's verbs, and what tools ask of a file"),
}
FULL_CLASSES: dict[str, Allowed] = {
    "perdure.authoring.options.StartKeywords": Allowed(12, "one field an option"),
    "perdure.authoring.options.StartOptions": Allowed(12, "one field an option"),
    "perdure.core.operation.Operation": Allowed(
        23, "what was issued, what resolves and undoes it, what its attempts came to"
    ),
    "perdure.core.replay.Recorded": Allowed(11, "what a history says, looked up in more ways than one"),
    "perdure.engine.executor.Executor": Allowed(11, "one field a part: what a turn sets going stands beside the turn"),
    "perdure.engine.engine.Engine": Allowed(12, "one field a part, started and stopped in one place"),
    "perdure.engine.events.Lifecycle": Allowed(12, "an event's facts, flat as subscribers and logs want them"),
    "perdure.engine.held.Held": Allowed(
        17, "all that is in flight for one run: in two places it could disagree with itself"
    ),
    "perdure.engine.settings.Settings": Allowed(17, "one field a setting"),
    "perdure.engine.settings.SettingsKeywords": Allowed(17, "one field a setting"),
    "perdure.model.steps.Step": Allowed(16, "a row of a run's timeline"),
    "perdure.cli.supervisor.Supervisor": Allowed(
        11, "its queue, and all that is waited for: a signal's handler finds it there"
    ),
    "perdure.engine.means.Means": Allowed(11, "what every part of an engine is given, made in one place"),
    "perdure.ports.fleet.Process": Allowed(11, "what a process says of itself, as `perdure fleet` shows it"),
    "perdure.model.commit.TurnCommit": Allowed(29, ROW),
    "perdure.stores.memory.tables.Tables": Allowed(17, "one dict a table"),
    "perdure.stores.postgres.store._Open": Allowed(12, "what there is while the store is open, a part each"),
    "perdure.model.run.NewRun": Allowed(18, ROW),
    "perdure.model.run.Run": Allowed(37, ROW),
}


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return source.read(ROOT / "src" / "perdure")


def over(sizes: Mapping[str, int], limit: int, allowed: Mapping[str, Allowed]) -> list[str]:
    """What breaks a budget, in words: too much, an exception that is too generous, or one that is not needed."""
    complaints: list[str] = []
    for name, size in sorted(sizes.items()):
        most = allowed[name].limit if name in allowed else limit
        if size > most:
            complaints.append(f"{name} has {size}, the limit is {most}")
        elif name in allowed and size <= limit:
            complaints.append(f"{name} has {size}, the limit is {limit}: it needs no exception")
        elif name in allowed and size < most:
            complaints.append(f"{name} has {size}: lower its exception from {most}")
    complaints += [f"{name} has an exception but does not exist" for name in sorted(allowed.keys() - sizes.keys())]
    return complaints


def check(sizes: Mapping[str, int], limit: int, allowed: Mapping[str, Allowed]) -> None:
    complaints = over(sizes, limit, allowed)
    assert not complaints, "\n".join(["over budget:", *complaints])


def functions(modules: Iterable[Module]) -> dict[str, int]:
    # Several definitions may share a name (overloads, a property and its setter): the longest counts.
    sizes: dict[str, int] = {}
    for module in modules:
        for definition in source.definitions(module):
            if isinstance(definition.node, Function):
                sizes[definition.name] = max(sizes.get(definition.name, 0), source.lines(definition.node))
    return sizes


def classes(modules: Iterable[Module], measure: Callable[..., set[str]]) -> dict[str, int]:
    found = [definition for module in modules for definition in source.definitions(module)]
    return {one.name: len(measure(one.node)) for one in found if not isinstance(one.node, Function)}


def p95(sizes: Iterable[int]) -> int:
    """The size that at least 95 % do not exceed; 0 of none."""
    ordered = sorted(sizes)
    return ordered[math.ceil(0.95 * len(ordered)) - 1] if ordered else 0


def cycle(modules: Iterable[Module]) -> list[str]:
    """One import cycle between modules, first and last the same; empty if there is none."""
    listed = list(modules)
    names = {module.name for module in listed}
    try:
        graphlib.TopologicalSorter({module.name: source.imports(module, names) for module in listed}).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_modules_are_short(modules: list[Module]) -> None:
    sizes = {module.name: len(module.text.splitlines()) for module in modules}
    check(sizes, MODULE_LINES, LONG_MODULES)


def test_functions_are_short(modules: list[Module]) -> None:
    check(functions(modules), FUNCTION_LINES, LONG_FUNCTIONS)


def test_most_functions_are_much_shorter(modules: list[Module]) -> None:
    assert p95(functions(modules).values()) <= FUNCTION_LINES_P95


def test_classes_do_one_thing(modules: list[Module]) -> None:
    check(classes(modules, source.public_methods), PUBLIC_METHODS, WIDE_CLASSES)


def test_classes_hold_few_fields(modules: list[Module]) -> None:
    check(classes(modules, source.fields), FIELDS, FULL_CLASSES)


def test_modules_import_each_other_in_no_cycle(modules: list[Module]) -> None:
    assert cycle(modules) == []


def test_every_exception_says_why() -> None:
    for table in (LONG_MODULES, LONG_FUNCTIONS, WIDE_CLASSES, FULL_CLASSES):
        for name, allowed in table.items():
            assert allowed.reason.strip(), f"{name}'s exception gives no reason"
