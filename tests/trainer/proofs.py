"""The shipped proofs, learned to their exact values, as tests over a fixture ``open_device``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from trainer.setups import OpenDevice, fill, make

from onegraph.kernels.common.layout import Flag
from onegraph.kernels.learner.iqn_readiness import Ready
from onegraph.trainer.action_values import q_table
from onegraph.trainer.config import Config, load_config, override_config
from onegraph.trainer.envs.tabular import TabularEnvironment
from onegraph.trainer.proofs.measures import LEVELS, coin_quantiles, goals_reached
from onegraph.trainer.trainer import Trainer

#: The shipped runs take five times as many steps; their schedules are shortened with them.
STEPS = 2_000
SHORTER: dict[str, object] = {
    "learn.lr.steps": STEPS,
    "replay.beta_steps": STEPS,
    "loop.total_env_steps": 1_000 + 8 * STEPS,
}


#: The chain by the distributional heads: enough levels and steps for the mean over all levels, and
#: atoms where the returns lie.
IQN: dict[str, object] = {
    "network.head": "iqn",
    "network.dueling": False,
    "network.iqn.quantiles": 8,
    "network.iqn.target_quantiles": 4,
    "learn.batch_size": 32,
    "learn.lr.start": 2e-2,
    "learn.epsilon.start": 0.5,  # so that the right end is seen as often as the left
}
C51: dict[str, object] = {
    "network.head": "c51",
    "network.c51.atoms": 11,
    "network.c51.v_min": 0.0,
    "network.c51.v_max": 1.0,
    "learn.batch_size": 32,
}


def trained(open_device: OpenDevice, config: Config, steps: int, stages: str = "all") -> Trainer:
    """A trainer after `steps` learning steps, over which its schedules go."""
    lengths = {"learn.lr.steps": steps, "replay.beta_steps": steps}
    trainer = fill(make(open_device(), override_config(config, lengths, "the proof"), stages))
    for _ in range(steps):
        trainer.learn()
        trainer.collect()
    return trainer


def learned(
    open_device: OpenDevice,
    config: Config,
    stages: str,
    after_collect: Callable[[Trainer], None] = lambda _: None,
) -> np.ndarray:
    """The action values [S, A] after `STEPS` learning steps."""
    trainer = fill(make(open_device(), config, stages))
    after_collect(trainer)
    for _ in range(STEPS):
        trainer.learn()
        trainer.collect()
        after_collect(trainer)
    assert isinstance(trainer.environment, TabularEnvironment)
    values = q_table(trainer, trainer.environment)
    trainer.close()
    return values


@pytest.mark.slow
class ProofContract:
    @pytest.mark.parametrize("stages", ["0", "all"])
    def test_the_chain_is_learned_to_its_exact_values(
        self, open_device: OpenDevice, stages: str
    ) -> None:
        q = learned(open_device, load_config("chain", SHORTER), stages)
        np.testing.assert_allclose(q[:, 1], [0.6561, 0.729, 0.81, 0.9, 1], rtol=0, atol=1e-3)
        # Left is one step back: gamma times the value there, where state 0 stays where it is.
        left = [0.9 * 0.6561, 0.9 * 0.6561, 0.9 * 0.729, 0.9 * 0.81, 0.9 * 0.9]
        np.testing.assert_allclose(q[:, 0], left, rtol=0, atol=1e-3)

    @pytest.mark.parametrize("readiness", [True, False])
    def test_the_chain_is_learned_by_quantiles(
        self, open_device: OpenDevice, readiness: bool
    ) -> None:
        config = load_config("chain", IQN | {"network.iqn.readiness": readiness})
        trainer = trained(open_device, config, 3_000)
        assert isinstance(trainer.environment, TabularEnvironment)
        exact = trainer.environment.optimal_q(0.9)
        found = trainer.quantiles(np.eye(5, dtype=np.float32), LEVELS)
        assert trainer.workspace.read("iqn_ready")[Ready.WEIGHT] == 1.0
        trainer.close()
        np.testing.assert_allclose(found.mean(axis=2), exact, rtol=0.01)
        # The returns are sure: what spread there is, is error.
        assert np.abs(found - exact[..., None]).mean() <= 0.01

    def test_the_chain_is_learned_by_atoms(self, open_device: OpenDevice) -> None:
        trainer = trained(open_device, load_config("chain", C51), 1_000)
        assert isinstance(trainer.environment, TabularEnvironment)
        exact = trainer.environment.optimal_q(0.9)
        values = q_table(trainer, trainer.environment)
        masses = trainer.atom_masses(np.eye(5, dtype=np.float32))
        trainer.close()
        np.testing.assert_allclose(values, exact, rtol=0.01)
        np.testing.assert_allclose(masses @ np.linspace(0, 1, 11), exact, rtol=0.01)
        assert masses[4, 1, 10] >= 0.99, "a sure reward of 1, which is an atom"

    def test_quantiles_tell_the_coins_two_sides_apart(self, open_device: OpenDevice) -> None:
        config = load_config("coin")
        trainer = trained(open_device, config, config.learn.lr.steps)
        found = trainer.quantiles(np.ones((1, 1), np.float32), LEVELS)[0]  # [A, levels]
        measured = coin_quantiles(trainer)
        trainer.close()
        away = np.abs(LEVELS - 0.5) > 0.1
        error = np.abs(found - (LEVELS > 0.5))[:, away].mean()
        assert error <= 0.03
        np.testing.assert_allclose(found.mean(axis=1), 0.5, atol=0.03)
        np.testing.assert_allclose(found.std(axis=1), 0.5, rtol=0.1)
        # What `onegraph prove` measures is the same.
        assert measured["error of the quantiles"] == pytest.approx(error, rel=1e-12)

    def test_a_kappa_as_wide_as_the_outcomes_learns_expectiles(
        self, open_device: OpenDevice
    ) -> None:
        """Those of a fair coin are the levels themselves, with a deviation of 1 / sqrt(12)."""
        config = load_config("coin", {"network.iqn.kappa": 1.0})
        trainer = trained(open_device, config, 400)
        found = trainer.quantiles(np.ones((1, 1), np.float32), LEVELS)[0]
        trainer.close()
        assert np.abs(found - LEVELS).mean() <= 0.04
        np.testing.assert_allclose(found.std(axis=1), 12**-0.5, rtol=0.1)

    def test_atoms_tell_the_coins_two_sides_apart(self, open_device: OpenDevice) -> None:
        trainer = trained(open_device, load_config("coin", {"network.head": "c51"}), 400)
        masses = trainer.atom_masses(np.ones((1, 1), np.float32))[0]  # [A, atoms]
        trainer.close()
        np.testing.assert_allclose(masses[:, [0, -1]], 0.5, atol=0.03)
        assert (masses[:, 1:-1].sum(axis=1) <= 0.02).all()
        places = np.linspace(0, 1, 11)
        mean = masses @ places
        deviation = np.sqrt(masses @ places**2 - mean**2)
        np.testing.assert_allclose(deviation, 0.5, rtol=0.1)

    @pytest.mark.parametrize("stages", ["0", "all"])
    def test_truncation_is_not_termination(self, open_device: OpenDevice, stages: str) -> None:
        q = learned(open_device, load_config("truncation-probe", SHORTER), stages)
        assert np.abs(q - 100).max() <= 0.1

    @pytest.mark.parametrize("stages", ["0", "all"])
    def test_eight_bits_are_solved_in_hindsight(self, open_device: OpenDevice, stages: str) -> None:
        assert success_rate(open_device, "future", stages, bits=8, steps=1_200) >= 0.95

    def test_eight_bits_are_not_solved_without_hindsight(self, open_device: OpenDevice) -> None:
        """In as many steps; some of the 256 goals are next to where an episode begins."""
        assert success_rate(open_device, "none", "all", bits=8, steps=1_200) <= 0.1

    @pytest.mark.parametrize(("n_step", "value"), [(1, 9.17), (3, 8.34)])
    def test_the_probe_tells_a_learner_that_takes_truncation_for_termination(
        self, open_device: OpenDevice, n_step: int, value: float
    ) -> None:
        """With Q the one value of all ten positions of an episode, one step gives
        Q = 1 + .9 gamma Q; three give Q = (1 + (1 + g) + 8 (1 + g + g^2)) / 10 + .7 g^3 Q.
        """
        config = load_config("truncation-probe", SHORTER | {"replay.n_step": n_step})
        q = learned(open_device, config, "all", after_collect=truncation_as_termination)
        # The share of terminal rows varies from batch to batch, and Q with it.
        np.testing.assert_allclose(q, value, rtol=0.15)


@pytest.mark.slow
class HindsightProofContract:
    """The shipped bit flipping, to its end; a minute on a CPU, so only a GPU's tests run it."""

    def test_fifteen_bits_are_solved_in_hindsight(self, open_device: OpenDevice) -> None:
        assert success_rate(open_device, "future", "all", bits=15, steps=4_000) >= 0.95

    def test_fifteen_bits_are_not_solved_without(self, open_device: OpenDevice) -> None:
        assert success_rate(open_device, "none", "all", bits=15, steps=4_000) <= 0.05


def success_rate(
    open_device: OpenDevice, strategy: str, stages: str, *, bits: int, steps: int
) -> float:
    """Of a thousand goals, the share that the greedy policy reaches after `steps` of learning."""
    config = load_config("bit-flip", {"hindsight.strategy": strategy, "env.bits": bits})
    trainer = fill(make(open_device(), config, stages))
    for _ in range(steps):
        trainer.learn()
        trainer.collect()
    rate = goals_reached(trainer)["goals reached"]
    trainer.close()
    return rate


def truncation_as_termination(trainer: Trainer) -> None:
    """Make the mistake that the probe is there to find."""
    flags = trainer.workspace.read("replay_flags")
    flags[flags == Flag.TRUNCATED] = Flag.TERMINATED
    trainer.workspace.write("replay_flags", flags)
