"""Counters and schedules of both programs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.common.layout import (
    ADAM_GROUPS,
    COUNTERS,
    SCHEDULE_PARAMS,
    SCHEDULES,
    Counter,
    Schedule,
    ScheduleKind,
    ScheduleParam,
)
from onegraph.kernels.learner.advance_counters import (
    COLLECT,
    LEARN,
    initial_schedule,
    schedule_value,
)

CONSTANT, LINEAR, COSINE = ScheduleKind.CONSTANT, ScheduleKind.LINEAR, ScheduleKind.COSINE


def schedule_params(warm_up=0, **schedules):
    params = np.zeros(SCHEDULE_PARAMS)
    params[ScheduleParam.ADAM_BETA1], params[ScheduleParam.ADAM_BETA2] = 0.9, 0.999
    params[ScheduleParam.WARM_UP_STEPS] = warm_up
    for name, quad in schedules.items():
        first = ScheduleParam[name]
        params[first : first + 4] = quad
    return params


class Run:
    """The two programs' counters and schedule, from the state that a run begins in."""

    def __init__(self, params):
        self.params = params
        self.counters = np.zeros(COUNTERS, np.int64)
        self.schedule = initial_schedule(params)

    def advance(self, program=LEARN, skip=0, lanes=4, slots=3):
        out = run_host(
            "advance_counters",
            counters=self.counters,
            schedule=self.schedule,
            params=self.params,
            skip=[skip],
            program=program,
            lanes=lanes,
            slots=slots,
        )
        self.counters, self.schedule = out["counters"], out["schedule"]
        return self


@pytest.mark.parametrize(
    ("kind", "k", "value"),
    [
        (CONSTANT, 0, 2), (CONSTANT, 50, 2), (CONSTANT, 1000, 2),
        (LINEAR, 0, 2), (LINEAR, 25, 3), (LINEAR, 50, 4), (LINEAR, 100, 6), (LINEAR, 101, 6),
        (COSINE, 0, 2), (COSINE, 50, 4), (COSINE, 100, 6), (COSINE, 10**12, 6),
        (COSINE, 25, 6 - 2 * (1 + math.sqrt(0.5))),
    ],
)  # fmt: skip
def test_schedule_values(kind, k, value):
    assert schedule_value(kind, 2.0, 6.0, 100, k) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("kind", [LINEAR, COSINE])
def test_a_schedule_of_no_steps_is_at_its_end(kind):
    assert schedule_value(kind, 1.0, 0.05, 0, 0) == 0.05


@given(
    st.sampled_from([LINEAR, COSINE]),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 10**6),
    st.integers(0, 2 * 10**6),
)
def test_a_schedule_stays_between_its_ends_and_ends_exactly(kind, start, end, steps, k):
    value = schedule_value(kind, start, end, steps, k)
    assert min(start, end) - 1e-15 <= value <= max(start, end) + 1e-15
    assert schedule_value(kind, start, end, steps, steps) == end


def test_cosine_tau_at_its_start_half_end_and_past_it():
    run = Run(schedule_params(TAU=(COSINE, 0.01, 0.002, 4)))
    seen = [run.advance().schedule[Schedule.TAU] for _ in range(7)]
    assert seen[0] == pytest.approx(0.01)
    assert seen[2] == pytest.approx(0.006)
    assert seen[4:] == [0.002] * 3


def test_step_50_samples_with_the_middle_of_beta():
    run = Run(schedule_params(BETA=(LINEAR, 0.4, 1.0, 100)))
    read = []
    for _ in range(120):
        read.append(run.schedule[Schedule.BETA])  # sampling comes before the counters
        run.advance()
    assert read[0] == 0.4
    assert read[50] == pytest.approx(0.7, rel=1e-15)
    assert read[100:] == [1.0] * 20


