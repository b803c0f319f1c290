"""A whole batch in one launch, but for the scaling of its weights.

What `sample_batch` does, with the same bits, up to the importance weights, of which it leaves
``raw = (FILLED * leaf / total)^-beta`` (float64, `raw_weights`): dividing by the largest waits for
all rows, and `td_pass` does it where it reads the weights. On the device a block is one warp, and
has one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.fused.draw_ending import raw_weights_of
from onegraph.kernels.replay.draw_params import COUNTERS, DRAWN, RING, SIZES, SPARSE_READS
from onegraph.kernels.replay.sample_batch import sample_batch

if TYPE_CHECKING:
    from onegraph.kernels.replay.tree import F64


@kernel(
    per="warp",
    work="n",
    block=32,
    sparse_reads=SPARSE_READS,
    **RING,
    **COUNTERS,
    **DRAWN,
    raw="out f64",
    **SIZES,
)
def draw_rows(*, raw: F64, **rows: Any) -> None:
    """The ring's columns [N, Sp] and [N] to `state`, `next_state` [n, Sp] and the rest [n].

    Columns of a state from `width` on are zeros. `rows` are the arguments that `sample_batch` has
    too.
    """
    n = rows["n"]
    weights, ticket = np.empty(0, np.float32), np.zeros(1, np.uint32)
    sample_batch(**rows, weights=weights, ticket=ticket, weigh=0, each=1, warps=n)
    raw[:n] = raw_weights_of(rows)
