"""Learning from recorded transitions, on a GPU."""

from collections.abc import Callable

import pytest
from offline.contract import OfflineContract

from onegraph.kernels.device import Device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning"),
]


@pytest.fixture
def open_device(cuda: Device) -> Callable[[], Device]:
    return lambda: cuda


class TestOffline(OfflineContract):
    pass
