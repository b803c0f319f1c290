"""Recompute the nodes right above the leaves that a batch touched: level 1, and no other.

For trees so large that a batch touches a part of level 1: `refresh_drawn` at that level reads the
neighbours of each touched node too, or with a large batch all of the leaves. It goes on from
level 2. An index outside [0, leaf_count) has no node; a node named twice is written twice, with
the same number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import FAN_OUT
from onegraph.kernels.replay.tree import refresh_level, tree_levels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64

#: Lanes that a node's leaves are divided among.
LANES = 8


def pays(leaf_count: int, n: int) -> bool:
    """Whether a batch of `n` is better off with a launch for level 1 alone.

    Where the levels are odd in number that is no launch more; where they are six, the leaves are
    many millions.
    """
    levels = tree_levels(leaf_count)
    return n < levels[0][1] and len(levels) not in (2, 4)


@kernel(
    work="lanes",
    leaves="in f32",
    nodes="inout f64",
    index="in i32",
    leaf_count="i64",
    n="i32",
    lanes="i32",
)
def refresh_touched(
    leaves: F32,
    nodes: F64,
    index: NDArray[np.int32],
    leaf_count: int,
    n: int,
    lanes: int,
) -> None:
    """`leaves` [N] into `nodes`; `index` [n] has the batch's leaves. `lanes` is n x `LANES`.

    Raises:
        ValueError: `lanes` is another number.
    """
    if lanes != n * LANES:
        message = f"{n} nodes have {n * LANES} lanes, not {lanes}"
        raise ValueError(message)
    drawn = index[:n].astype(np.int64)
    touched = drawn[(drawn >= 0) & (drawn < leaf_count)] // FAN_OUT
    refresh_level(leaves[:leaf_count], nodes, touched)