def test_step_k_uses_adam_t_of_k_plus_one():
    run = Run(schedule_params()).advance().advance()
    assert run.counters[:ADAM_GROUPS].tolist() == [2] * ADAM_GROUPS
    assert run.counters[Counter.RNG] == 2
    pairs = run.schedule[Schedule.BIAS : Schedule.BIAS + 2 * ADAM_GROUPS].reshape(-1, 2)
    expected = [1 - float(np.float32(b)) ** 2 for b in (0.9, 0.999)]
    np.testing.assert_allclose(pairs, [expected] * ADAM_GROUPS, rtol=1e-12)


def test_a_step_after_a_skipped_one_uses_the_number_it_left():
    run = Run(schedule_params()).advance().advance()
    after_skip = run.schedule.copy()
    run.advance(skip=1)
    assert run.counters[Counter.ADAM_TRUNK] == 2
    assert run.counters[Counter.SKIPPED] == 1
    assert run.counters[Counter.RNG] == 3  # draws go on: the next sample is another
    np.testing.assert_array_equal(run.schedule[Schedule.BIAS :], after_skip[Schedule.BIAS :])
    run.advance()
    assert run.counters[Counter.ADAM_TRUNK] == 3
    assert run.counters[Counter.SKIPPED] == 1


def test_a_run_of_skipped_steps_is_counted_until_one_is_not():
    run = Run(schedule_params())
    seen = [
        int(run.advance(skip=skip).counters[Counter.SKIPPED_IN_A_ROW])
        for skip in (0, 1, 1, 0, 1, 1, 1, 0)
    ]
    assert seen == [0, 1, 2, 0, 1, 2, 3, 0]
    assert run.counters[Counter.SKIPPED] == 5
    run.advance(skip=1).advance(COLLECT, skip=1)
    assert run.counters[Counter.SKIPPED_IN_A_ROW] == 1  # collecting is no learning step


def test_warm_up_climbs_to_the_learning_rate():
    run = Run(schedule_params(warm_up=4, LEARNING_RATE=(CONSTANT, 8.0, 0, 0)))
    assert run.schedule[Schedule.LEARNING_RATE] == 2
    seen = [run.advance().schedule[Schedule.LEARNING_RATE] for _ in range(6)]
    assert seen == [2, 4, 6, 8, 8, 8]
    assert run.counters[Counter.WARM_UP] == 4


def test_no_warm_up():
    run = Run(schedule_params(LEARNING_RATE=(CONSTANT, 8.0, 0, 0))).advance()
    assert run.schedule[Schedule.LEARNING_RATE] == 8
    assert run.counters[Counter.WARM_UP] == 0


def test_collecting_moves_the_head_and_fills_the_ring():
    run = Run(schedule_params(EPSILON=(LINEAR, 1.0, 0.0, 4)))
    read, heads, filled = [], [], []
    for _ in range(6):
        read.append(run.schedule[Schedule.EPSILON])
        run.advance(COLLECT)
        heads.append(int(run.counters[Counter.HEAD]))
        filled.append(int(run.counters[Counter.FILLED]))
    assert read == [1, 0.75, 0.5, 0.25, 0, 0]
    assert heads == [1, 2, 0, 1, 2, 0]
    assert filled == [4, 8, 12, 12, 12, 12]
    assert run.counters[Counter.COLLECT] == 6
    assert run.counters[Counter.RNG] == 0


def test_an_unknown_program_changes_nothing():
    run = Run(schedule_params())
    before = run.counters.copy(), run.schedule.copy()
    run.advance(program=2)
    np.testing.assert_array_equal(run.counters, before[0])
    np.testing.assert_array_equal(run.schedule, before[1])


def test_the_initial_schedule_is_what_step_0_reads():
    params = schedule_params(
        warm_up=10,
        TAU=(COSINE, 0.01, 0.002, 100),
        BETA=(LINEAR, 0.4, 1.0, 100),
        EPSILON=(LINEAR, 1.0, 0.05, 100),
        LEARNING_RATE=(COSINE, 1e-3, 1e-5, 100),
    )
    first = initial_schedule(params)
    assert len(first) == SCHEDULES
    after = Run(params).advance().schedule
    after[Schedule.BETA] = 0.4  # step 0 read this one before its counters moved on
    np.testing.assert_array_equal(after, first)
