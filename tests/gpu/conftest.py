"""A CUDA device for the tests in this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onegraph.kernels.device import Device, DeviceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.register_assert_rewrite("replay.contract")


@pytest.fixture(scope="module")
def cuda() -> Iterator[Device]:
    """A `CudaDevice`; the test is skipped where there is none."""
    try:
        from onegraph.kernels.device.cuda import CudaDevice

        device = CudaDevice()
    except (ImportError, DeviceUnavailableError) as error:
        pytest.skip(f"no CUDA device: {error}")
    with device:
        yield device
