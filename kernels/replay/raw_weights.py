"""Importance-sampling weights before they are scaled: the first half of `importance_weights`.

For batches that one block would be slow for. ``raw = (FILLED * leaf / total)^-beta`` in float64, 0
where `importance_weights` weighs 0; ``largest`` holds the largest of each of `parts` parts of the
batch, in whatever way they divide it. `scale_weights` is the second half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.replay.importance_weights import unscaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64

#: Rows of a part, one a thread, until there are `MOST_PARTS`.
ROWS = 256
MOST_PARTS = 1024


def parts_of(n: int) -> int:
    """Parts of a batch of `n` rows."""
    return max(1, min(MOST_PARTS, -(-n // ROWS)))


@kernel(
    per="block",
    work="parts",
    block=ROWS,
    sparse_reads={"leaves": "n"},
    leaves="in f32",
    total="in f64",
    index="in i32",
    counters="in i64",
    schedule="in f64",
    raw="out f64",
    largest="out f64",
    n="i32",
    leaf_count="i64",
    parts="i32",
)
def raw_weights(
    leaves: F32,
    total: F64,
    index: NDArray[np.int32],
    counters: I64,
    schedule: F64,
    raw: F64,
    largest: F64,
    n: int,
    leaf_count: int,
    parts: int,
) -> None:
    """`index` [n] and the tree's `leaves` [N] and `total` [1] to `raw` [n], `largest` [parts]."""
    raw[:n] = unscaled(leaves, total, index[:n], counters, schedule, leaf_count)
    part = np.arange(n) // ROWS % parts
    largest[:parts] = 0.0
    np.maximum.at(largest[:parts], part, raw[:n])
