"""Publish a step's numbers where the host can read them without waiting, and keep their history.

``record`` (float64 [17], `RecordField`) lies in pinned host memory that the device maps. The kernel
writes the step's stamp into the first element, fences, writes the values, fences, and writes the
stamp into the last. `read_record` reads in the opposite order: last stamp, values, first stamp.

Why a torn read can't pass: let the last stamp read s. The values of step s were all visible before
that stamp, so each value read is of s or of a later step. Were one of a later step s' > s, then the
first stamp had become at least s' before that value was written, and the first stamp, read after
it, is not s. Stamps only grow, so equal stamps mean values of one step. This is a seqlock's reader
(Boehm 2012, "Can seqlocks get along with programming language memory models?"); it needs the host's
loads to stay in program order, which x86-64 guarantees and Python's interpreter does not reorder.

A step's stamp is its number + 1 (``counters[RNG]`` after `advance_counters`), so that 0 means that
nothing was published; zero the record before the first step.

The schedule values are those in force after this step's `advance_counters`: the learning rate and
tau that the step used, the **next** sampling's beta. The priority update comes after this kernel:
its diagnostics are those up to the step before. ``SKIPPED`` includes this step, and
``SKIPPED_IN_A_ROW`` is the length of the run of skipped steps that ends with it: 0 where it was not
skipped. The history ring (device memory, [ring, 17]) gets the same 17 numbers in row
(stamp - 1) mod `ring`; none with `ring` 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.common.layout import Counter, Diagnostic, Schedule
from onegraph.kernels.learner.batch_stats import Stat


class RecordField(IntEnum):
    """Elements of the record and of a history row (float64)."""

    STAMP_BEGIN = 0
    LOSS = 1
    GRAD_NORM = 2
    TD_MEAN = 3
    Q_MEAN = 4
    TD_MAX = 5
    LEARNING_RATE = 6
    TAU = 7
    BETA = 8
    EPSILON = 9
    ADAM_STEP = 10
    SKIPPED = 11
    NONFINITE_TD = 12
    STALE_UPDATE = 13
    INVALID_ROW = 14
    SKIPPED_IN_A_ROW = 15
    STAMP_END = 16


RECORD = 17


@dataclass(frozen=True)
class PublishedRecord:
    """One step's numbers, read whole.

    Attributes:
        step: the step's stamp: how many learning steps had begun, this one included.
        values: float64 [17], indexed by `RecordField`.
    """

    step: int
    values: NDArray[np.float64]

    def __getitem__(self, field: RecordField) -> float:
        return float(self.values[field])


def read_record(host_view: NDArray[np.float64], *, after: int = 0) -> PublishedRecord | None:
    """Read the record through its live host view (float64 [17]), without waiting.

    Args:
        host_view: the pinned array's NumPy view.
        after: the last stamp that the caller has seen; a record no newer than it is stale.

    Returns:
        The record; ``None`` when it was being written, is stale, or was never written. Ask again
        later.
    """
    end = float(host_view[RecordField.STAMP_END])
    values = host_view.copy()
    begin = float(host_view[RecordField.STAMP_BEGIN])
    if begin != end or not end > after:
        return None
    values[RecordField.STAMP_BEGIN] = values[RecordField.STAMP_END] = end
    return PublishedRecord(int(end), values)


@kernel(
    per="one",
    block=32,
    sparse_reads={"history": 0},
    sparse_writes={"history": RECORD},
    stats="in f64",
    clip="in f32",
    counters="in i64",
    schedule="in f64",
    diagnostics="in i64",
    skip="in i32",
    record="inout f64",
    history="inout f64",
    ring="i32",
)
def publish(
    stats: NDArray[np.float64],
    clip: NDArray[np.float32],
    counters: NDArray[np.int64],
    schedule: NDArray[np.float64],
    diagnostics: NDArray[np.int64],
    skip: NDArray[np.int32],
    record: NDArray[np.float64],
    history: NDArray[np.float64],
    *,
    ring: int,
) -> None:
    """Write the step's numbers to `record` [17] and to its row of `history` [ring, 17]."""
    step = int(counters[Counter.RNG])
    values = np.array(
        [
            step,
            stats[Stat.LOSS],
            clip[0],
            stats[Stat.TD_MEAN],
            stats[Stat.Q_MEAN],
            stats[Stat.TD_MAX],
            schedule[Schedule.LEARNING_RATE],
            schedule[Schedule.TAU],
            schedule[Schedule.BETA],
            schedule[Schedule.EPSILON],
            counters[Counter.ADAM_TRUNK],
            counters[Counter.SKIPPED] + (1 if skip[0] else 0),
            diagnostics[Diagnostic.NONFINITE_TD],
            diagnostics[Diagnostic.STALE_UPDATE],
            diagnostics[Diagnostic.INVALID_ROW],
            counters[Counter.SKIPPED_IN_A_ROW] + 1 if skip[0] else 0,
            step,
        ],
        np.float64,
    )
    if ring > 0 and step > 0:
        row = (step - 1) % ring * RECORD
        history[row : row + RECORD] = values
    record[RecordField.STAMP_BEGIN] = step
    record[RecordField.LOSS : RecordField.STAMP_END] = values[1:-1]
    record[RecordField.STAMP_END] = step
