"""Bit flipping: transitions, endings, observations, episode ids, and where episodes begin."""

import numpy as np
import pytest
from pair_runs import run_host

from onegraph.kernels.common.layout import Flag
from onegraph.kernels.common.philox import philox4x32

TERMINATED, TRUNCATED, INVALID = (int(f) for f in Flag)


class Lanes:
    """Lanes of two bits, padded to eight columns, unless told otherwise."""

    def __init__(self, lanes=1, bits=2, padded=8, max_steps=0, seed=3):
        self.lanes, self.bits, self.padded = lanes, bits, padded
        self.max_steps, self.seed = max_steps, seed
        self.state = {
            "lane_steps": np.full(lanes, 7, np.int32),
            "lane_episode": np.zeros(lanes, np.int64),
            "obs": np.full((lanes, padded), np.nan, np.float32),
        }
        self.call([0] * lanes, reset=1)

    def call(self, action, reset=0):
        size = self.lanes * self.padded
        out = run_host(
            "env_bit_flip",
            action=action,
            **self.state,
            obs_tm1=size,
            obs_t=size,
            reward=self.lanes,
            flags=self.lanes,
            episode=self.lanes,
            lanes=self.lanes,
            bits=self.bits,
            padded=self.padded,
            max_steps=self.max_steps,
            seed=self.seed,
            reset=reset,
        )
        self.state = {name: out[name] for name in self.state}
        for name in ("obs", "obs_tm1", "obs_t"):
            out[name] = out[name].reshape(self.lanes, self.padded)
        return out

    def put(self, *observations):
        """Set the lanes' observations, given without padding."""
        obs = np.zeros((self.lanes, self.padded), np.float32)
        obs[:, : 2 * self.bits] = observations
        self.state["obs"] = obs

    @property
    def obs(self):
        return self.state["obs"].reshape(self.lanes, self.padded)


def padded(*values):
    return [*values, 0, 0, 0, 0]


def test_an_action_flips_its_bit():
    env = Lanes(lanes=2)
    env.put([0, 0, 1, 1], [1, 0, 0, 1])
    out = env.call([1, 0])
    assert out["obs_tm1"].tolist() == [padded(0, 0, 1, 1), padded(1, 0, 0, 1)]
    assert out["obs_t"].tolist() == [padded(0, 1, 1, 1), padded(0, 0, 0, 1)]
    assert out["obs"].tolist() == out["obs_t"].tolist()
    assert out["reward"].tolist() == [-1, -1]
    assert out["flags"].tolist() == [0, 0]
    assert out["episode"].tolist() == [0, 1]


def test_the_goal_ends_the_episode_and_its_observation_is_kept():
    env = Lanes(lanes=2)
    env.put([0, 1, 1, 1], [0, 0, 1, 1])
    out = env.call([0, 0])
    assert out["flags"].tolist() == [TERMINATED, 0]
    assert out["reward"].tolist() == [0, -1]
    assert out["obs_t"].tolist() == [padded(1, 1, 1, 1), padded(1, 0, 1, 1)]
    assert out["lane_steps"].tolist() == [0, 1]
    assert out["lane_episode"].tolist() == [2, 1]
    assert env.call([0, 0])["episode"].tolist() == [0 + 2 * 1, 1]


def test_to_leave_the_goal_is_a_step_like_any_other():
    env = Lanes()
    env.put([1, 0, 1, 0])
    assert [env.call([0])[name][0] for name in ("reward", "flags")] == [-1, TERMINATED]


def test_truncation_after_max_steps():
    env = Lanes(max_steps=3)
    flags = []
    for step in range(7):
        if step % 3 == 0:
            env.put([0, 0, 1, 1])
        flags.append(int(env.call([0])["flags"][0]))
    assert flags == [0, 0, TRUNCATED] * 2 + [0]


def test_termination_wins_over_truncation():
    env = Lanes(max_steps=1)
    env.put([0, 1, 1, 1])
    assert env.call([0])["flags"].tolist() == [TERMINATED]


@pytest.mark.parametrize(("action", "bit"), [(-7, 0), (9, 1)])
def test_an_action_out_of_range_is_clamped_and_flagged(action, bit):
    env = Lanes()
    env.put([0, 0, 1, 1])
    out = env.call([action])
    assert out["flags"].tolist() == [INVALID]
    assert out["obs_t"][0, :2].tolist() == [bit == 0, bit == 1]


@pytest.mark.parametrize("bits", [1, 15, 31, 32, 33, 64])
def test_a_state_and_a_goal_are_the_bits_of_four_words(bits):
    """Counter (lane, episode, 3), key = seed: word 0 and 1 are the state, 2 and 3 the goal."""
    env = Lanes(lanes=3, bits=bits, padded=136, seed=5 + (9 << 32))
    for episode in (0, 1):
        for lane in range(3):
            words = [int(w) for w in philox4x32([lane, episode, 3, 0], (5, 9))]
            state, goal = words[0] | words[1] << 32, words[2] | words[3] << 32
            wanted = [state >> i & 1 for i in range(bits)] + [goal >> i & 1 for i in range(bits)]
            assert env.obs[lane].tolist() == wanted + [0] * (136 - 2 * bits)
        env.call([0] * 3, reset=1)


def test_each_bit_is_set_in_half_of_the_episodes():
    lanes = 5000
    first = Lanes(lanes=lanes, bits=15, padded=32).obs
    assert set(np.unique(first).tolist()) == {0, 1}
    deviation = np.abs(first[:, :30].sum(axis=0) - lanes / 2)
    assert np.all(deviation < 5 * np.sqrt(lanes / 4))
    assert (first != Lanes(lanes=lanes, bits=15, padded=32, seed=4).obs).any()


def test_episode_ids_never_repeat():
    env, rng = Lanes(lanes=3, max_steps=4), np.random.default_rng(0)
    ended = []
    for _ in range(60):
        out = env.call(rng.integers(2, size=3))
        ended += out["episode"][(out["flags"] & (TERMINATED | TRUNCATED)) != 0].tolist()
    assert len(ended) == len(set(ended)) > 40
