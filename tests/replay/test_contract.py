import pytest
from replay.contract import Make, ReplayContract
from replay.implementations import FusedReplay, KernelReplay, LegacyReplay, SpreadReplay

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


class TestFusedKernels(ReplayContract):
    @pytest.fixture
    def make(self) -> Make:
        device = HostDevice()
        return lambda spec: FusedReplay(device, spec)

    # A million draws by the same twins once more would take seconds and show nothing new; on a GPU
    # it is another kernel.
    test_an_index_is_within_the_filled_part = None
    test_no_leaf_of_zero_is_drawn = None


class TestLegacy(ReplayContract):
    @pytest.fixture
    def make(self) -> Make:
        return LegacyReplay
