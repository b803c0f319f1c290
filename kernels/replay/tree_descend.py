"""The draw: each threshold's leaf, and the generation its slot had when it was drawn.

The rule of the descent is `tree.descend`'s: no leaf of zero while the total is positive, always an
index in range, NaN counts as 0. On the device a warp walks one draw, a child a lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.replay.tree import (
    F32,
    F64,
    descend,
    node_count,
    path_leaves,
    path_nodes,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@kernel(
    per="warp",
    work="n",
    sparse_reads={"leaves": path_leaves, "nodes": path_nodes, "generation": "n"},
    leaves="in f32",
    nodes="in f64",
    thresholds="in f64",
    generation="in u32",
    index="out i32",
    sampled_generation="out u32",
    n="i32",
    leaf_count="i64",
)
def tree_descend(
    leaves: F32,
    nodes: F64,
    thresholds: F64,
    generation: NDArray[np.uint32],
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    n: int,
    leaf_count: int,
) -> None:
    """`thresholds` [n] to `index` [n] and `sampled_generation` [n]."""
    drawn = descend(leaves[:leaf_count], nodes[: node_count(leaf_count)], thresholds[:n])
    index[:n] = drawn
    sampled_generation[:n] = generation[drawn]
