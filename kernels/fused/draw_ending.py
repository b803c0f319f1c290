"""What ends the draw of `draw_batch` and `draw_relabelled`, once the rows are drawn and weighed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.learner.advance_counters import LEARN, advance_counters
from onegraph.kernels.replay.importance_weights import unscaled
from onegraph.kernels.replay.tree import node_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64


def finish_draw(
    leaves: F32,
    nodes: F64,
    counters: I64,
    schedule: F64,
    params: F64,
    skip: NDArray[np.int32],
    index: NDArray[np.int32],
    raw: F64,
    largest: F64,
    barrier: NDArray[np.uint32],
    leaf_count: int,
) -> None:
    """The weights of `index` [n] before they are scaled, their largest, and the step's counters."""
    total = nodes[node_count(leaf_count) - 1 :]
    raw[: index.size] = unscaled(leaves, total, index, counters, schedule, leaf_count)
    turn = int(barrier[0]) >> 31
    largest[turn] = raw[: index.size].max(initial=largest[turn])
    largest[turn ^ 1] = 0.0
    barrier[0] ^= np.uint32(1 << 31)
    advance_counters(counters, schedule, params, skip, program=LEARN, lanes=0, slots=1)
