"""What one process can run: its workflows and steps by name. An app has one of its own; decorators know none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any, cast

import msgspec

from perdure.authoring.events import Accumulator
from perdure.authoring.references import Definition, in_body, in_module
from perdure.authoring.step import StepDefinition
from perdure.authoring.validators import Validators
from perdure.authoring.version import version_key
from perdure.authoring.workflow import WorkflowDefinition
from perdure.model.errors import NameTaken, NotRegistered, UsageError
from perdure.model.gates import Rules
from perdure.model.ids import MAX_NAME
from perdure.model.shown import shown
from perdure.ports.fleet import Serves

AnyStep = StepDefinition[..., Any]
AnyWorkflow = WorkflowDefinition[..., Any]


class Registry:
    """Names and what they stand for. One thread at a time changes it; lookups may come from any."""

    def __init__(self) -> None:
        self._steps: dict[str, AnyStep] = {}
        self._workflows: dict[str, dict[str, AnyWorkflow]] = {}
        self._serves: tuple[Serves, ...] = ()
        self._planned: list[Any] = []
        #: Who checks updates before they are sent.
        self.validators = Validators()
        self._queues: dict[str, Rules] = {}
        self._supposing = False
        #: When what is declared here was declared (microseconds, the store's time): the newest declaration counts.
        self.stamp = 0

    # -- adding -------------------------------------------------------------------------------------------------------

    def add(self, *definitions: Definition) -> bool:
        """Register definitions, and what workflows name in their bodies. True if anything is new.

        The same function again is fine, also from a module that was reloaded or run as `__main__`: the later one counts.
        Raises `NameTaken` if a name (a workflow's with its version) already stands for another function; nothing is
        registered then.
        """
        if all(map(self._has, definitions)):
            return False  # At every start; what they name was found the first time.
        steps, workflows = dict(self._steps), {name: dict(versions) for name, versions in self._workflows.items()}
        for definition in _with_references(definitions):
            if isinstance(definition, StepDefinition):
                _put(steps, definition.name, definition)
            elif isinstance(definition, WorkflowDefinition):
                _put(workflows.setdefault(definition.name, {}), definition.version, definition)
            else:
                raise UsageError(f"{shown(definition)} is neither a workflow nor a step; decorate it first")
        if steps == self._steps and workflows == self._workflows:
            return False
        self._steps, self._workflows = steps, workflows
        found = (definition for versions in workflows.values() for definition in versions.values())
        self._serves = tuple(Serves(one.name, one.version, one.fingerprint) for one in found)
        return True

    def include(self, module: str | ModuleType) -> bool:
        """Import a module and register the workflows and steps among its attributes, also those it imported.

        Raises `UsageError` if there is no such module or nothing in it, and whatever the module itself raises.
        """
        if isinstance(module, str):
            module = _import(module)
        if not isinstance(module, ModuleType):
            raise UsageError(
                f"a module to include is named like 'orders.workflows', or is one; {shown(module)} is neither"
            )
        found = list(in_module(module))
        if not found:
            raise UsageError(
                f"module {module.__name__} has no workflow and no step; include the module that defines or imports them"
            )
        return self.add(*found)

    def plan(self, things: Iterable[Any]) -> None:
        """Have `load` include these modules (or definitions): nothing is imported before."""
        self._planned += things

    def load(self) -> None:
        """Register what was planned, and what `add_main` does. Raises as `include` and `add` do."""
        for thing in self._planned:
            if isinstance(thing, StepDefinition | WorkflowDefinition):
                self.add(cast("Definition", thing))
            else:
                self.include(thing)
        self.add_main()

    def add_main(self) -> bool:
        """Register what the program's own file (or notebook, or prompt) has by now, defined or imported."""
        main = sys.modules.get("__main__")
        return self.add(*in_module(main)) if main is not None else False

    def _has(self, definition: Definition) -> bool:
        if isinstance(definition, WorkflowDefinition):
            return self._workflows.get(definition.name, {}).get(definition.version) is definition
        return isinstance(definition, StepDefinition) and self._steps.get(definition.name) is definition

    # -- queues -------------------------------------------------------------------------------------------------------

    def declare(self, name: str, rules: Rules) -> None:
        """What the queue of this name lets through, from now on."""
        self._queues[name] = rules

    def suppose_queues(self) -> None:
        """Every queue counts as declared: for a replay that runs nothing."""
        self._supposing = True

    def queue(self, name: str) -> Rules:
        """As of `stamp`, if it was not declared later. Raises `NotRegistered` naming what there is."""
        rules = self._queues.get(name)
        if rules is None and self._supposing:
            rules = Rules()
        if rules is None:
            raise NotRegistered(
                f"queue {shown(name)} is not declared here; declare it with app.queue({name!r}, ...). "
                + (f"Declared are {', '.join(sorted(self._queues))}" if self._queues else "No queue is declared")
            )
        return rules if rules.stamp else msgspec.structs.replace(rules, stamp=self.stamp)

    def queues(self) -> tuple[tuple[str, Rules], ...]:
        """By name, as `queue` has them."""
        return tuple((name, self.queue(name)) for name in sorted(self._queues))

    # -- looking up ---------------------------------------------------------------------------------------------------

    def workflow(self, name: str, version: str | None = None) -> AnyWorkflow:
        """That version, or the newest. Raises `NotRegistered` naming what there is."""
        versions = self._workflows.get(name)
        if not versions:
            raise NotRegistered(_unknown("workflow", name, self._workflows))
        if version is None:
            return versions[max(versions, key=version_key)]
        if version not in versions:
            known = ", ".join(sorted(versions, key=version_key))
            raise NotRegistered(
                f"workflow {name}@{version} is not registered here, only version {known}; keep a version's code deployed "
                f"until its last run has ended (skew protection)"
            )
        return versions[version]

    def step(self, name: str) -> AnyStep:
        """Raises `NotRegistered` naming what there is."""
        found = self._steps.get(name)
        if found is None:
            raise NotRegistered(_unknown("step", name, self._steps))
        return found

    def has_step(self, name: str) -> bool:
        return name in self._steps

    def workflows(self) -> tuple[AnyWorkflow, ...]:
        """By name, then oldest version first."""
        return tuple(
            self._workflows[name][version]
            for name in sorted(self._workflows)
            for version in sorted(self._workflows[name], key=version_key)
        )

    def steps(self) -> tuple[AnyStep, ...]:
        """By name."""
        return tuple(self._steps[name] for name in sorted(self._steps))

    def serves(self) -> tuple[Serves, ...]:
        """What claims ask for. The same object until something is registered."""
        return self._serves


def _with_references(definitions: Iterable[Definition]) -> list[Definition]:
    """The definitions and all that the workflows among them name, and what undoes steps, each once."""
    pending, found = list(definitions), dict[int, Definition]()
    while pending:
        definition = pending.pop(0)
        if id(definition) not in found:
            found[id(definition)] = definition
            if isinstance(definition, WorkflowDefinition):
                pending += in_body(definition.fn)
                pending += (each.collector for each in definition.on_event if isinstance(each, Accumulator))
            elif isinstance(definition, StepDefinition) and definition.compensation is not None:
                undone_by = definition.compensation.by
                if isinstance(undone_by, StepDefinition):
                    pending.append(cast("Definition", undone_by))
    return list(found.values())


def _put(table: dict[str, Any], key: str, new: Definition) -> None:
    old: Definition | None = table.get(key)
    if old is None or _later_of_same(old, new):
        table[key] = new
    elif old.function.call is not new.function.call:
        raise NameTaken(
            f"{new} is defined twice, as {old.function.location} and as {new.function.location}; "
            f'give one of them another name (name="...") or version'
        )


def _later_of_same(old: Definition, new: Definition) -> bool:
    """True if `new` is the function of `old` written, loaded or run again, which takes its place."""
    one, other = old.function, new.function
    if type(old) is not type(new) or one.call is other.call or one.qualname != other.qualname:
        return False
    if one.code is None or other.code is None:
        return one.module == other.module
    if one.module != other.module and one.code.co_filename != other.code.co_filename:
        return False
    # Functions made inside a function may be several under one qualified name: they are one if nothing tells them apart.
    return "<locals>" not in one.qualname or (one.code == other.code and _enclosed(old) == _enclosed(new))


def _enclosed(definition: Definition) -> list[int]:
    return [id(cell.cell_contents) for cell in getattr(definition.function.call, "__closure__", None) or ()]


def listed(include: Iterable[Any]) -> tuple[Any, ...]:
    """What an app is to include. Raises `UsageError` for what is no list."""
    if isinstance(include, str | bytes) or not isinstance(include, Iterable):
        raise UsageError(f'include must be a list of modules, like ["orders.workflows"], not {shown(include)}')
    return tuple(include)


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{shown(name)} is no module's name; include one like 'orders.workflows'")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only if it is this module that is missing, or a package it is in: else the module's own import failed.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UsageError(f"there is no module {name} to include; is it spelled right, and on the path?") from error


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    import difflib

    names = sorted(known)
    close = difflib.get_close_matches(name[:MAX_NAME], names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    there = f"Registered are {', '.join(names)}" if names else f"No {kind} is registered"
    return f"{kind} {shown(name)} is not registered here; {hint}{there}. Add its module to include=[...]"
