"""Column sums of a matrix, in a fixed order: the gradient of a bias.

``out[c] = sum over r of x[r, c]``, x [rows, cols], float32. The kernel adds every 32nd row in turn,
then the 32 partial sums in turn, so that one input gives one result on any run of one device; NumPy
adds in another order, and the two differ by rounding (at most rows x 2^-23 x sum |x|). NaN and
infinity pass through to their column alone. No rows give zeros.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel


# 1,024 threads are 32 warps: per="warp" gives each block the 32 columns that it adds.
@kernel(
    per="warp",
    work="cols",
    block=1024,
    fma=True,
    x="in f32",
    out="out f32",
    rows="i32",
    cols="i32",
)
def column_sum(x: NDArray[np.float32], out: NDArray[np.float32], *, rows: int, cols: int) -> None:
    """Write the sum of each column of `x` to `out`."""
    with np.errstate(all="ignore"):
        out[:cols] = x[: rows * cols].reshape(rows, cols).sum(axis=0)  # [cols]
