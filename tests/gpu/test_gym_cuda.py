"""Lanes of gymnasium beside a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from trainer.gym_contract import GymnasiumContract

from onegraph.kernels.device import Device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning"),
]


@pytest.fixture
def open_device(cuda: Device) -> Callable[[], Device]:
    return lambda: cuda


class TestGymnasium(GymnasiumContract):
    pass
