"""The coin: fair tosses that are a function of seed, lane and episode."""

import numpy as np
import pytest
from pair_runs import run_host

from onegraph.kernels.common.layout import Flag
from onegraph.kernels.env.env_coin import tosses


def call(episodes, *, reset=0, seed=3, padded=8):
    lanes = len(episodes)
    size = lanes * padded
    sizes = dict.fromkeys(("obs", "obs_tm1", "obs_t"), size)
    sizes |= dict.fromkeys(("reward", "flags", "episode"), lanes)
    scalars = {"lanes": lanes, "padded": padded, "seed": seed, "reset": reset}
    return run_host("env_coin", lane_episode=np.array(episodes, np.int64), **sizes, **scalars)


def test_a_reset_begins_an_episode_and_nothing_else():
    out = call([0, 4], reset=1)
    assert out["lane_episode"].tolist() == [1, 5]
    assert out["obs"].reshape(2, 8).tolist() == [[1, 0, 0, 0, 0, 0, 0, 0]] * 2
    for untouched in ("obs_tm1", "obs_t", "reward"):
        assert np.isnan(out[untouched]).all()


def test_every_step_is_an_episode_that_terminates():
    out = call([1, 5, 7])
    assert out["flags"].tolist() == [Flag.TERMINATED] * 3
    assert out["episode"].tolist() == [0, 1 + 3 * 4, 2 + 3 * 6]
    assert out["lane_episode"].tolist() == [2, 6, 8]
    for seen in ("obs", "obs_tm1", "obs_t"):
        assert out[seen].reshape(3, 8).tolist() == [[1, 0, 0, 0, 0, 0, 0, 0]] * 3


def test_outcomes_are_those_of_the_lanes_present_episode():
    out = call([1, 5, 7])
    assert out["reward"].tolist() == tosses(3, np.array([0, 4, 6])).tolist()


def test_heads_and_tails_come_up_alike_and_independently():
    """Within five standard errors: of a lane's episodes, of an episode's lanes, and in pairs."""
    n = 4_000
    found = np.array([tosses(9, np.full(n, e)) for e in range(20)], np.float64)  # [episode, lane]
    assert set(found.ravel()) == {0.0, 1.0}
    assert np.abs(found.mean(axis=1) - 0.5).max() < 5 * 0.5 / np.sqrt(n)
    assert abs(found.mean() - 0.5) < 5 * 0.5 / np.sqrt(found.size)
    for first, second in ((found[1:], found[:-1]), (found[:, 1:], found[:, :-1])):
        assert abs((first == second).mean() - 0.5) < 5 * 0.5 / np.sqrt(first.size)


def test_another_seed_tosses_otherwise():
    episode = np.zeros(200, np.int64)
    assert (tosses(1, episode) != tosses(2, episode)).any()
    assert (tosses(1, episode) != tosses(1 + (1 << 40), episode)).any(), "all 64 bits are the key"


@pytest.mark.parametrize("lanes", [0, 1, 129])
def test_any_number_of_lanes(lanes):
    assert (call([1] * lanes)["lane_episode"][:lanes] == 2).all()
