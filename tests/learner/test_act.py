"""Epsilon-greedy actions."""

import numpy as np
import pytest
from pair_runs import run_host

from onegraph.kernels.common.layout import COUNTERS, SCHEDULES, Counter, Schedule


def actions_of(head, *, epsilon=0.0, collect=0, greedy=0, actions=3, seed=5):
    head = np.asarray(head, np.float32)
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.COLLECT] = collect
    schedule = np.zeros(SCHEDULES)
    schedule[Schedule.EPSILON] = epsilon
    return run_host(
        "act",
        head=head,
        action=len(head),
        counters=counters,
        schedule=schedule,
        n=len(head),
        actions=actions,
        stride=head.shape[1],
        seed=seed,
        greedy=greedy,
    )["action"]


def test_greedy_ignores_the_state_value_column():
    assert actions_of([[1, 3, 2, 99], [5, 4, 3, 99]]).tolist() == [1, 0]


@pytest.mark.parametrize(("epsilon", "greedy"), [(0.0, 0), (np.nan, 0), (1.0, 1)])
def test_what_never_explores(epsilon, greedy):
    assert set(actions_of([[0, 0, 1]] * 500, epsilon=epsilon, greedy=greedy)) == {2}


def test_epsilon_one_is_uniform_over_the_actions():
    counts = np.bincount(actions_of([[0, 0, 1]] * 30_000, epsilon=1.0), minlength=3)
    # five standard deviations of a binomial with p = 1/3
    assert np.all(np.abs(counts - 10_000) < 5 * np.sqrt(30_000 * 2 / 9))


def test_epsilon_is_the_share_of_random_actions():
    others = np.count_nonzero(actions_of([[0, 0, 1]] * 30_000, epsilon=0.3) != 2)
    assert abs(others - 30_000 * 0.2) < 5 * np.sqrt(30_000 * 0.2 * 0.8)


def test_draws_differ_between_steps_lanes_and_seeds_and_repeat_otherwise():
    head = [[0, 0, 1]] * 64
    first = actions_of(head, epsilon=1.0)
    np.testing.assert_array_equal(first, actions_of(head, epsilon=1.0))
    assert (first != actions_of(head, epsilon=1.0, collect=1)).any()
    assert (first != actions_of(head, epsilon=1.0, seed=6)).any()
    assert len(set(first.tolist())) == 3


def test_a_counter_beyond_32_bits_wraps():
    head = [[0, 0, 1]] * 64
    np.testing.assert_array_equal(
        actions_of(head, epsilon=1.0, collect=2**32 + 9), actions_of(head, epsilon=1.0, collect=9)
    )
