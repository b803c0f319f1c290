"""A whole batch under the goals of hindsight, its weights, and the step's counters in one launch.

`draw_batch` with `sample_relabelled` in the place of `sample_batch`, and with the same bits as that
and `advance_counters`. On the device a warp has a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.fused.draw_ending import finish_draw
from onegraph.kernels.replay.draw_params import ADVANCED_COUNTERS, DRAWN, RELABELLING, RING, SIZES
from onegraph.kernels.replay.sample_relabelled import sample_relabelled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64


@kernel(
    per="block",
    work="blocks",
    block=128,
    resident=True,
    **RING,
    ring_episode="in i64",
    **ADVANCED_COUNTERS,
    **DRAWN,
    weights="out f32",
    raw="out f64",
    largest="inout f64",
    barrier="inout u32",
    **SIZES,
    **RELABELLING,
    blocks="i32",
)
def draw_relabelled(
    *,
    params: F64,
    skip: NDArray[np.int32],
    weights: F32,
    raw: F64,
    largest: F64,
    barrier: NDArray[np.uint32],
    blocks: int,
    **rows: Any,
) -> None:
    """The ring's columns [N, Sp] and [N] to `state`, `next_state` [n, Sp] and the rest [n].

    Columns of a state from `width` on are zeros. `blocks` (`draw_batch.blocks_of`) shapes the
    launch alone. `rows` are the arguments that `sample_relabelled` has too.
    """
    del blocks
    sample_relabelled(**rows, weights=weights, ticket=np.zeros(1, np.uint32), weigh=1)
    finish_draw(rows, params, skip, raw, largest, barrier)
