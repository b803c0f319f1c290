"""The gradient of `scaled_add` in its second summand: ``grad_b = s g``.

s is ``scale[0]``. A scale of 0 gives 0, whatever g holds: what the forward pass left out learns
nothing. The gradient in the first summand is g itself and needs no kernel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel


@kernel(work="n", per_place=4, grad_out="in f32", scale="in f32", grad_b="out f32", n="i64")
def scaled_add_grad(
    grad_out: NDArray[np.float32],
    scale: NDArray[np.float32],
    grad_b: NDArray[np.float32],
    *,
    n: int,
) -> None:
    """Write `grad_b` [n] from `grad_out` [n] and `scale` [1]."""
    with np.errstate(all="ignore"):
        grad_b[:n] = 0 if scale[0] == 0 else scale[0] * grad_out[:n]
