"""What the host's environments did, taken in: which observation goes where."""

import numpy as np
import pytest
from pair_runs import run_host

from onegraph.kernels.common.layout import Flag

PADDED = 2


def call(before, now, final, flags, *, reset=0):
    lanes = len(before)
    size = lanes * PADDED
    return run_host(
        "env_receive",
        host_obs=np.array(now, np.float32),
        host_final=np.array(final, np.float32),
        host_reward=np.arange(lanes) + 0.5,
        host_flags=flags,
        host_episode=np.arange(lanes) + 7,
        obs=np.array(before, np.float32),
        **dict.fromkeys(("obs_tm1", "obs_t"), size),
        **dict.fromkeys(("reward", "flags", "episode"), lanes),
        lanes=lanes,
        padded=PADDED,
        reset=reset,
    )


def test_a_step_moves_the_observations_on():
    """Lane 0 goes on, 1 terminated, 2 was truncated, 3 did both, 4 was only reset."""
    nan = [np.nan, np.nan]
    flags = [0, 1, 2, 3, Flag.INVALID]
    before = [[1, 2], [3, 4], [5, 6], [7, 8], [9, 9]]
    now = [[10, 20], [30, 40], [50, 60], [70, 80], [90, 90]]
    out = call(before, now, [nan, [31, 41], [51, 61], [71, 81], nan], flags)
    assert out["obs_tm1"].reshape(-1, 2).tolist() == before
    assert out["obs_t"].reshape(-1, 2).tolist() == [
        [10, 20],
        [31, 41],
        [51, 61],
        [71, 81],
        [90, 90],
    ]
    assert out["obs"].reshape(-1, 2).tolist() == now
    assert out["reward"].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert out["flags"].tolist() == flags
    assert out["episode"].tolist() == [7, 8, 9, 10, 11]


def test_a_reset_only_shows():
    out = call([[1, 2]], [[3, 4]], [[5, 6]], [1], reset=1)
    assert out["obs"].ravel().tolist() == [3, 4]
    for untouched in ("obs_tm1", "obs_t", "reward"):
        assert np.isnan(out[untouched]).all()


def test_values_that_are_not_finite_go_through():
    out = call([[np.inf, 0]], [[np.nan, 1]], [[-np.inf, 2]], [1])
    np.testing.assert_array_equal(out["obs_tm1"], np.float32([np.inf, 0]))
    np.testing.assert_array_equal(out["obs_t"], np.float32([-np.inf, 2]))
    np.testing.assert_array_equal(out["obs"].ravel(), np.float32([np.nan, 1]))


@pytest.mark.parametrize("lanes", [0, 1, 129])
def test_any_number_of_lanes(lanes):
    rows = np.arange(lanes * PADDED, dtype=np.float32).reshape(lanes, PADDED)
    out = call(rows, rows + 1, rows + 2, [1] * lanes)
    assert (out["obs_t"][: lanes * PADDED] == rows.ravel() + 2).all()
