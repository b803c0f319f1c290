"""Partial sums of squares of the gradient's groups and of an auxiliary gradient, in one pass.

The gradient is cut into `parts` contiguous chunks as in `grad_norm_partial`. Each chunk gives one
sum for each Adam group, over the elements that the chunk and the group's range share, and one for
the auxiliary gradient: float64 [8, parts], in the order of `reduce`. Ranges are those of
`adam_step`'s ``ends``.

``aux`` is the whole gradient of the denoise loss. Where there is one (`with_aux` not 0), the
denoise group's range of ``grad`` is not read: nothing has written it in this step. Where there is
none, ``aux`` is not read.

A NaN or an infinity makes the sums that it enters non-finite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import ADAM_GROUPS, Counter
from onegraph.kernels.learner.budget import AUX_COLUMN, NORM_COLUMNS
from onegraph.kernels.learner.reduce import LANES, chunked, lane_sum


@kernel(
    per="block",
    work="parts",
    block=LANES,
    grad="in f32",
    aux="in f32",
    ends="in i64",
    squares="out f64",
    n="i64",
    parts="i32",
    with_aux="i32",
)
def component_norms(
    grad: NDArray[np.float32],
    aux: NDArray[np.float32],
    ends: NDArray[np.int64],
    squares: NDArray[np.float64],
    *,
    n: int,
    parts: int,
    with_aux: int,
) -> None:
    """Write the sums of squares of `grad` and `aux` [n] to `squares` [8, parts]."""
    out = squares[: NORM_COLUMNS * parts].reshape(NORM_COLUMNS, parts)
    out[:] = 0.0
    start = 0
    with np.errstate(all="ignore"):
        for group in range(ADAM_GROUPS):
            stop = min(int(ends[group]), n)
            if stop <= start:
                continue
            if not (with_aux and group == Counter.ADAM_DENOISE):
                own = np.zeros(n)
                own[start:stop] = np.square(grad[start:stop], dtype=np.float64)
                out[group] = lane_sum(chunked(own, parts))
            start = stop
        if with_aux:
            out[AUX_COLUMN] = lane_sum(chunked(np.square(aux[:n], dtype=np.float64), parts))
