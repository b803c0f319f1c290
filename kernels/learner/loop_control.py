"""Whether a loop of rounds takes another turn, and how far it has come.

The loop is a while-node (`onegraph.stages.s8_epoch_graph`): this runs before its first turn and at
the end of each. The state is in the counters alone, so that it is no matter which of the turns ran
outside the graph: the loop goes on while the learning steps so far (``counters[RNG]``) are fewer
than ``order[UNTIL]``, nobody asked it to stop, and no run of skipped steps has reached the limit.

``order`` (int64 [4], `layout.LoopOrder`) and ``report`` (int64 [3], `layout.LoopReport`) lie in
pinned host memory that the device maps. The host writes ``order[STOP]`` while the loop runs and
reads how far it is, waiting for nothing; the report's elements are of one turn only once the loop
has ended.

The skipped steps in a row are those of `publish`: with ``skip[0]`` the step that has just ended was
skipped too. Those up to step ``order[BEGUN]`` do not count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter, LoopEnding, LoopOrder, LoopReport


@kernel(
    per="one",
    block=32,
    counters="in i64",
    skip="in i32",
    order="in i64",
    report="inout i64",
    go="out i32",
    condition="u64",
)
def loop_control(
    counters: NDArray[np.int64],
    skip: NDArray[np.int32],
    order: NDArray[np.int64],
    report: NDArray[np.int64],
    go: NDArray[np.int32],
    *,
    condition: int,
) -> None:
    """Set `go` [1] to 1 where another turn is to be taken, else to 0, and write `report` [3].

    ``condition`` is the handle of a graph's condition, which gets the value of `go` too; 0: none.
    """
    del condition
    learns = int(counters[Counter.RNG])
    ending = _ending(counters, order, learns, skipped=bool(skip[0]))
    report[LoopReport.LEARNS] = learns
    report[LoopReport.COLLECTS] = counters[Counter.COLLECT]
    report[LoopReport.ENDING] = ending
    go[0] = ending == LoopEnding.RUNNING


def _ending(
    counters: NDArray[Any], order: NDArray[Any], learns: int, *, skipped: bool
) -> LoopEnding:
    run = int(counters[Counter.SKIPPED_IN_A_ROW]) + 1 if skipped else 0
    limit = int(order[LoopOrder.LIMIT])
    if limit > 0 and min(run, learns - int(order[LoopOrder.BEGUN])) >= limit:
        return LoopEnding.NONFINITE
    if learns >= order[LoopOrder.UNTIL]:
        return LoopEnding.REACHED
    return LoopEnding.STOPPED if order[LoopOrder.STOP] else LoopEnding.RUNNING
