"""Write a batch's new priorities into the tree (Schaul et al. 2016, section 3.3).

``leaf = (|td| + eps)^alpha``, in float64, rounded to float32 once. Of the batch positions:

- an index outside [0, leaf_count) is ignored;
- one whose slot was overwritten since it was drawn (its generation differs) is dropped and counted
  STALE_UPDATE;
- one whose TD error, or whose leaf, is not a finite number >= 0 keeps the leaf it had and is
  counted NONFINITE_TD;
- among those left that share an index, the highest position wins. `owner` settles it: -1 outside
  the kernel, the winning position inside.

`max_leaf` rises to the largest leaf written. Then the ancestors are recomputed from the leaves,
level by level, which supposes that the nodes were in step with the leaves before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.detmath import pow64
from onegraph.kernels.common.layout import Diagnostic
from onegraph.kernels.replay.tree import (
    F32,
    F64,
    I64,
    changed_nodes,
    node_count,
    path_leaves,
    path_nodes,
    refresh,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Batch positions that one block takes as fast as many blocks would in several launches.
AT_ONCE = 256


def new_leaves(
    td: F32,
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    generation: NDArray[np.uint32],
    diagnostics: I64,
    leaf_count: int,
    alpha: float,
    eps: float,
) -> tuple[F32, NDArray[np.bool_]]:
    """What each position would write, and which positions may; the others are counted."""
    inside = (index >= 0) & (index < leaf_count)
    slot = np.where(inside, index, 0)
    fresh = inside & (generation[slot] == sampled_generation)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        leaf = pow64(np.abs(td.astype(np.float64)) + eps, alpha).astype(np.float32)
    finite = np.isfinite(td) & np.isfinite(leaf) & (leaf >= 0.0)
    diagnostics[Diagnostic.STALE_UPDATE] += np.count_nonzero(inside & ~fresh)
    diagnostics[Diagnostic.NONFINITE_TD] += np.count_nonzero(fresh & ~finite)
    return leaf, fresh & finite


@kernel(
    per="one",
    block=512,
    sparse_reads={"leaves": path_leaves, "nodes": path_nodes, "generation": "n", "owner": 0},
    sparse_writes={"leaves": "n", "nodes": changed_nodes, "owner": 0},
    td="in f32",
    index="in i32",
    sampled_generation="in u32",
    generation="in u32",
    leaves="inout f32",
    nodes="inout f64",
    owner="inout i32",
    max_leaf="inout f32",
    diagnostics="inout i64",
    n="i32",
    leaf_count="i64",
    alpha="f64",
    eps="f64",
)
def update_priorities(
    td: F32,
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    generation: NDArray[np.uint32],
    leaves: F32,
    nodes: F64,
    owner: NDArray[np.int32],
    max_leaf: F32,
    diagnostics: I64,
    n: int,
    leaf_count: int,
    alpha: float,
    eps: float,
) -> None:
    """`td`, `index`, `sampled_generation` [n] into `leaves` [N] and `nodes`."""
    leaf, kept = new_leaves(
        td[:n], index[:n], sampled_generation[:n], generation, diagnostics, leaf_count, alpha, eps
    )
    position = np.flatnonzero(kept)
    target = index[position]
    owner[target] = position  # of repeated indices NumPy keeps the last, which is the highest
    wins = owner[target] == position
    owner[target] = -1
    written = leaf[position[wins]]
    leaves[target[wins]] = written
    max_leaf[0] = written.max(initial=max_leaf[0])
    refresh(leaves[:leaf_count], nodes[: node_count(leaf_count)], target)
