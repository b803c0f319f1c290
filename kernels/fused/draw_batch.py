"""A whole batch, its weights, and the step's counters in one launch, for a batch of any size.

What `sample_batch` does with ``weigh`` set, and after it `advance_counters` for a learning step,
with the same bits. On the device all blocks run at once, and wait for one another once, when every
row is drawn and its weight known but for its scale: the largest of the batch is then known too.

``raw`` [n] is scratch: the weights before they are scaled. The largest of them is gathered in one
of the two places of ``largest``: that which the top bit of ``barrier`` names, which flips in each
launch. It must be 0 before, and the other is 0 after, so that both begin at 0 with the barrier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.fused.draw_ending import finish_draw
from onegraph.kernels.replay.draw_params import ADVANCED_COUNTERS, DRAWN, RING, SIZES
from onegraph.kernels.replay.sample_batch import sample_batch, warps_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64

#: Warps of a block.
WARPS = 4


def blocks_of(n: int, each: int) -> int:
    """Blocks to ask for, of a batch of `n` rows, `each` a warp: one more, for the counters."""
    return -(-warps_of(n, each) // WARPS) + 1


@kernel(
    per="block",
    work="blocks",
    block=32 * WARPS,
    resident=True,
    **RING,
    **ADVANCED_COUNTERS,
    **DRAWN,
    weights="out f32",
    raw="out f64",
    largest="inout f64",
    barrier="inout u32",
    **SIZES,
    each="i32",
    blocks="i32",
)
def draw_batch(
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

    Columns of a state from `width` on are zeros. `each` is as `sample_batch` has it, and `blocks`
    (`blocks_of`) shapes the launch alone. `rows` are the arguments that `sample_batch` has too.

    Raises:
        ValueError: an `each` that `sample_batch` does not know.
    """
    del blocks
    ticket = np.zeros(1, np.uint32)
    sample_batch(**rows, weights=weights, ticket=ticket, weigh=1, warps=rows["n"])
    finish_draw(rows, params, skip, raw, largest, barrier)
