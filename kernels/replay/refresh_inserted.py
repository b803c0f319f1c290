"""Recompute the ancestors of the leaves that `insert_rows` has just written.

They are the E leaves of slot ``counters[HEAD]``: run it before the head is advanced. A head outside
[0, slots) recomputes nothing.
"""

from __future__ import annotations

import numpy as np

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter
from onegraph.kernels.replay.tree import F32, F64, I64, node_count, refresh

#: Lanes whose ancestors one block recomputes as fast as many blocks would in several launches.
AT_ONCE = 4096


@kernel(
    per="one",
    block=512,
    leaves="in f32",
    nodes="inout f64",
    counters="in i64",
    lanes="i32",
    slots="i32",
    leaf_count="i64",
)
def refresh_inserted(
    leaves: F32, nodes: F64, counters: I64, lanes: int, slots: int, leaf_count: int
) -> None:
    """`leaves` [N] into the `nodes` above slot HEAD."""
    head = int(counters[Counter.HEAD])
    if 0 <= head < slots:
        touched = np.arange(head * lanes, min((head + 1) * lanes, leaf_count))
        refresh(leaves[:leaf_count], nodes[: node_count(leaf_count)], touched)
