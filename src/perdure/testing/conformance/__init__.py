"""What every store must pass. A test file for an adapter is a factory and a few lines:

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_conformance(case: Case) -> None:
        run_case(case, Factory())

    @pytest.mark.parametrize("seed", range(50))
    def test_oracle(seed: int) -> None:
        run_oracle(seed, Factory())

`CASES` are small exact scenarios, a topic a module. `run_oracle` plays a random sequence of verbs, the same for a seed, to
the adapter and to the memory store and compares all that can be seen. Both run on an event loop of their own.

Call `pytest.register_assert_rewrite("perdure.testing.conformance")` before the import, for telling failures.
"""

from __future__ import annotations

from perdure.testing.conformance.cases import CASES, Case, run_case
from perdure.testing.conformance.kit import StoreFactory
from perdure.testing.conformance.oracle import run_oracle

__all__ = ["CASES", "Case", "StoreFactory", "run_case", "run_oracle"]
