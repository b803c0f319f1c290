"""Which residual blocks a learning step keeps, and by what their outputs are scaled.

Huang et al. 2016 ("Deep networks with stochastic depth", equation 4, linear decay): of R blocks,
block r = 1..R survives with ``keep_r = 1 - (r / R) p_drop``. Here a surviving block is scaled by
``1 / keep_r`` as it is trained, and evaluation needs no scale: E[scale_r] = 1::

    scale[r - 1] = 1 / keep_r    where u_r < keep_r
                 = 0             else; always where keep_r is 0

u_r is the first Philox uniform keyed by the seed at counter (r - 1, step, DEPTH, 0), with step =
``counters[RNG] - 1``, so that the kernel stands after `advance_counters`. One draw a block and step
holds for the whole batch. `keep` is computed in float64 and the scale rounded once. `drop` must lie
in [0, 1]; NaN keeps no block.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter, StreamTag
from onegraph.kernels.common.philox import philox_uniform


@kernel(
    work="blocks",
    block=32,
    counters="in i64",
    scale="out f32",
    blocks="i32",
    drop="f64",
    seed="u64",
)
def depth_masks(
    counters: NDArray[np.int64],
    scale: NDArray[np.float32],
    *,
    blocks: int,
    drop: np.float64,
    seed: int,
) -> None:
    """Write the scale of each block [blocks] for the present learn step."""
    keep = 1.0 - (np.arange(1, blocks + 1) / blocks) * drop if blocks else np.zeros(0)
    step = int(counters[Counter.RNG]) - 1
    draws = philox_uniform(seed, np.arange(blocks), step & 0xFFFFFFFF, StreamTag.DEPTH)[:, 0]
    kept = draws < keep
    scale[:blocks] = np.divide(1.0, keep, out=np.zeros(blocks), where=kept)
