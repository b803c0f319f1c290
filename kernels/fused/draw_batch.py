"""A whole batch, its weights, and the step's counters in one launch, for a batch of any size.

What `sample_batch` does with ``weigh`` set, and after it `advance_counters` for a learning step,
with the same bits. On the device all blocks run at once, and wait for one another once, when every
row is drawn and its weight known but for its scale: the largest of the batch is then known too.

``raw`` [n] is scratch: the weights before they are scaled. The largest of them is gathered in one
of the two places of ``largest``: that which the top bit of ``barrier`` names, which flips in each
launch. It must be 0 before, and the other is 0 after, so that both begin at 0 with the barrier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.fused.draw_ending import finish_draw
from onegraph.kernels.replay.sample_batch import sample_batch, warps_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64

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
    leaves="in f32",
    nodes="in f64",
    generation="in u32",
    ring_state="in f32",
    ring_next_state="in f32",
    ring_action="in i32",
    ring_reward="in f32",
    ring_flags="in u8",
    counters="inout i64",
    schedule="inout f64",
    params="in f64",
    skip="in i32",
    index="out i32",
    sampled_generation="out u32",
    state="out f32",
    next_state="out f32",
    action="out i32",
    ret="out f32",
    discount="out f32",
    weights="out f32",
    raw="out f64",
    largest="inout f64",
    barrier="inout u32",
    n="i32",
    leaf_count="i64",
    width="i32",
    padded="i32",
    lanes="i32",
    slots="i32",
    n_step="i32",
    gamma="f64",
    seed="u64",
    strata="i32",
    each="i32",
    blocks="i32",
)
def draw_batch(
    leaves: F32,
    nodes: F64,
    generation: NDArray[np.uint32],
    ring_state: F32,
    ring_next_state: F32,
    ring_action: NDArray[np.int32],
    ring_reward: F32,
    ring_flags: NDArray[np.uint8],
    counters: I64,
    schedule: F64,
    params: F64,
    skip: NDArray[np.int32],
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    state: F32,
    next_state: F32,
    action: NDArray[np.int32],
    ret: F32,
    discount: F32,
    weights: F32,
    raw: F64,
    largest: F64,
    barrier: NDArray[np.uint32],
    n: int,
    leaf_count: int,
    width: int,
    padded: int,
    lanes: int,
    slots: int,
    n_step: int,
    gamma: float,
    seed: int,
    strata: int,
    each: int,
    blocks: int,
) -> None:
    """The ring's columns [N, Sp] and [N] to `state`, `next_state` [n, Sp] and the rest [n].

    Columns of a state from `width` on are zeros. `each` is as `sample_batch` has it, and `blocks`
    (`blocks_of`) shapes the launch alone.

    Raises:
        ValueError: an `each` that `sample_batch` does not know.
    """
    del blocks
    sample_batch(
        leaves,
        nodes,
        generation,
        ring_state,
        ring_next_state,
        ring_action,
        ring_reward,
        ring_flags,
        counters,
        schedule,
        index,
        sampled_generation,
        state,
        next_state,
        action,
        ret,
        discount,
        weights,
        np.zeros(1, np.uint32),
        n,
        leaf_count,
        width,
        padded,
        lanes,
        slots,
        n_step,
        gamma,
        seed,
        strata,
        1,
        each,
        n,
    )
    finish_draw(
        leaves,
        nodes,
        counters,
        schedule,
        params,
        skip,
        index[:n],
        raw,
        largest,
        barrier,
        leaf_count,
    )
