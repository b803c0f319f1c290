"""Going on from a checkpoint, on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from trainer.resuming import ResumeContract

from onegraph.kernels.device import Device

pytestmark = [
    pytest.mark.gpu,
    # Stage 0 reads back through the deprecated call; that it warns has its own test.
    pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning"),
]


@pytest.fixture
def open_device(cuda: Device) -> Callable[[], Device]:
    return lambda: cuda


class TestResume(ResumeContract):
    pass
