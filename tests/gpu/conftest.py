"""The CUDA device that the tests of this folder share."""

from collections.abc import Iterator

import pytest

from onegraph.kernels.device import Device, DeviceUnavailableError


@pytest.fixture(scope="session")
def cuda() -> Iterator[Device]:
    try:
        from onegraph.kernels.device.cuda import CudaDevice

        device = CudaDevice()
    except (ImportError, DeviceUnavailableError) as error:
        pytest.skip(f"needs a GPU: {error}")
    with device:
        yield device
