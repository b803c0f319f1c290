"""Lanes of gymnasium on the host device."""

import pytest
from trainer.gym_contract import GymnasiumContract

from onegraph.kernels.device import HostDevice

pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")


@pytest.fixture
def open_device():
    return HostDevice


class TestGymnasium(GymnasiumContract):
    pass
