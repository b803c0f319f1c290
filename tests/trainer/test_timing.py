"""Timing on the host device."""

import pytest
from timing_rules import *  # noqa: F403
from timing_rules import _planted_kernels  # noqa: F401

from onegraph.kernels.device import HostDevice

pytestmark = pytest.mark.slow


@pytest.fixture
def device():
    with HostDevice() as opened:
        yield opened
