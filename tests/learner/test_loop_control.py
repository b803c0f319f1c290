"""Whether a loop takes another turn: by hand, and what it tells the host."""

import numpy as np
import pytest
from pair_runs import run_host

from onegraph.kernels.common.layout import COUNTERS, Counter, LoopEnding, LoopReport

RUNNING, REACHED, STOPPED, NONFINITE = (
    LoopEnding.RUNNING,
    LoopEnding.REACHED,
    LoopEnding.STOPPED,
    LoopEnding.NONFINITE,
)


def controlled(learns, order, *, skipped_before=0, skip=0, collects=0):
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG], counters[Counter.COLLECT] = learns, collects
    counters[Counter.SKIPPED_IN_A_ROW] = skipped_before
    return run_host(
        "loop_control",
        counters=counters,
        skip=[skip],
        order=order,
        report=np.full(len(LoopReport), -1, np.int64),
        go=1,
        condition=0,
    )


@pytest.mark.parametrize(
    ("learns", "order", "skipped", "ending"),
    [
        # until, stop, limit, begun; skipped steps in a row before this one, and this one
        (0, (1, 0, 0, 0), (0, 0), RUNNING),
        (0, (0, 0, 0, 0), (0, 0), REACHED),
        (4, (5, 0, 0, 0), (0, 0), RUNNING),
        (5, (5, 0, 0, 0), (0, 0), REACHED),
        (6, (5, 0, 0, 0), (0, 0), REACHED),
        (4, (5, 1, 0, 0), (0, 0), STOPPED),
        (5, (5, 1, 0, 0), (0, 0), REACHED),  # it was done anyway
        (2**40, (2**40 + 1, 0, 0, 0), (0, 0), RUNNING),
        # the limit: this step counts if it was skipped, and ends the run if it was not
        (9, (99, 0, 3, 0), (1, 1), RUNNING),
        (9, (99, 0, 3, 0), (2, 1), NONFINITE),
        (9, (99, 0, 3, 0), (8, 0), RUNNING),
        (9, (99, 0, 0, 0), (8, 1), RUNNING),  # never
        (9, (99, 0, 3, 7), (8, 1), RUNNING),  # seven were before the run went on
        (9, (99, 0, 3, 6), (8, 1), NONFINITE),
        (9, (9, 1, 3, 0), (8, 1), NONFINITE),  # before all else
    ],
)
def test_when_a_loop_ends_and_why(learns, order, skipped, ending):
    before, skip = skipped
    out = controlled(learns, order, skipped_before=before, skip=skip, collects=77)
    assert out["go"].tolist() == [int(ending is RUNNING)]
    assert out["report"].tolist() == [learns, 77, ending]


def test_to_decide_changes_nothing_that_is_decided_on():
    """So that it may stand before the first turn as well as after each."""
    first = controlled(3, (9, 0, 0, 0))
    assert first["report"].tolist() == controlled(3, (9, 0, 0, 0))["report"].tolist()
    assert set(first) == {"report", "go"}
