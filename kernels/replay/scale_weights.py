"""Importance-sampling weights, divided by the largest of the batch and rounded to float32 once.

The second half of `importance_weights`, after `raw_weights`; together they give its bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.replay.importance_weights import scaled

if TYPE_CHECKING:
    from onegraph.kernels.replay.tree import F32, F64


@kernel(work="n", raw="in f64", largest="in f64", weights="out f32", n="i32", parts="i32")
def scale_weights(raw: F64, largest: F64, weights: F32, n: int, parts: int) -> None:
    """`raw` [n], each not negative and finite, and `largest` [parts] to `weights` [n]."""
    weights[:n] = scaled(raw[:n], float(largest[:parts].max(initial=0.0)))
