"""Let a row's advantage over the value networks scale its TD error, before the priority update.

In float64, rounded to float32 once, in place on the batch's TD errors::

    advantage = (Q(s, a) - V_lo(s)) / (max(V_hi(s) - V_lo(s), 0) + eps)
    factor    = clip(exp(min(k advantage, 20)), low, high)
    td        = td factor

The weight exp(beta A) of advantage-weighted regression (Kostrikov et al. 2022, equation 7), with
the advantage counted from the low expectile in units of the spread between both, and applied to the
priority instead of a policy. `eps` must be positive, 0 <= `low` <= `high`.

A NaN in any of td, Q, V_hi and V_lo, or infinities that cancel, leave NaN in td:
`update_priorities` then keeps the row's leaf and counts it. The same goes for a td that is
infinite, or overflows float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.detmath import exp64

#: The exponent's bound.
LARGEST_EXPONENT = 20.0


def advantage_factor(
    q: NDArray[np.floating[Any]],
    v_hi: NDArray[np.floating[Any]],
    v_lo: NDArray[np.floating[Any]],
    *,
    k: float,
    eps: float,
    low: float,
    high: float,
) -> NDArray[np.float64]:
    """The factor [B] of each row's TD error, in float64; NaN where any value is NaN."""
    value, upper, lower = (x.astype(np.float64) for x in (q, v_hi, v_lo))
    spread = upper - lower
    spread = np.where(spread < 0.0, 0.0, spread)  # a NaN stays one
    exponent = (k * (value - lower)) / (spread + eps)
    factor = exp64(np.where(exponent > LARGEST_EXPONENT, LARGEST_EXPONENT, exponent))
    factor = np.where(factor < low, low, factor)
    return np.where(factor > high, high, factor)


@kernel(
    work="rows",
    td="inout f32",
    q="in f32",
    v_hi="in f32",
    v_lo="in f32",
    rows="i32",
    k="f64",
    eps="f64",
    low="f64",
    high="f64",
)
def iql_modulate(
    td: NDArray[np.float32],
    q: NDArray[np.float32],
    v_hi: NDArray[np.float32],
    v_lo: NDArray[np.float32],
    *,
    rows: int,
    k: np.float64,
    eps: np.float64,
    low: np.float64,
    high: np.float64,
) -> None:
    """Scale `td` [rows] by the factor of `q`, `v_hi` and `v_lo` [rows]."""
    with np.errstate(all="ignore"):
        factor = advantage_factor(
            q[:rows],
            v_hi[:rows],
            v_lo[:rows],
            k=float(k),
            eps=float(eps),
            low=float(low),
            high=float(high),
        )
        td[:rows] = td[:rows].astype(np.float64) * factor
