"""Noised states for the denoising auxiliary: ``out = s + sigma z``, z standard normal.

The first `width` columns of each row get noise; the padding behind them is written as 0. Elements
2p and 2p + 1 of the matrix [rows, padded], read row by row, take the two numbers of `normal_pair`
from Philox, keyed by the seed, at counter (p, ``counters[RNG]`` - 1, DENOISE): the learning step's
number, once `advance_counters` has run. The noise is added in float64 and rounded to float32 once;
a sigma of 0 copies the states. A state that is NaN or infinite stays so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter, StreamTag
from onegraph.kernels.common.normal import normal_pair
from onegraph.kernels.common.philox import philox_uniform


@kernel(
    work="rows*padded",
    s="in f32",
    counters="in i64",
    noised="out f32",
    rows="i32",
    width="i32",
    padded="i32",
    sigma="f64",
    seed="u64",
)
def add_noise(
    s: NDArray[np.float32],
    counters: NDArray[np.int64],
    noised: NDArray[np.float32],
    *,
    rows: int,
    width: int,
    padded: int,
    sigma: np.float64,
    seed: int,
) -> None:
    """Write `noised` [rows, padded] from `s` [rows, padded]."""
    size = rows * padded
    step = int(counters[Counter.RNG]) - 1
    draws = philox_uniform(seed, np.arange(-(-size // 2)), step & 0xFFFFFFFF, StreamTag.DENOISE)
    normals = normal_pair(draws).reshape(-1)[:size].reshape(rows, padded)
    states = s[:size].reshape(rows, padded).astype(np.float64)
    out = noised[:size].reshape(rows, padded)
    with np.errstate(invalid="ignore", over="ignore"):
        out[:, :width] = states[:, :width] + sigma * normals[:, :width]
    out[:, width:] = 0.0
