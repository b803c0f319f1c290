"""Capture safety on the host device, a process a scenario."""

from __future__ import annotations

import capture_scenarios
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", capture_scenarios.SCENARIOS)
def test_ends_as_it_must(name: str) -> None:
    capture_scenarios.finish(capture_scenarios.start(name, "host"))


def test_a_crash_or_a_wrong_end_is_seen() -> None:
    with pytest.raises(AssertionError, match="KeyError: 'no such scenario'"):
        capture_scenarios.finish(capture_scenarios.start("no such scenario", "host"))
