"""What the trainer must do on every device, on the host device."""

import pytest
from trainer.contract import (
    EquivalenceContract,
    EvaluationContract,
    GradientContract,
    NonFiniteContract,
    ScheduleContract,
    StateContract,
)

from onegraph.kernels.device import HostDevice
from trainer.proofs import ProofContract

# Stage 0 reads back through the deprecated call; that it warns has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")


@pytest.fixture
def open_device():
    return HostDevice


class TestEquivalence(EquivalenceContract):
    pass


class TestGradient(GradientContract):
    pass


class TestSchedules(ScheduleContract):
    pass


class TestNonFinite(NonFiniteContract):
    pass


class TestState(StateContract):
    pass


class TestEvaluation(EvaluationContract):
    pass


class TestProofs(ProofContract):
    pass
