"""What ends the draw of the fused kernels, once the rows are drawn.

``rows`` are the arguments of the draw by name: those of `onegraph.kernels.replay.draw_params`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from onegraph.kernels.learner.advance_counters import LEARN, advance_counters
from onegraph.kernels.replay.importance_weights import unscaled
from onegraph.kernels.replay.tree import node_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F64


def raw_weights_of(rows: Mapping[str, Any]) -> F64:
    """The weights of the drawn rows [n] before they are scaled."""
    leaves, nodes, leaf_count = rows["leaves"], rows["nodes"], rows["leaf_count"]
    total, index = nodes[node_count(leaf_count) - 1 :], rows["index"][: rows["n"]]
    return unscaled(leaves, total, index, rows["counters"], rows["schedule"], leaf_count)


def finish_draw(
    rows: Mapping[str, Any],
    params: F64,
    skip: NDArray[np.int32],
    raw: F64,
    largest: F64,
    barrier: NDArray[np.uint32],
) -> None:
    """The weights of the rows before they are scaled, their largest, and the step's counters.

    For `draw_batch` and `draw_relabelled`, whose rows have been weighed.
    """
    n = rows["n"]
    raw[:n] = raw_weights_of(rows)
    turn = int(barrier[0]) >> 31
    largest[turn] = raw[:n].max(initial=largest[turn])
    largest[turn ^ 1] = 0.0
    barrier[0] ^= np.uint32(1 << 31)
    counters, schedule = rows["counters"], rows["schedule"]
    advance_counters(counters, schedule, params, skip, program=LEARN, lanes=0, slots=1)
