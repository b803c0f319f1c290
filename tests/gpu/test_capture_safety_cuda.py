"""Capture safety on a GPU, a process a scenario: tearing down a bad capture can crash."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import capture_scenarios
import pytest

pytestmark = pytest.mark.gpu

#: Processes that share the GPU at a time; most of each one's time is start-up on the host.
AT_ONCE = 8


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Gives a scenario's process; the next ones are started ahead."""
    names = list(capture_scenarios.SCENARIOS)
    running: dict[str, subprocess.Popen[str]] = {}

    def get(name: str) -> subprocess.Popen[str]:
        at = names.index(name)
        for ahead in names[at : at + AT_ONCE]:
            if ahead not in running:
                running[ahead] = capture_scenarios.start(ahead, "cuda")
        return running[name]

    yield get
    for process in running.values():
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("name", capture_scenarios.SCENARIOS)
def test_ends_as_it_must(started, name: str) -> None:
    capture_scenarios.finish(started(name))
