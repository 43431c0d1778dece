"""The test kit that ships with Perdure: an app for tests on a clock driven by hand, recordings to replay, and the conformance
kit that every store passes."""

from __future__ import annotations

from perdure.testing.clock import ManualClock
from perdure.testing.kit import TestApp
from perdure.testing.recording import Recording, record, replay

__all__ = ["ManualClock", "Recording", "TestApp", "record", "replay"]
