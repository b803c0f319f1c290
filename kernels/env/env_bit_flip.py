"""Bit flipping (Andrychowicz et al. 2017, section 3.1): E lanes that turn n bits into a goal.

An observation is [bits | goal bits] as 0 and 1, S = 2n, zero padded to Sp. Action i flips bit i.
The reward is -1 until the bits equal the goal, then 0, and the episode terminates.

With `reset` other than 0 every lane begins a new episode and only ``obs`` and the lane arrays are
written. Otherwise each lane takes its action: ``obs_tm1`` is the observation acted on, ``obs_t``
the one arrived at, before any reset; ``reward``, ``flags`` and the episode's id (see `lanes`) go
with them. An episode that ended begins anew at once, so ``obs`` is what the next action is chosen
on. `max_steps` > 0 truncates; a transition that also reaches the goal is a termination.

The bits of an episode are those of the four words of Philox at (lane, number of its episode,
RESET): bit i of the state is bit i of the first two words, lowest first, and bit i of the goal is
bit i of the last two. State and goal are independent, and may be equal: the episode then goes on
like any other, and ends when its bits equal the goal again.

An action out of range is taken as the nearest one, and the row is flagged INVALID. A bit of ``obs``
is set if it is anything but 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Flag, StreamTag
from onegraph.kernels.common.philox import philox4x32

#: A state and a goal are drawn by one call of Philox, which gives 128 bits.
MOST_BITS = 64


def first_bits(seed: int, episode: NDArray[np.int64], bits: int) -> NDArray[np.bool_]:
    """State and goal [E, 2 x bits] of the `episode`-th episode (counted from 0) of each lane."""
    lanes = len(episode)
    counter = np.zeros((lanes, 4), np.uint32)
    counter[:, 0] = np.arange(lanes)
    counter[:, 1] = episode.astype(np.uint32)
    counter[:, 2] = StreamTag.RESET
    words = philox4x32(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    bit = np.arange(bits)

    def half(first: int) -> NDArray[np.bool_]:
        drawn = words[:, first + bit // 32] >> (bit % 32).astype(np.uint32)
        return (drawn & np.uint32(1)).astype(np.bool_)

    return np.concatenate([half(0), half(2)], axis=1)


@kernel(
    per="warp",
    work="lanes",
    block=128,
    action="in i32",
    lane_steps="inout i32",
    lane_episode="inout i64",
    obs="inout f32",
    obs_tm1="out f32",
    obs_t="out f32",
    reward="out f32",
    flags="out u8",
    episode="out i64",
    lanes="i32",
    bits="i32",
    padded="i32",
    max_steps="i32",
    seed="u64",
    reset="i32",
)
def env_bit_flip(
    action: NDArray[np.int32],
    lane_steps: NDArray[np.int32],
    lane_episode: NDArray[np.int64],
    obs: NDArray[np.float32],
    obs_tm1: NDArray[np.float32],
    obs_t: NDArray[np.float32],
    reward: NDArray[np.float32],
    flags: NDArray[np.uint8],
    episode: NDArray[np.int64],
    *,
    lanes: int,
    bits: int,
    padded: int,
    max_steps: int,
    seed: int,
    reset: int,
) -> None:
    """Take one step in every lane, or begin a new episode in each.

    `obs`, `obs_tm1` and `obs_t` are [E, Sp], the other arrays [E]; `bits` is 1 to `MOST_BITS`, and
    `padded` at least twice that.
    """
    width = 2 * bits
    observed = obs[: lanes * padded].reshape(lanes, padded)
    steps, begun = lane_steps[:lanes], lane_episode[:lanes]
    if reset:
        restart = np.ones(lanes, np.bool_)
    else:
        flipped = np.clip(action[:lanes], 0, bits - 1)
        after = observed[:, :width] != 0.0
        after[np.arange(lanes), flipped] ^= True
        reached = (after[:, :bits] == after[:, bits:]).all(axis=1)
        steps += 1
        late = ~reached & (max_steps > 0) & (steps >= max_steps)
        obs_tm1[: lanes * padded] = observed.reshape(-1)
        arrived = obs_t[: lanes * padded].reshape(lanes, padded)
        arrived[:, :width], arrived[:, width:] = after, 0.0
        reward[:lanes] = np.where(reached, 0.0, -1.0)
        flags[:lanes] = (
            reached * Flag.TERMINATED.value
            + late * Flag.TRUNCATED.value
            + (flipped != action[:lanes]) * Flag.INVALID.value
        )
        episode[:lanes] = np.arange(lanes) + lanes * (begun - 1)
        observed[:] = arrived
        restart = reached | late
    if restart.any():
        observed[restart, :width] = first_bits(seed, begun, bits)[restart]
        observed[restart, width:] = 0.0
        steps[restart] = 0
        begun[restart] += 1
