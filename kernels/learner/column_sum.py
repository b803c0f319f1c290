"""Column sums of a matrix, in a fixed order: the gradient of a bias.

``out[c] = sum over r of x[r, c]``, x [rows, cols], float32. Lane l of a column adds rows l,
l + 128, l + 256, … in turn to zero; lanes l, l + 32, l + 64 and l + 96 are added in turn; and the
32 sums that are left as `row_sums.sum_over_rows` adds its lanes. The order depends on nothing but
the number of rows. NaN and infinity pass through to their column alone. No rows give zeros.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.row_sums import WARP, add_lanes, lane_sums

#: Row lanes of a column.
LANES = 128


# 256 threads are 8 warps: per="warp" gives each block the 8 columns that it adds.
@kernel(
    per="warp",
    work="cols",
    x="in f32",
    out="out f32",
    rows="i32",
    cols="i32",
)
def column_sum(x: NDArray[np.float32], out: NDArray[np.float32], *, rows: int, cols: int) -> None:
    """Write the sum of each column of `x` to `out`."""
    with np.errstate(all="ignore"):
        lanes = lane_sums(x[: rows * cols].reshape(rows, cols), LANES)
        out[:cols] = add_lanes(lane_sums(lanes, WARP))
