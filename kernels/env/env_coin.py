"""A coin (one state, two outcomes): E lanes whose every episode is one toss, whatever the action.

The observation is 1 in the first column, zero padded to Sp. The reward is 0 or 1 with equal chance
and the episode terminates, so that the return of either action is 0 or 1, with mean 1/2 and
standard deviation 1/2. A learner of the mean alone can't tell it from a sure 1/2; one of the
return's distribution must (Bellemare et al. 2017, section 3).

With `reset` other than 0 every lane begins a new episode and only ``obs`` and ``lane_episode`` are
written. Otherwise each lane tosses: ``obs_tm1`` and ``obs_t`` are the observation before and after,
and ``reward``, ``flags`` and the episode's id (see `lanes`) go with them. The toss is the highest
bit of the first word of Philox at (lane, number of its episode, TOSS).

The action is not read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Flag, StreamTag
from onegraph.kernels.common.philox import philox4x32


def tosses(seed: int, episode: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The outcome [E], 0 or 1, of the `episode`-th episode (counted from 0) of each lane."""
    counter = np.zeros((len(episode), 4), np.uint32)
    counter[:, 0] = np.arange(len(episode))
    counter[:, 1] = episode.astype(np.uint32)
    counter[:, 2] = StreamTag.TOSS
    words = philox4x32(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    outcome: NDArray[np.uint32] = words[:, 0] >> np.uint32(31)
    return outcome


@kernel(
    work="lanes",
    lane_episode="inout i64",
    obs="out f32",
    obs_tm1="out f32",
    obs_t="out f32",
    reward="out f32",
    flags="out u8",
    episode="out i64",
    lanes="i32",
    padded="i32",
    seed="u64",
    reset="i32",
)
def env_coin(
    lane_episode: NDArray[np.int64],
    obs: NDArray[np.float32],
    obs_tm1: NDArray[np.float32],
    obs_t: NDArray[np.float32],
    reward: NDArray[np.float32],
    flags: NDArray[np.uint8],
    episode: NDArray[np.int64],
    *,
    lanes: int,
    padded: int,
    seed: int,
    reset: int,
) -> None:
    """Toss once in every lane, or begin a new episode in each.

    `obs`, `obs_tm1` and `obs_t` are [E, Sp], the other arrays [E].
    """
    begun = lane_episode[:lanes]
    for out in (obs,) if reset else (obs, obs_tm1, obs_t):
        out[: lanes * padded].reshape(lanes, padded)[:] = np.arange(padded) == 0
    if not reset:
        reward[:lanes] = tosses(seed, begun - 1)
        flags[:lanes] = Flag.TERMINATED
        episode[:lanes] = np.arange(lanes) + lanes * (begun - 1)
    begun += 1
