"""The selectivity gate: each feature times the sigmoid of its logit.

::

    out[r, j] = sigmoid(logit[j]) * x[r, j]    j < width
    out[r, j] = 0                              width <= j < cols, the padding

The sigmoid is computed in float64 and rounded once. A NaN logit makes its column NaN; a NaN in `x`
stays where it is, unless it stands in the padding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.row_sums import WARP, F
from onegraph.kernels.learner.sigmoid import sigmoid64


def gated(x: NDArray[F], logit: NDArray[F]) -> NDArray[F]:
    """The gated features, in the dtype of `x` [rows, n]; `logit` [n]."""
    result: NDArray[F] = sigmoid64(logit)[0].astype(x.dtype) * x
    return result


def row_parts(rows: int) -> int:
    """Into how many parts a launch over `rows` splits them: one for each 128."""
    return max(1, -(-rows // (4 * WARP)))


# 256 threads are 8 warps: per="warp" gives a block the 8 columns of one part of the rows.
@kernel(
    per="warp",
    work="cols*parts",
    x="in f32",
    logit="in f32",
    out="out f32",
    rows="i32",
    cols="i32",
    width="i32",
    parts="i32",
)
def gate_forward(
    x: NDArray[np.float32],
    logit: NDArray[np.float32],
    out: NDArray[np.float32],
    *,
    rows: int,
    cols: int,
    width: int,
    parts: int,
) -> None:
    """Write the gated features [rows, cols]; `parts` (at least 1) only splits the work."""
    del parts
    result = out[: rows * cols].reshape(rows, cols)
    with np.errstate(all="ignore"):
        result[:, :width] = gated(x[: rows * cols].reshape(rows, cols)[:, :width], logit[:width])
    result[:, width:] = 0
