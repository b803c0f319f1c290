"""Action values from the IQN head, blended with a plain head's while the quantiles are not ready.

The mean over the sampled levels is the value (Dabney et al. 2018, equation 3.1). It is taken column
by column, which a dueling head allows: q is linear in its columns. With w = ``ready[1]``
(`iqn_readiness`)::

    values[r, c] = (1 - w) head_plain[r, c] + w (sum over j = 0..Q-1, in turn, of head[r, j, c]) / Q

head [rows Q, A + d], head_plain and values [rows, A + d]: what `act`, `dqn_loss` and `iqn_loss`
read. Float64, rounded once. At w = 0 the values are the plain head's, bit for bit, whatever the
quantiles are (even NaN), and at w = 1 the plain head is not read; between the two a NaN of either
head passes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.iqn_readiness import Ready


@kernel(
    work="rows*stride",
    head="in f32",
    head_plain="in f32",
    ready="in f64",
    values="out f32",
    rows="i32",
    quantiles="i32",
    stride="i32",
)
def iqn_values(
    head: NDArray[np.float32],
    head_plain: NDArray[np.float32],
    ready: NDArray[np.float64],
    values: NDArray[np.float32],
    *,
    rows: int,
    quantiles: int,
    stride: int,
) -> None:
    """Write the blended head `values` [rows, A + d]."""
    samples = head[: rows * quantiles * stride].reshape(rows, quantiles, stride)
    size = rows * stride
    w = ready[Ready.WEIGHT]
    with np.errstate(all="ignore"):
        total = np.zeros((rows, stride))
        for j in range(quantiles):
            total = total + samples[:, j]
        mean = (total / quantiles).ravel()
        plain = head_plain[:size].astype(np.float64)
        if w == 0.0:
            values[:size] = plain
        elif w == 1.0:
            values[:size] = mean
        else:
            values[:size] = (1.0 - w) * plain + w * mean
