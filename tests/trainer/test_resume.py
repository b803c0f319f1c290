"""Going on from a checkpoint, on the host device."""

import pytest
from trainer.resuming import ResumeContract

from onegraph.kernels.device import HostDevice

# Stage 0 reads back through the deprecated call; that it warns has its own test.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning"),
]


@pytest.fixture
def open_device():
    return HostDevice


class TestResume(ResumeContract):
    pass
