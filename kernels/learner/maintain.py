"""What follows an update of the parameters, in one launch.

`target_update` of `size` parameters, `batch_stats` of the batch's `n` rows and `publish` of them,
with the same bits: none reads what another writes, but for the statistics, which stay within one
block.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.batch_stats import Stat, batch_stats
from onegraph.kernels.learner.publish import RECORD, publish
from onegraph.kernels.learner.reduce import LANES
from onegraph.kernels.learner.target_update import followed, target_update


def blocks_for(size: int) -> int:
    """One block for the statistics, and one for each `LANES` parameters."""
    return 1 + -(-size // LANES)


@kernel(
    per="block",
    work="blocks",
    block=LANES,
    sparse_reads={
        "target": followed("size"),
        "param": followed("size"),
        "history": 0,
    },
    sparse_writes={"target": followed("size"), "history": RECORD},
    target="inout f32",
    param="in f32",
    loss="in f32",
    td="in f32",
    q_taken="in f32",
    clip="in f32",
    counters="in i64",
    schedule="in f64",
    diagnostics="in i64",
    skip="in i32",
    record="inout f64",
    history="inout f64",
    size="i64",
    every="i64",
    n="i32",
    ring="i32",
    blocks="i32",
)
def maintain(
    target: NDArray[np.float32],
    param: NDArray[np.float32],
    loss: NDArray[np.float32],
    td: NDArray[np.float32],
    q_taken: NDArray[np.float32],
    clip: NDArray[np.float32],
    counters: NDArray[np.int64],
    schedule: NDArray[np.float64],
    diagnostics: NDArray[np.int64],
    skip: NDArray[np.int32],
    record: NDArray[np.float64],
    history: NDArray[np.float64],
    *,
    size: int,
    every: int,
    n: int,
    ring: int,
    blocks: int,
) -> None:
    """Move `target` [size], and write the step's numbers to `record` and `history`.

    ``blocks`` (`blocks_for`) shapes the launch alone.
    """
    del blocks
    target_update(target, param, schedule, counters, skip, n=size, every=every)
    stats = np.empty(len(Stat))
    batch_stats(loss, td, q_taken, stats, n=n)
    publish(stats, clip, counters, schedule, diagnostics, skip, record, history, ring=ring)
