"""The trainer on a GPU: the tests of every device, and the GPU against the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from trainer.contract import (
    EquivalenceContract,
    EvaluationContract,
    GradientContract,
    NonFiniteContract,
    ScheduleContract,
    StateContract,
)
from trainer.fused_contract import FusedContract, FusedProofContract
from trainer.setups import bit_flip, chain, fill, make, market

from onegraph.kernels.device import Device, HostDevice
from onegraph.stages.registry import ALL
from onegraph.trainer.config import Config
from onegraph.trainer.trainer import Trainer
from trainer.proofs import HindsightProofContract, ProofContract

pytestmark = [
    pytest.mark.gpu,
    # Stage 0 reads back through the deprecated call; that it warns has its own test.
    pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning"),
]


@pytest.fixture
def open_device(cuda: Device) -> Callable[[], Device]:
    return lambda: cuda


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


class TestHindsightProof(HindsightProofContract):
    pass


class TestFused(FusedContract):
    pass


class TestFusedProof(FusedProofContract):
    pass


#: Draws and actions that do not depend on the network give both devices the same batches.
#: Adam divides by the root of the second moment, which for a gradient that cancels to nothing is
#: rounding; eps is put above that.
UNIFORM = {
    "replay__alpha": 0.0,
    "learn__epsilon__start": 1.0,
    "learn__epsilon__end": 1.0,
    "learn__lr__start": 1e-3,
    "learn__adam_eps": 1e-5,
}


def run(trainer: Trainer) -> tuple[list[bytes], Trainer]:
    fill(trainer)
    indices = []
    for _ in range(50):
        trainer.learn()
        indices.append(trainer.indices().tobytes())
        trainer.collect()
    return indices, trainer


@pytest.mark.parametrize("stages", ["0", "4", "all"])
@pytest.mark.parametrize(
    "config",
    [chain(**UNIFORM), market(**UNIFORM), bit_flip(**UNIFORM)],
    ids=["chain", "market", "hindsight"],
)
def test_the_gpu_follows_the_host(cuda: Device, config: Config, stages: str) -> None:
    """Same batches, so the parameters differ by the rounding of float32 sums alone."""
    drawn, on_gpu = run(make(cuda, config, stages))
    wanted, on_host = run(make(HostDevice(), config, stages))
    assert drawn == wanted
    start = on_host.network.initial(config.seed)
    for name in ("theta", "theta_target"):
        p, q = on_gpu.workspace.read(name), on_host.workspace.read(name)
        assert np.linalg.norm(p - q) <= 1e-5 * np.linalg.norm(q), name
        assert np.linalg.norm(p - q) <= 1e-3 * np.linalg.norm(q - start), name
    exact = {"replay_state", "replay_action", "replay_flags", "replay_next_state", "replay_reward"}
    exact |= {"replay_generation", "replay_episode", "counters", "schedule", "env_obs"}
    on_gpu_state, on_host_state = on_gpu.state(), on_host.state()
    for name in sorted(exact):
        np.testing.assert_array_equal(on_gpu_state[name], on_host_state[name], err_msg=name)
    on_gpu.close()
    on_host.close()


def test_a_host_checkpoint_goes_on_on_the_gpu(cuda: Device) -> None:
    config = chain(**UNIFORM)
    host = fill(make(HostDevice(), config, "0"))
    for _ in range(10):
        host.learn()
        host.collect()
    gpu = make(cuda, config, "all")
    gpu.restore(host.state(), host.progress)
    for _ in range(5):
        host.learn()
        gpu.learn()
        np.testing.assert_array_equal(gpu.indices(), host.indices())
    p, q = gpu.parameters(), host.parameters()
    assert np.linalg.norm(p - q) <= 1e-5 * np.linalg.norm(q)
    gpu.close()
    host.close()


def test_a_replay_too_large_for_the_gpu_is_halved(cuda: Device) -> None:
    ballast = cuda.allocate((max(cuda.memory_free() - (512 << 20), 0),), "u8", "ballast")
    said: list[str] = []
    rows = 4_000_000  # of about 200 bytes
    config = market(replay__capacity=rows)
    trainer = Trainer(config, cuda, ALL, say=said.append)
    assert trainer.shapes.capacity < rows
    assert "memory is short" in said[0]
    fill(trainer).learn()
    trainer.close()
    cuda.free(ballast)
