"""maintain: the target, the statistics and the record, from values worked out by hand."""

import numpy as np
import pytest
from pair_runs import run_host

from onegraph.kernels.common.layout import COUNTERS, DIAGNOSTICS, SCHEDULES, Counter, Schedule
from onegraph.kernels.learner.maintain import blocks_for
from onegraph.kernels.learner.publish import RECORD, RecordField


def maintained(*, skip=0, every=0):
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG], counters[Counter.ADAM_TRUNK] = 2, 6
    schedule = np.zeros(SCHEDULES)
    schedule[Schedule.TAU] = 0.25
    return run_host(
        "maintain",
        target=[0, 8],
        param=[4, 4],
        loss=[1, 3],
        td=[-4, 2],
        q_taken=[5, 6],
        clip=[7, 1],
        counters=counters,
        schedule=schedule,
        diagnostics=np.zeros(DIAGNOSTICS, np.int64),
        skip=[skip],
        record=np.zeros(RECORD),
        history=np.zeros((3, RECORD)),
        size=2,
        every=every,
        n=2,
        ring=3,
        blocks=blocks_for(2),
    )


@pytest.mark.parametrize(
    ("skip", "every", "target"),
    [(0, 0, [1, 7]), (1, 0, [0, 8]), (0, 3, [4, 4]), (0, 4, [0, 8]), (1, 3, [0, 8])],
)
def test_the_target_moves_unless_the_step_is_skipped(skip, every, target):
    assert maintained(skip=skip, every=every)["target"].tolist() == target


def test_the_batchs_statistics_are_published():
    out = maintained(skip=1)
    record = out["record"]
    fields = ("STAMP_BEGIN", "LOSS", "TD_MEAN", "TD_MAX", "Q_MEAN", "GRAD_NORM", "SKIPPED")
    assert [record[RecordField[name]] for name in fields] == [2, 2, 3, 4, 5.5, 7, 1]
    assert out["history"].reshape(3, RECORD)[1].tolist() == record.tolist()


@pytest.mark.parametrize(("size", "blocks"), [(0, 1), (1, 2), (256, 2), (257, 3)])
def test_one_block_for_the_statistics_and_the_rest_for_the_target(size, blocks):
    assert blocks_for(size) == blocks
