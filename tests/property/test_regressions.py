"""Seeds that once failed, by what was wrong."""

from __future__ import annotations

import pytest

from tests.property.properties import check_all


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(14, id="a generator's inner frame complained when its reader was closed"),
        pytest.param(84, id="operations that raised in a dying frame left coroutines that nobody awaited"),
        pytest.param(93, id="closing dropped the inner frame of one that awaits on its way out"),
        pytest.param(596, id="a rebuilt instance took a consumed message again"),
        pytest.param(2800, id="messages of one moment lost the order of their numbers"),
    ],
)
def test_seeds(seed: int) -> None:
    check_all(seed)
