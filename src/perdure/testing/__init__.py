"""The test kit that ships with Perdure: a clock driven by hand, and the conformance kit that every store passes."""

from __future__ import annotations

from perdure.testing.clock import ManualClock

__all__ = ["ManualClock"]
