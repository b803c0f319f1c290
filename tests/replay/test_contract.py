import pytest
from replay.contract import Make, ReplayContract
from replay.implementations import KernelReplay, LegacyReplay, SpreadReplay

from onegraph.kernels.device import HostDevice


class TestKernels(ReplayContract):
    @pytest.fixture
    def make(self) -> Make:
        device = HostDevice()
        return lambda spec: KernelReplay(device, spec)


class TestSpreadKernels(ReplayContract):
    @pytest.fixture
    def make(self) -> Make:
        device = HostDevice()
        return lambda spec: SpreadReplay(device, spec)


class TestLegacy(ReplayContract):
    @pytest.fixture
    def make(self) -> Make:
        return LegacyReplay
