"""A whole batch in one launch: the draw, n-step assembly, the gathers and the weights.

What `philox_thresholds`, `tree_descend`, `nstep_assemble`, `gather_rows` (of the states and of the
next states), `gather_i32` and, where `weigh` is not 0, `importance_weights` do one after the other,
with the same bits. On the device a warp takes a row from its threshold to its place in the batch,
or `TOGETHER` rows at once, and the last block to finish weighs the rows; that is for batches that
one block is fast enough for.

A batch of many more rows than a GPU has room for warps is bound by their instructions: there it is
that several rows share those of a warp (``each`` = `TOGETHER`). A smaller one waits for its loads,
which a warp to each row asks for sooner.

``ticket`` counts the blocks that are done: 0 before and after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.replay.draw_params import COUNTERS, DRAWN, RING, SIZES, SPARSE_READS
from onegraph.kernels.replay.gather_i32 import gather_i32
from onegraph.kernels.replay.gather_rows import gather_rows
from onegraph.kernels.replay.importance_weights import importance_weights
from onegraph.kernels.replay.nstep_assemble import nstep_assemble
from onegraph.kernels.replay.philox_thresholds import philox_thresholds
from onegraph.kernels.replay.tree import node_count
from onegraph.kernels.replay.tree_descend import tree_descend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64, I64

#: Rows of a warp at a time, where they share one (grouped.cuh).
TOGETHER = 8

#: The largest batch whose rows do not.
ALONE = 4096

#: Steps of a return up to which they do: a row's few lanes fetch that many in two turns.
STEPS = 8


def rows_each(n: int, n_step: int) -> int:
    """How many rows of a batch of `n` a warp takes at once."""
    return TOGETHER if n > ALONE and n_step <= STEPS else 1


def warps_of(n: int, each: int) -> int:
    """Warps that give every row of a batch of `n` its place."""
    return -(-n // each)


@kernel(
    per="warp",
    work="warps",
    sparse_reads=SPARSE_READS,
    **RING,
    **COUNTERS,
    **DRAWN,
    weights="out f32",
    ticket="inout u32",
    **SIZES,
    weigh="i32",
    each="i32",
    warps="i32",
)
def sample_batch(
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
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    state: F32,
    next_state: F32,
    action: NDArray[np.int32],
    ret: F32,
    discount: F32,
    weights: F32,
    ticket: NDArray[np.uint32],
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
    weigh: int,
    each: int,
    warps: int,
) -> None:
    """The ring's columns [N, Sp] and [N] to `state`, `next_state` [n, Sp] and the rest [n].

    Columns of a state from `width` on are zeros. `each` is 1 or `TOGETHER`; `warps` (`warps_of`)
    shapes the launch alone.

    Raises:
        ValueError: another `each`.
    """
    del warps
    if each not in (1, TOGETHER):
        message = f"a warp takes 1 row at a time or {TOGETHER}, not {each}"
        raise ValueError(message)
    thresholds = np.empty(n)
    last = np.empty(n, np.int32)
    root = nodes[node_count(leaf_count) - 1 :]
    philox_thresholds(root, counters, thresholds, n, seed, strata)
    tree_descend(leaves, nodes, thresholds, generation, index, sampled_generation, n, leaf_count)
    nstep_assemble(
        index,
        ring_reward,
        ring_flags,
        counters,
        last,
        ret,
        discount,
        n,
        lanes,
        slots,
        n_step,
        gamma,
    )
    for source, rows, target in (
        (ring_state, index, state),
        (ring_next_state, last, next_state),
    ):
        gather_rows(source, rows, target, n, width, padded, padded, leaf_count)
    gather_i32(ring_action, index, action, n, leaf_count)
    if weigh:
        importance_weights(leaves, root, index, counters, schedule, weights, n, leaf_count)
    ticket[0] = 0
