"""Every instance of a test is closed after it, as the engine would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.core.driving import OPEN


@pytest.fixture(autouse=True)
def _close_instances() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()
