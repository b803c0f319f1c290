"""Which greedy episodes count, and what is made of them."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st
from scripted_envs import TERMINATED, TRUNCATED, Script
from trainer.setups import gym, make

from onegraph.kernels.device import HostDevice
from onegraph.trainer import episodes as module
from onegraph.trainer.episodes import EpisodeEvaluator, quotas
from onegraph.trainer.validation import validator

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]
#: Lane 0 has short episodes and lane 1 long ones; the returns of lengths 1, 2, 3, 6 are
#: 1.25, 2.75, 4.5 and 11.25.
SCRIPT = [[(1, TERMINATED), (2, TRUNCATED)], [(6, TERMINATED), (3, TRUNCATED)]]


def evaluator(script, episodes, monkeypatch, lanes=2):
    monkeypatch.setattr(module, "LANES", lanes)
    environment = script.environment()
    config = gym(env__lanes=2, env__validation_episodes=episodes)
    trainer = make(HostDevice(), config, "all", environment)
    return trainer, EpisodeEvaluator(trainer, environment, episodes)


@given(st.integers(1, 300), st.integers(1, 40))
def test_quotas_are_as_even_as_they_can_be(episodes, lanes):
    found = quotas(episodes, lanes)
    assert found.sum() == episodes
    assert found.max() - found.min() <= 1
    assert (np.diff(found) <= 0).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("episodes", "returns", "lengths"),
    [
        (1, [1.25], [1]),
        (2, [1.25, 11.25], [1, 6]),
        (3, [1.25, 11.25, 2.75], [1, 6, 2]),
        # Not 1.25, 2.75, 1.25, 2.75: the short lane waits for the long one.
        (4, [1.25, 11.25, 2.75, 4.5], [1, 6, 2, 3]),
        (5, [1.25, 11.25, 2.75, 4.5, 1.25], [1, 6, 2, 3, 1]),
    ],
)
def test_each_lane_has_its_share_however_long_its_episodes(
    monkeypatch, mode, episodes, returns, lengths
):
    trainer, evaluate = evaluator(Script(SCRIPT, mode), episodes, monkeypatch)
    told = []
    figures = evaluate.run(told.append)
    assert figures.returns.tolist() == returns
    assert figures.lengths.tolist() == lengths
    assert figures.cut == 0
    assert told[-1] == episodes
    again = evaluate.run()
    assert again.returns.tolist() == returns
    assert again.mean_q == figures.mean_q
    trainer.close()


@pytest.mark.parametrize("mode", MODES)
def test_mean_q_is_over_the_states_that_counting_episodes_acted_in(monkeypatch, mode):
    """Of two lanes with one episode each: 0; and 100 to 105. No final state, nothing after."""
    trainer, evaluate = evaluator(Script(SCRIPT, mode), 2, monkeypatch)
    states = np.float32([[0], [100], [101], [102], [103], [104], [105]])
    want = trainer.q_values(states).max(axis=1).mean()
    assert evaluate.run().mean_q == pytest.approx(want, rel=1e-12)
    trainer.close()


def test_values_are_the_same_in_blocks(monkeypatch):
    trainer, evaluate = evaluator(Script(SCRIPT), 4, monkeypatch)
    whole = evaluate.run().mean_q
    monkeypatch.setattr(module, "BLOCK", 1)
    assert evaluate.run().mean_q == pytest.approx(whole, rel=1e-12)
    trainer.close()


def test_figures_by_name(monkeypatch):
    trainer, evaluate = evaluator(Script(SCRIPT), 4, monkeypatch)
    figures = evaluate.run().named("x_")
    figures.pop("x_mean_q")
    returns = np.array([1.25, 11.25, 2.75, 4.5])
    assert figures == {
        "x_return": returns.mean(),
        "x_return_std": returns.std(),
        "x_return_min": 1.25,
        "x_return_max": 11.25,
        "x_length": 3.0,
    }
    trainer.close()


def test_an_episode_without_an_end_is_cut(monkeypatch):
    """It counts with what it has; the episodes behind it in its lane can't be run."""
    monkeypatch.setattr(module, "MOST_STEPS", 4)
    trainer, evaluate = evaluator(Script(SCRIPT), 4, monkeypatch)
    figures = evaluate.run()
    assert figures.cut == 1
    # 1.25 + 1.5 + 1.75 + 2 of lane 1, whose second episode is missing.
    assert figures.returns.tolist() == [1.25, 6.5, 2.75]
    assert figures.lengths.tolist() == [1, 4, 2]
    trainer.close()


def test_the_validation_is_the_mean_return(monkeypatch):
    trainer, evaluate = evaluator(Script(SCRIPT), 3, monkeypatch)
    found = validator(trainer.environment, trainer)()
    assert found.score == np.mean([1.25, 11.25, 2.75])
    assert found.figures == evaluate.run().named("validation_")
    trainer.close()


def test_without_episodes_or_lanes_for_them_there_is_no_score(monkeypatch):
    trainer, _ = evaluator(Script(SCRIPT), 3, monkeypatch)
    trainer.config = gym(env__lanes=2, env__validation_episodes=0)
    assert validator(trainer.environment, trainer) is None
    trainer.close()
