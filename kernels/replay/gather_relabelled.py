"""Gather goal-conditioned rows into a padded buffer, under the goals that hindsight gives them.

As `gather_rows`: ``dst[j, :width] = src[index[j], :width]``. Where ``donor[j]`` is a row of the
ring, the `goal_width` columns from `goal` on are instead what was achieved after that row: the
columns from `achieved` on of ``next_state[donor[j]]``. A donor outside [0, rows), such as -1,
changes none.

`src` and `next_state` are [rows, src_stride], `dst` [n, dst_stride]. Columns from `width` on are
zero, and so is a whole row whose index lies outside [0, rows). Values are copied as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.replay.gather_rows import gather_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onegraph.kernels.replay.tree import F32


@kernel(
    work="n*dst_stride",
    sparse_reads={"src": "n*width", "next_state": "n*goal_width"},
    src="in f32",
    next_state="in f32",
    index="in i32",
    donor="in i32",
    dst="out f32",
    n="i32",
    width="i32",
    src_stride="i32",
    dst_stride="i32",
    achieved="i32",
    goal="i32",
    goal_width="i32",
    rows="i64",
)
def gather_relabelled(
    src: F32,
    next_state: F32,
    index: NDArray[np.int32],
    donor: NDArray[np.int32],
    dst: F32,
    n: int,
    width: int,
    src_stride: int,
    dst_stride: int,
    achieved: int,
    goal: int,
    goal_width: int,
    rows: int,
) -> None:
    """`src` [rows, src_stride], `index` and `donor` [n] to `dst` [n, dst_stride]."""
    gather_rows(src, index, dst, n, width, src_stride, dst_stride, rows)
    out = dst[: n * dst_stride].reshape(n, dst_stride)
    taken, given = index[:n], donor[:n]
    there = (taken >= 0) & (taken < rows) & (given >= 0) & (given < rows)
    columns = max(min(goal_width, min(width, dst_stride, src_stride) - goal), 0)
    after = next_state[: rows * src_stride].reshape(rows, src_stride)
    out[there, goal : goal + columns] = after[given[there], achieved : achieved + columns]
