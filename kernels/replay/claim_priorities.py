"""The first part of `update_priorities`, for batches that one block would be slow for.

``leaf`` gets what each batch position would write, 0 where it is dropped (counted as there), and
``owner`` the position that writes each slot: the highest of those left. `write_priorities` is the
second part, and `refresh_drawn` the third.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.replay.update_priorities import new_leaves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, I64


@kernel(
    work="n",
    sparse_reads={"generation": "n", "owner": 0},
    sparse_writes={"owner": 0},
    td="in f32",
    index="in i32",
    sampled_generation="in u32",
    generation="in u32",
    leaf="out f32",
    owner="inout i32",
    diagnostics="inout i64",
    n="i32",
    leaf_count="i64",
    alpha="f64",
    eps="f64",
)
def claim_priorities(
    td: F32,
    index: NDArray[np.int32],
    sampled_generation: NDArray[np.uint32],
    generation: NDArray[np.uint32],
    leaf: F32,
    owner: NDArray[np.int32],
    diagnostics: I64,
    n: int,
    leaf_count: int,
    alpha: float,
    eps: float,
) -> None:
    """`td`, `index`, `sampled_generation` [n] to `leaf` [n] and `owner` [N], -1 before."""
    found, kept = new_leaves(
        td[:n], index[:n], sampled_generation[:n], generation, diagnostics, leaf_count, alpha, eps
    )
    leaf[:n] = np.where(kept, found, np.float32(0.0))
    position = np.flatnonzero(kept)
    owner[index[position]] = position  # of repeated indices NumPy keeps the last: the highest
