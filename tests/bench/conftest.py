"""The devices that benchmarks run on."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def cuda():
    """The GPU; benchmarks that ask for it are marked ``gpu``."""
    from onegraph.kernels.device.cuda import CudaDevice

    with CudaDevice() as device:
        yield device
