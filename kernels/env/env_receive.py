"""Take in what environments on the host did: E lanes, from pinned memory that the device maps.

``host_obs`` is what each lane shows now. Where an episode ended (TERMINATED or TRUNCATED in
``host_flags``) that may be the first observation of the next one, and ``host_final`` has the one
that the episode ended in; in the other lanes ``host_final`` is not read.

The observation that the policy acted on, ``obs``, becomes ``obs_tm1``; ``obs_t`` is where that led,
never a reset's; ``obs`` is ``host_obs``. Reward, flags and episode are copied. With `reset` other
than 0 only ``obs`` is written: nothing has been done yet.

All values are copied as they are: NaN and infinities are for `insert_rows` to mark.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Flag


@kernel(
    per="warp",
    work="lanes",
    host_obs="in f32",
    host_final="in f32",
    host_reward="in f32",
    host_flags="in u8",
    host_episode="in i64",
    obs="inout f32",
    obs_tm1="out f32",
    obs_t="out f32",
    reward="out f32",
    flags="out u8",
    episode="out i64",
    lanes="i32",
    padded="i32",
    reset="i32",
)
def env_receive(
    host_obs: NDArray[np.float32],
    host_final: NDArray[np.float32],
    host_reward: NDArray[np.float32],
    host_flags: NDArray[np.uint8],
    host_episode: NDArray[np.int64],
    obs: NDArray[np.float32],
    obs_tm1: NDArray[np.float32],
    obs_t: NDArray[np.float32],
    reward: NDArray[np.float32],
    flags: NDArray[np.uint8],
    episode: NDArray[np.int64],
    *,
    lanes: int,
    padded: int,
    reset: int,
) -> None:
    """`obs`, `obs_tm1`, `obs_t`, `host_obs` and `host_final` are [E, Sp], the others [E]."""
    size = lanes * padded
    if not reset:
        obs_tm1[:size] = obs[:size]
        obs_t[:size] = host_obs[:size]
        ended = np.flatnonzero(host_flags[:lanes] & (Flag.TERMINATED | Flag.TRUNCATED))
        if ended.size:
            wide = lanes, padded
            obs_t[:size].reshape(wide)[ended] = host_final[:size].reshape(wide)[ended]
        reward[:lanes] = host_reward[:lanes]
        flags[:lanes] = host_flags[:lanes]
        episode[:lanes] = host_episode[:lanes]
    obs[:size] = host_obs[:size]
