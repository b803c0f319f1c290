"""Timing on a GPU."""

import pytest
from timing_rules import *  # noqa: F403
from timing_rules import _planted_kernels  # noqa: F401

pytestmark = pytest.mark.gpu
