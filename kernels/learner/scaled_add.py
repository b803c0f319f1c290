"""``out = a + s b`` elementwise, with s read from device memory: the skip of a residual block.

s is ``scale[0]`` where `scaled` is other than 0, and 1 (`scale` is not read) where it is 0: a plain
sum. **A scale of 0 gives a**, whatever `b` holds: a block that stochastic depth leaves out
(`depth_masks`) can't reach the output, not even with a NaN. Else NaN and infinity pass through.
`out` must not overlap `a` or `b`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel


@kernel(
    work="n",
    per_place=4,
    a="in f32",
    b="in f32",
    scale="in f32",
    out="out f32",
    n="i64",
    scaled="i32",
)
def scaled_add(
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    scale: NDArray[np.float32],
    out: NDArray[np.float32],
    *,
    n: int,
    scaled: int,
) -> None:
    """Write `out` [n] from `a` and `b` [n] and `scale` [1]."""
    factor = scale[0] if scaled else np.float32(1)
    with np.errstate(all="ignore"):
        out[:n] = a[:n] if factor == 0 else a[:n] + factor * b[:n]
