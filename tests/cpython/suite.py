"""CPython's own tests of asyncio, from the standard library of the interpreter that runs this, on the workflow loop.

    python -m tests.cpython.suite test_asyncio.test_tasks      prints what came of it, as JSON

Nothing of CPython's is copied: its modules are imported and pointed at our loop. Interpreters that ship without their tests
say so (`missing`).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from tests.cpython.driver import MADE, DrivenLoop, Future, Task, new_loop
from tests.cpython.excluded import EXCLUDED

Classes = Callable[[types.ModuleType, Any], list[type[unittest.TestCase]]]


def _named(*names: str) -> Classes:
    def classes(module: types.ModuleType, utils: Any) -> list[type[unittest.TestCase]]:
        return [getattr(module, name) for name in names if hasattr(module, name)]

    return classes


def _all(module: types.ModuleType, utils: Any) -> list[type[unittest.TestCase]]:
    found = [
        thing for thing in vars(module).values() if isinstance(thing, type) and issubclass(thing, unittest.TestCase)
    ]
    return [cls for cls in found if cls.__module__ == module.__name__]


def _ours(base: str, *mixins: str, **attributes: Any) -> Classes:
    """CPython's base class of tests, made a test case with our classes in it."""

    def classes(module: types.ModuleType, utils: Any) -> list[type[unittest.TestCase]]:
        bases = tuple(getattr(module, name) for name in (base, *mixins) if hasattr(module, name))
        return [type("Workflow" + base, (*bases, utils.TestCase), dict(attributes))]

    return classes


#: For each module of `test`: its classes that say something about tasks, futures and the loop they run on (the
#: others are about what is not ours: the C and Python implementations beside each other, introspection, threads), and how
#: many tests must have run at least.
MODULES: dict[str, tuple[tuple[Classes, ...], int]] = {
    "test_asyncio.test_tasks": (
        (
            _ours("BaseTaskTests", "SetMethodsTest", Task=Task, Future=Future),
            _named("GenericTaskTests", "FutureGatherTests", "CoroutineGatherTests", "SleepTests", "CompatibilityTests"),
        ),
        120,
    ),
    "test_asyncio.test_futures": (
        (
            _named("DuckTests"),
            _ours("BaseFutureTests", cls=Future),
            _ours("BaseFutureDoneCallbackTests", _new_future=lambda self: Future(loop=self.loop)),
        ),
        44,
    ),
    "test_asyncio.test_futures2": ((_named("FutureReprTests"),), 1),
    "test_asyncio.test_timeouts": ((_all,), 32),
    "test_asyncio.test_taskgroups": ((_all,), 35),
    "test_asyncio.test_waitfor": ((_all,), 15),
    "test_asyncio.test_locks": ((_all,), 70),
    "test_asyncio.test_queues": ((_all,), 44),
    "test_asyncgen": ((_named("AsyncGenAsyncioTest"),), 44),
    "test_contextlib_async": ((_all,), 55),
}


def run(name: str, *, excluded: bool = False) -> dict[str, Any]:
    """Run the tests of one module (or those of it that are excluded); what came of it."""
    try:
        utils: Any = importlib.import_module("test.test_asyncio.utils")
        module = importlib.import_module(f"test.{name}")
    except ImportError as error:
        return {"missing": str(error)}
    _point_at_us(utils)
    result = unittest.TestResult()
    tried: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they test what warns, under their own settings
        policy = type("Policy", (asyncio.DefaultEventLoopPolicy,), {"new_event_loop": lambda self: new_loop()})()
        for case in _cases(module, utils):
            if (_id(case) in EXCLUDED.get(name, {})) is excluded:
                asyncio.set_event_loop_policy(policy)
                case.run(result)
                tried.append(_id(case))
        asyncio.set_event_loop_policy(None)
    return {
        "ran": result.testsRun - len(result.skipped),
        "tried": tried,
        "broken": {_id(case): told for case, told in (*result.failures, *result.errors)},
        **MADE,
    }


def _cases(module: types.ModuleType, utils: Any) -> Iterator[Any]:
    loader = unittest.TestLoader()
    for classes in MODULES[module.__name__.removeprefix("test.")][0]:
        for cls in classes(module, utils):
            yield from loader.loadTestsFromTestCase(cls)


def _id(case: Any) -> str:
    # A subtest's own id has dots in its parameters.
    name, space, parameters = str(case.id()).partition(" ")
    return ".".join(name.rsplit(".", 2)[-2:]) + space + parameters


def _point_at_us(utils: Any) -> None:
    def new_test_loop(self: Any, gen: Any = None) -> DrivenLoop:
        loop = new_loop(gen)
        self.set_event_loop(loop)
        return loop

    def close_loop(loop: Any) -> None:
        loop.close()

    utils.TestCase.new_test_loop = new_test_loop
    utils.TestCase.close_loop = staticmethod(close_loop)


if __name__ == "__main__":
    json.dump(run(sys.argv[1], excluded="--excluded" in sys.argv), sys.stdout, indent=1)
