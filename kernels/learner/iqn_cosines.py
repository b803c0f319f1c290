"""Quantile levels of an IQN pass, and the cosines that embed them (Dabney et al. 2018, equation 4).

Level k = row Q + j of [rows, Q] comes from Philox, keyed by the seed, at counter (k, step, TAU,
`use`, see `TauUse`): the fourth word keeps the passes of a step apart. The step is
``counters[RNG] - 1`` in a learning step (`program` 0, after `advance_counters`) and
``counters[COLLECT]`` otherwise. The upper 23 bits b of the first word give::

    tau          = (2 b + 1) 2^-24                  uniform, inside (0, 1), symmetric about 1/2
    cosines[k,i] = cos(pi i tau),  i = 0..I-1       the paper has I = 64

A level is exact in float32, and i tau exact in float64; the cosine is `detmath`'s, rounded once.
The paper counts i from 0, where the cosine is 1 at every level.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.detmath import cospi64
from onegraph.kernels.common.layout import Counter, StreamTag
from onegraph.kernels.common.philox import philox4x32
from onegraph.kernels.learner.advance_counters import LEARN


class TauUse(IntEnum):
    """Fourth word of the Philox counter: which pass through the head a level is for."""

    ONLINE = 0
    SELECT = 1
    TARGET = 2
    ACT = 3
    EVALUATE = 4


def quantile_levels(seed: int, count: int, step: int, use: int) -> NDArray[np.float32]:
    """Levels [count], float32, of the pass `use` of step `step`."""
    counter = np.zeros((count, 4), np.uint64)
    counter[:, 0] = np.arange(count)
    counter[:, 1] = step & 0xFFFFFFFF
    counter[:, 2], counter[:, 3] = StreamTag.TAU, use
    bits = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))[:, 0] >> np.uint32(9)
    return ((2.0 * bits + 1.0) * 2.0**-24).astype(np.float32)


def cosine_features(tau: NDArray[np.floating], frequencies: int) -> NDArray[np.float64]:
    """``cos(pi i tau)`` [n, frequencies] of the levels [n]."""
    turns = np.arange(frequencies) * tau.astype(np.float64)[:, None]
    turns = turns - 2.0 * np.floor(0.5 * turns)  # one period, [0, 2): exact
    return cospi64(np.where(turns > 1.0, 2.0 - turns, turns))


@kernel(
    per="warp",
    work="n",
    per_place=8,
    tau="out f32",
    cosines="out f32",
    counters="in i64",
    n="i32",
    frequencies="i32",
    program="i32",
    use="i32",
    seed="u64",
)
def iqn_cosines(
    tau: NDArray[np.float32],
    cosines: NDArray[np.float32],
    counters: NDArray[np.int64],
    *,
    n: int,
    frequencies: int,
    program: int,
    use: int,
    seed: int,
) -> None:
    """Write the levels `tau` [n] and their `cosines` [n, frequencies]; n = rows Q."""
    step = int(counters[Counter.RNG]) - 1 if program == LEARN else int(counters[Counter.COLLECT])
    tau[:n] = quantile_levels(seed, n, step, use)
    cosines[: n * frequencies] = cosine_features(tau[:n], frequencies).ravel()
