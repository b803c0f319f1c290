"""ReLU, or its gradient, in place over the output of a large matmul.

cuBLASLt's own ReLU does not say what becomes of a NaN, which has to reach the finite check, and
its ReLU gradient wants a bit mask from the forward pass instead of the activation. Shapes:
``out`` [n] and, where ``grad`` is set, ``extra`` [n] (the activation).

``grad`` 0: negative values become zero; a NaN and -0.0 stay. ``grad`` 1: zero where the activation
is not greater than zero or is NaN. `n` takes 64 bits: [B, H] of a large batch passes 2^31.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel


@kernel(work="n", per_place=8, extra="in f32", out="inout f32", n="i64", grad="i32")
def relu_epilogue(extra: NDArray[Any], out: NDArray[Any], n: int, grad: int) -> None:
    """See the module's docstring."""
    zero = np.float32(0.0)
    if grad:
        np.copyto(out[:n], zero, where=~(extra[:n] > 0.0))
    else:
        np.copyto(out[:n], zero, where=out[:n] < 0.0)
