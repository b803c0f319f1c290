"""Scale each component of the gradient to its budget (see `budget`), and add them up in place.

``grad[i] = scale[component of i's group] * grad[i] + scale[DENOISE] * aux[i]``, float32, the second
term only where there is an auxiliary gradient; the denoise group's range of ``grad`` is then not
read (see `component_norms`). A term whose scale is 0 is 0, whatever it scales. Elements of no group
get the second term alone.

The scales come from the partial sums of `component_norms`, added in the order of `reduce` with a
warp's threads. Norms and scales are written, for the log.

``partial`` gets the sums of squares of the chunks of the result, in `grad_norm_partial`'s order:
`clip_factor` can follow at once, without another pass over the gradient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import ADAM_GROUPS, Counter
from onegraph.kernels.learner.budget import (
    COMPONENT_OF,
    NORM_COLUMNS,
    Component,
    budget_scales,
    component_squares,
)
from onegraph.kernels.learner.reduce import LANES, WARP, chunked, lane_sum


def scaled(values: NDArray[np.float32], scale: np.float32) -> NDArray[np.float32]:
    """`values` times `scale`; zeros where the scale is 0."""
    return values * scale if scale else np.zeros_like(values)


@kernel(
    per="block",
    work="parts",
    block=LANES,
    grad="inout f32",
    aux="in f32",
    ends="in i64",
    squares="in f64",
    shares="in f64",
    norms="out f32",
    scales="out f32",
    partial="out f64",
    n="i64",
    parts="i32",
    with_aux="i32",
    max_norm="f64",
)
def apply_budget(
    grad: NDArray[np.float32],
    aux: NDArray[np.float32],
    ends: NDArray[np.int64],
    squares: NDArray[np.float64],
    shares: NDArray[np.float64],
    norms: NDArray[np.float32],
    scales: NDArray[np.float32],
    partial: NDArray[np.float64],
    *,
    n: int,
    parts: int,
    with_aux: int,
    max_norm: np.float64,
) -> None:
    """Change `grad` [n]; write `norms` and `scales` [6], and `partial` [parts]."""
    columns = squares[: NORM_COLUMNS * parts].reshape(NORM_COLUMNS, parts)
    with np.errstate(all="ignore"):
        norm = np.sqrt(component_squares(lane_sum(columns, WARP)))
        scale = budget_scales(norm, shares[: len(Component)], float(max_norm))
        norms[: len(Component)], scales[: len(Component)] = norm, scale
        total = np.zeros(n, np.float32)
        start = 0
        for group in range(ADAM_GROUPS):
            stop = min(int(ends[group]), n)
            if stop <= start:
                continue
            if not (with_aux and group == Counter.ADAM_DENOISE):
                total[start:stop] = scaled(grad[start:stop], scale[COMPONENT_OF[Counter(group)]])
            start = stop
        if with_aux:
            total += scaled(aux[:n], scale[Component.DENOISE])
        grad[:n] = total
        partial[:parts] = lane_sum(chunked(np.square(total, dtype=np.float64), parts))
