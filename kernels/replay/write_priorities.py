"""Write the leaves of the batch positions that own their slots, after `claim_priorities`.

`max_leaf`, which is not negative, rises to the largest leaf written; ``owner`` is left at -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32


@kernel(
    work="n",
    sparse_reads={"owner": 0, "leaves": 0},
    sparse_writes={"owner": 0, "leaves": "n"},
    leaf="in f32",
    index="in i32",
    owner="inout i32",
    leaves="inout f32",
    max_leaf="inout f32",
    n="i32",
    leaf_count="i64",
)
def write_priorities(
    leaf: F32,
    index: NDArray[np.int32],
    owner: NDArray[np.int32],
    leaves: F32,
    max_leaf: F32,
    n: int,
    leaf_count: int,
) -> None:
    """`leaf` and `index` [n] into `leaves` [N] and `max_leaf` [1]."""
    inside = (index[:n] >= 0) & (index[:n] < leaf_count)
    slot = np.where(inside, index[:n], 0)
    wins = inside & (owner[slot] == np.arange(n))
    written = leaf[:n][wins]
    leaves[slot[wins]] = written
    owner[slot[wins]] = -1
    max_leaf[0] = written.max(initial=max_leaf[0])
