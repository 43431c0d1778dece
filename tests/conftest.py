"""What holds for every test: `async def` tests run on a fresh event loop, and in CI a skipped test is a failed one."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

# Failures of the conformance kit, which many tests borrow from, show values as those of any test do.
pytest.register_assert_rewrite("perdure.testing.conformance")

#: Servers that tests stand on, found or brought along.
pytest_plugins = ["tests.servers.fixtures"]

#: How long an `async def` test may take: one that waits for an event which never comes fails in its own name.
ASYNC_TEST_LIMIT = 60.0

#: A skip whose reason begins so is accepted in CI: the test asks for another platform or Python than this one.
PLATFORM = "platform:"

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def test_...` on an event loop of its own, with a limit."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(asyncio.wait_for(test(**arguments), ASYNC_TEST_LIMIT))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_if_skipped(report)
    return report


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI turn a skip into a failure, unless the platform is the reason: a test that silently did not run proves nothing."""
    if not os.environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason: Any = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    if not str(reason).removeprefix("Skipped: ").startswith(PLATFORM):
        report.outcome = "failed"
        report.longrepr = f"In CI a skip is a failure: {reason}"
