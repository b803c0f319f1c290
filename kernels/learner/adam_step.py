"""One Adam step with decoupled weight decay, on all groups of parameters.

Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019, algorithm 2::

    g     = grad * clip[1]
    m     = beta1 m + (1 - beta1) g
    v     = beta2 v + (1 - beta2) g^2
    param = param - lr ((m / bias1) / (sqrt(v / bias2) + eps) + decay param)

All parameters lie in one buffer. Element i belongs to the first group whose ``ends`` lies beyond i:
a group with no parameters ends where the one before it does. Elements from the last end on belong
to none and stay as they are. Each group has its own bias corrections (``1 - beta^t``) and decay.

Learning rate and bias corrections come from ``schedule``, where `advance_counters` put them,
rounded to float32 once. ``1 - beta`` is formed from the float32 beta, which is exact, and the
corrections are those of the float32 beta too: the weights of past gradients then sum to exactly
what they are divided by. Every float32 operation is in one order on both sides.

``skip[0]`` other than 0 leaves everything as it is. A step that is not skipped has a finite
gradient norm, so that only a non-finite parameter or moment of before can yield one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import ADAM_GROUPS, Schedule


@kernel(
    work="n",
    param="inout f32",
    m="inout f32",
    v="inout f32",
    grad="in f32",
    clip="in f32",
    schedule="in f64",
    skip="in i32",
    ends="in i64",
    decay="in f32",
    n="i64",
    beta1="f32",
    beta2="f32",
    eps="f32",
)
def adam_step(
    param: NDArray[np.float32],
    m: NDArray[np.float32],
    v: NDArray[np.float32],
    grad: NDArray[np.float32],
    clip: NDArray[np.float32],
    schedule: NDArray[np.float64],
    skip: NDArray[np.int32],
    ends: NDArray[np.int64],
    decay: NDArray[np.float32],
    *,
    n: int,
    beta1: np.float32,
    beta2: np.float32,
    eps: np.float32,
) -> None:
    """Advance `param`, `m` and `v` [n] by one step; `ends` and `decay` [7] are the groups'."""
    if skip[0]:
        return
    one = np.float32(1.0)
    start = 0
    for group in range(ADAM_GROUPS):
        stop = min(int(ends[group]), n)
        if stop <= start:
            continue
        here = slice(start, stop)
        start = stop
        with np.errstate(all="ignore"):
            rate = np.float32(schedule[Schedule.LEARNING_RATE])
            bias1 = np.float32(schedule[Schedule.BIAS + 2 * group])
            bias2 = np.float32(schedule[Schedule.BIAS + 2 * group + 1])
            g = grad[here] * clip[1]
            mean, square, p = m[here], v[here], param[here]
            mean *= beta1
            mean += (one - beta1) * g
            square *= beta2
            square += ((one - beta2) * g) * g
            update = square / bias2
            np.sqrt(update, out=update)
            update += eps
            np.divide(mean / bias1, update, out=update)
            update += decay[group] * p
            update *= rate
            p -= update
