"""The target network follows the online one: softly each step, or by a copy every so many steps.

`every` = 0: ``target += tau (param - target)`` (Lillicrap et al. 2016), tau from ``schedule``,
rounded to float32; a tau of 1 copies, exactly. `every` > 0: a copy whenever the trunk's Adam
counter, which counts the parameter updates so far with this one, is a multiple of it (Mnih et al.
2015); tau is ignored. ``skip[0]`` other than 0 leaves the target as it is: the update that was
skipped does not count, and the copy it would have brought comes with the update that takes its
number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import Elements, kernel
from onegraph.kernels.common.layout import Counter, Schedule


def followed(size: str) -> Elements:
    """Elements that a step's update touches: all `size`, or none between two copies."""

    def elements(sizes: Mapping[str, int | float]) -> int:
        return 0 if sizes["every"] > 0 else int(sizes[size])

    return elements


@kernel(
    work="n",
    sparse_reads={"target": followed("n"), "param": followed("n")},
    sparse_writes={"target": followed("n")},
    target="inout f32",
    param="in f32",
    schedule="in f64",
    counters="in i64",
    skip="in i32",
    n="i64",
    every="i64",
)
def target_update(
    target: NDArray[np.float32],
    param: NDArray[np.float32],
    schedule: NDArray[np.float64],
    counters: NDArray[np.int64],
    skip: NDArray[np.int32],
    *,
    n: int,
    every: int,
) -> None:
    """Move `target` [n] towards `param` [n]."""
    if skip[0] or (every > 0 and counters[Counter.ADAM_TRUNK] % every):
        return
    with np.errstate(all="ignore"):
        tau = np.float32(schedule[Schedule.TAU])
        if every > 0 or tau == 1.0:
            target[:n] = param[:n]
        else:
            target[:n] += tau * (param[:n] - target[:n])
