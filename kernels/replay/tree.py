"""The sum tree of the prioritized replay: its layout, its one order of summation, its descent.

A tree of fan-out 32 over float32 leaves [N] with float64 sums. The inner levels stand in one array
``nodes``, bottom-up: level 1 first (ceil(N / 32) nodes), each next level ceil(previous / 32), up to
the level of one node. That root is the last element, and holds the total.

A node is *defined* as the last element of the Hillis-Steele inclusive scan of its 32 children
(strides 1, 2, 4, 8, 16; a missing child counts 0). It is always recomputed from the children, never
adjusted by a difference, so that the root cannot drift; and it is the very number that the descent
compares a threshold with, on the host and on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onegraph.kernels.common.layout import FAN_OUT

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_CHILD = np.arange(FAN_OUT)


def tree_levels(leaf_count: int) -> tuple[tuple[int, int], ...]:
    """``(offset in nodes, size)`` of each inner level, level 1 first, the root last.

    Raises:
        ValueError: `leaf_count` is less than 1.
    """
    if leaf_count < 1:
        message = f"a sum tree needs at least one leaf, got {leaf_count}"
        raise ValueError(message)
    levels = []
    offset, size = 0, leaf_count
    while True:
        size = -(-size // FAN_OUT)
        levels.append((offset, size))
        offset += size
        if size == 1:
            return tuple(levels)


def node_count(leaf_count: int) -> int:
    """Elements of ``nodes`` for `leaf_count` leaves."""
    offset, size = tree_levels(leaf_count)[-1]
    return offset + size


# What a batch of `n` different leaves touches of the arrays, for declarations of kernels: elements
# by the scalars of a launch. An array with fewer of them is touched whole.


def path_leaves(sizes: Mapping[str, int | float]) -> int:
    """Leaves that `n` descents look at, or whose nodes are recomputed after `n` writes."""
    return FAN_OUT * int(sizes["n"])


def path_nodes(sizes: Mapping[str, int | float]) -> int:
    """Nodes that `n` descents look at: of each level the children of a node, and the root."""
    most = path_leaves(sizes)
    return sum(min(size, most) for _, size in tree_levels(int(sizes["leaf_count"])))


def changed_nodes(sizes: Mapping[str, int | float]) -> int:
    """Nodes above `n` leaves that were written."""
    n = int(sizes["n"])
    return sum(min(size, n) for _, size in tree_levels(int(sizes["leaf_count"])))


def scan32(children: ArrayLike) -> F64:
    """Hillis-Steele inclusive scan over the last axis, [..., 32] to float64 [..., 32]."""
    scan = np.array(children, np.float64)
    for stride in (1, 2, 4, 8, 16):
        # NumPy reads overlapping operands as they were before the addition.
        scan[..., stride:] += scan[..., :-stride]
    return scan


def sum32(children: ArrayLike) -> F64:
    """The last element of `scan32`, by the 31 additions of it that matter.

    That element is a balanced pairwise sum: stride d joins two neighbouring groups of d children.
    """
    pairs = np.asarray(children, np.float64)
    while pairs.shape[-1] > 1:
        pairs = pairs[..., 1::2] + pairs[..., 0::2]
    total: F64 = pairs[..., 0]
    return total


def _children(values: NDArray[Any], size: int, parents: I64) -> F64:
    """The children of `parents` among the first `size` of `values`: [len(parents), 32]."""
    child = parents[:, None] * FAN_OUT + _CHILD
    taken = values[np.minimum(child, size - 1)].astype(np.float64)
    return np.where(child < size, taken, 0.0)


def refresh(leaves: F32, nodes: F64, touched: ArrayLike) -> None:
    """Recompute the ancestors of the leaves `touched`, level by level, in place.

    Args:
        leaves: float32 [N].
        nodes: float64 [node_count(N)].
        touched: indices of leaves in [0, N), in any order, repeated or not.
    """
    parents = np.asarray(touched, np.int64)
    if parents.size == 0:
        return
    below: NDArray[Any] = leaves
    for offset, size in tree_levels(leaves.size):
        parents = np.unique(parents // FAN_OUT)
        level = nodes[offset : offset + size]
        level[parents] = sum32(_children(below, below.size, parents))
        below = level


def refresh_level(leaves: F32, nodes: F64, touched: ArrayLike) -> None:
    """Recompute the nodes `touched` of level 1, in any order, repeated or not, in place."""
    node = np.unique(np.asarray(touched, np.int64))
    nodes[node] = sum32(_children(leaves, leaves.size, node))


def group_count(leaf_count: int, level: int) -> int:
    """Groups of `level`'s nodes: 32 neighbours each, the children of one node of the next level."""
    return -(-tree_levels(leaf_count)[level - 1][1] // FAN_OUT)


def refresh_groups(leaves: F32, nodes: F64, level: int, groups: ArrayLike) -> None:
    """Recompute the nodes of these groups of `level`, and the nodes above them, in place.

    Args:
        leaves: float32 [N].
        nodes: float64 [node_count(N)].
        level: 1 is the one above the leaves.
        groups: their numbers, in any order, repeated or not.
    """
    levels = tree_levels(leaves.size)
    group = np.unique(np.asarray(groups, np.int64))
    offset, size = levels[level - 1]
    below: NDArray[Any] = leaves
    if level > 1:
        first, children = levels[level - 2]
        below = nodes[first : first + children]
    node = (group[:, None] * FAN_OUT + _CHILD).reshape(-1)
    node = node[node < size]
    here = nodes[offset : offset + size]
    here[node] = sum32(_children(below, below.size, node))
    if size > 1:
        offset, size = levels[level]
        nodes[offset : offset + size][group] = sum32(_children(here, here.size, group))


def rebuild(leaves: F32, nodes: F64) -> None:
    """Recompute every node from the leaves, in place."""
    below: NDArray[Any] = leaves
    for offset, size in tree_levels(leaves.size):
        level = nodes[offset : offset + size]
        whole = np.zeros(size * FAN_OUT)
        whole[: below.size] = below
        level[:] = sum32(whole.reshape(size, FAN_OUT))
        below = level


def descend(leaves: F32, nodes: F64, thresholds: ArrayLike) -> I64:
    """The leaf that each threshold falls on.

    At a node, with the inclusive scan p of its children: the first child c with
    ``threshold < p[c]`` and a positive value; else (rounding) the last child with a positive value;
    else child 0. Then the threshold goes down by ``p[c - 1]``. So a leaf of zero is never drawn
    while the total is positive, and an index is always in range. A NaN threshold counts as 0.

    Args:
        leaves: float32 [N], finite and not negative.
        nodes: float64 [node_count(N)], in step with the leaves.
        thresholds: [n].

    Returns:
        int64 [n], each in [0, N).
    """
    t = np.array(thresholds, np.float64)
    t[np.isnan(t)] = 0.0
    levels = tree_levels(leaves.size)
    at = np.zeros(t.size, np.int64)
    rows = np.arange(t.size)
    for depth in range(len(levels) - 1, -1, -1):
        below: NDArray[Any] = leaves
        if depth:
            offset, size = levels[depth - 1]
            below = nodes[offset : offset + size]
        values = _children(below, below.size, at)
        scan = scan32(values)
        positive = values > 0.0
        fits = positive & (t[:, None] < scan)
        first = fits.argmax(axis=1)
        last = np.where(positive.any(axis=1), FAN_OUT - 1 - positive[:, ::-1].argmax(axis=1), 0)
        child = np.where(fits.any(axis=1), first, last)
        t -= np.where(child > 0, scan[rows, child - 1], 0.0)
        at = at * FAN_OUT + child
    return at
