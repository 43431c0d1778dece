"""Failures of the kit show values, as those of any test do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("perdure.testing.conformance")
