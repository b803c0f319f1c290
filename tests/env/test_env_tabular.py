"""The tabular environment: transitions, endings, observations and episode ids."""

import numpy as np
import pytest
from pair_runs import run_host

from onegraph.kernels.common.layout import Flag

TERMINATED, TRUNCATED, INVALID = (int(f) for f in Flag)


class Chain:
    """States 0..4 in a row, actions left and right; +1 and the end on leaving 4 to the right."""

    states, actions, padded = 5, 2, 8

    def __init__(self, lanes=1, start=0, max_steps=0, seed=3):
        self.lanes, self.start, self.max_steps, self.seed = lanes, start, max_steps, seed
        s = np.arange(5)
        self.next = np.stack([np.maximum(s - 1, 0), np.minimum(s + 1, 4)], 1)
        self.reward, self.flags = np.zeros((5, 2)), np.zeros((5, 2), np.uint8)
        self.reward[4, 1], self.flags[4, 1] = 1, Flag.TERMINATED
        self.state = {
            "lane_state": np.zeros(lanes, np.int32),
            "lane_steps": np.zeros(lanes, np.int32),
            "lane_episode": np.zeros(lanes, np.int64),
            "obs": np.full((lanes, self.padded), np.nan, np.float32),
        }
        self.call([0] * lanes, reset=1)

    def call(self, action, reset=0):
        size = self.lanes * self.padded
        out = run_host(
            "env_tabular",
            table_next=self.next,
            table_reward=self.reward,
            table_flags=self.flags,
            action=action,
            **self.state,
            obs_tm1=size,
            obs_t=size,
            reward=self.lanes,
            flags=self.lanes,
            episode=self.lanes,
            lanes=self.lanes,
            states=self.states,
            actions=self.actions,
            padded=self.padded,
            start=self.start,
            max_steps=self.max_steps,
            seed=self.seed,
            reset=reset,
        )
        self.state = {name: out[name] for name in self.state}
        for name in ("obs", "obs_tm1", "obs_t"):
            out[name] = out[name].reshape(self.lanes, self.padded)
        return out


def one_hot(state):
    return [1.0 if c == state else 0.0 for c in range(Chain.padded)]


def test_reset_writes_the_first_observation():
    assert Chain(lanes=2, start=2).state["obs"].reshape(2, -1).tolist() == [one_hot(2)] * 2


def test_a_step_in_the_middle():
    out = Chain(start=2).call([1])
    assert out["obs_tm1"].tolist() == [one_hot(2)]
    assert out["obs_t"].tolist() == [one_hot(3)]
    assert out["obs"].tolist() == [one_hot(3)]
    assert (out["reward"][0], out["flags"][0], out["episode"][0]) == (0, 0, 0)


def test_termination_keeps_the_final_observation_and_begins_anew():
    env = Chain(lanes=2, start=4)
    out = env.call([1, 0])
    assert out["flags"].tolist() == [TERMINATED, 0]
    assert out["reward"].tolist() == [1, 0]
    assert out["obs_t"].tolist() == [one_hot(4), one_hot(3)]
    assert out["obs"].tolist() == [one_hot(4), one_hot(3)]
    assert env.call([0, 0])["episode"].tolist() == [0 + 2 * 1, 1]


def test_truncation_after_max_steps():
    env = Chain(max_steps=3)
    assert [env.call([0])["flags"][0] for _ in range(7)] == [0, 0, TRUNCATED] * 2 + [0]


def test_termination_wins_over_truncation():
    assert Chain(start=4, max_steps=1).call([1])["flags"].tolist() == [TERMINATED]


@pytest.mark.parametrize(("action", "state"), [(-7, 1), (9, 3)])
def test_an_action_out_of_range_is_clamped_and_flagged(action, state):
    out = Chain(start=2).call([action])
    assert out["flags"].tolist() == [INVALID]
    assert out["obs_t"].tolist() == [one_hot(state)]


def test_a_successor_out_of_range_is_clamped_and_flagged():
    env = Chain(start=2)
    env.next[2, 1] = 77
    out = env.call([1])
    assert out["flags"].tolist() == [INVALID]
    assert out["obs_t"].tolist() == [one_hot(4)]


def test_random_starts_cover_all_states_evenly_and_repeat_with_the_seed():
    lanes = 5000
    first = Chain(lanes=lanes, start=-1).state["lane_state"]
    counts = np.bincount(first, minlength=5)
    assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(lanes * 0.2 * 0.8))
    np.testing.assert_array_equal(first, Chain(lanes=lanes, start=-1).state["lane_state"])
    assert (first != Chain(lanes=lanes, start=-1, seed=4).state["lane_state"]).any()


def test_a_second_reset_begins_other_episodes():
    env = Chain(lanes=64, start=-1)
    first = env.state["lane_state"].copy()
    env.call([0] * 64, reset=1)
    assert (env.state["lane_state"] != first).any()
    assert env.call([0] * 64)["episode"].tolist() == [64 + lane for lane in range(64)]


def test_episode_ids_never_repeat():
    env, rng = Chain(lanes=3, start=-1, max_steps=4), np.random.default_rng(0)
    ended = []
    for _ in range(60):
        out = env.call(rng.integers(2, size=3))
        ended += out["episode"][(out["flags"] & (TERMINATED | TRUNCATED)) != 0].tolist()
    assert len(ended) == len(set(ended)) > 40
