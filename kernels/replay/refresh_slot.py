"""Recompute `level` and the level above it, over the leaves that `insert_rows` has just written.

What `refresh_inserted` does for slots of many lanes, with a block for each group (`refresh_drawn`
says what that is) over the E leaves of slot ``counters[HEAD]``: run it for level 1, 3, 5, … up to
the root, before the head is advanced. A head outside [0, slots) recomputes nothing.
"""

from __future__ import annotations

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import FAN_OUT, Counter
from onegraph.kernels.replay.tree import F32, F64, I64, node_count, refresh_groups


def groups_over(lanes: int, level: int) -> int:
    """The most groups of `level` that `lanes` neighbouring leaves lie under."""
    width: int = FAN_OUT ** (level + 1)
    return (lanes - 2) // width + 2


@kernel(
    per="block",
    work="groups",
    leaves="in f32",
    nodes="inout f64",
    counters="in i64",
    lanes="i32",
    slots="i32",
    leaf_count="i64",
    level="i32",
    groups="i32",
)
def refresh_slot(
    leaves: F32,
    nodes: F64,
    counters: I64,
    lanes: int,
    slots: int,
    leaf_count: int,
    level: int,
    groups: int,
) -> None:
    """`leaves` [N] into the `nodes` above slot HEAD; `groups` is at least `groups_over`."""
    head = int(counters[Counter.HEAD])
    if 0 <= head < slots:
        width = FAN_OUT ** (level + 1)
        first, end = head * lanes, min((head + 1) * lanes, leaf_count)
        touched = np.arange(first // width, (end - 1) // width + 1)[:groups]
        refresh_groups(leaves[:leaf_count], nodes[: node_count(leaf_count)], level, touched)
