"""Recompute `level` and the level above it, over the leaves that a batch touched; a block a group.

A group is 32 neighbouring nodes of `level` and the node above them. With fewer positions than the
level has groups, a block takes the group over one batch position's leaf (an index outside
[0, leaf_count) has none); else each block takes one of all the groups. ``groups`` is the smaller of
the two numbers. The nodes must have been in step with the leaves before the batch was written. Run
it for level 1, 3, 5, … up to the root, or after `refresh_touched` for 2, 4, …: `levels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import FAN_OUT
from onegraph.kernels.replay.tree import (
    group_count,
    node_count,
    refresh_groups,
    tree_levels,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32, F64


def levels(leaf_count: int, first: int = 1) -> range:
    """The levels that launches start at, from level `first` on."""
    return range(first, len(tree_levels(leaf_count)) + 1, 2)


def _under(sizes: Mapping[str, int | float]) -> int:
    """Neighbours under one parent, for each group: what a node is recomputed from."""
    return FAN_OUT * int(sizes["groups"])


def _leaves_below(sizes: Mapping[str, int | float]) -> int:
    return _under(sizes) if sizes["level"] == 1 else 0


def _nodes_read(sizes: Mapping[str, int | float]) -> int:
    level, sides = int(sizes["level"]), tree_levels(int(sizes["leaf_count"]))
    read = sides[level - 2 : level] if level > 1 else sides[:1]
    return sum(min(size, _under(sizes)) for _, size in read)


def _nodes_written(sizes: Mapping[str, int | float]) -> int:
    level, sides = int(sizes["level"]), tree_levels(int(sizes["leaf_count"]))
    return sum(min(size, int(sizes["groups"])) for _, size in sides[level - 1 : level + 1])


@kernel(
    per="block",
    work="groups",
    sparse_reads={"leaves": _leaves_below, "nodes": _nodes_read},
    sparse_writes={"nodes": _nodes_written},
    leaves="in f32",
    nodes="inout f64",
    index="in i32",
    leaf_count="i64",
    level="i32",
    groups="i32",
)
def refresh_drawn(
    leaves: F32,
    nodes: F64,
    index: NDArray[np.int32],
    leaf_count: int,
    level: int,
    groups: int,
) -> None:
    """`leaves` [N] into `nodes`; `index` has the batch's leaves, at least `groups` of them."""
    total = group_count(leaf_count, level)
    if groups >= total:
        touched = np.arange(total)
    else:
        drawn = index[:groups].astype(np.int64)
        touched = drawn[(drawn >= 0) & (drawn < leaf_count)] // FAN_OUT ** (level + 1)
    refresh_groups(leaves[:leaf_count], nodes[: node_count(leaf_count)], level, touched)
