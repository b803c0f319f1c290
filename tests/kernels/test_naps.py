"""The host's naps, by a clock that only they move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegraph.kernels.device.naps import LONGEST, SHORTEST, attend, nap


class Work:
    """Work that takes `seconds`, and is expected to take `factor` times what is left."""

    def __init__(self, seconds: float, factor: float = 1.0) -> None:
        self.seconds, self.factor = seconds, factor
        self.now, self.looks = 0.0, 0

    def busy(self) -> bool:
        return self.now < self.seconds

    def meanwhile(self) -> float:
        self.looks += 1
        return (self.seconds - self.now) * self.factor

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def attended(work: Work) -> Work:
    attend(work.busy, work.meanwhile, sleep=work.sleep)
    return work


@pytest.mark.parametrize(
    ("expected", "seconds"),
    [(0.0, SHORTEST), (1e-5, SHORTEST), (0.02, 0.0188), (0.04, 0.0378), (1.0, LONGEST)],
)
def test_a_nap_is_most_of_what_is_expected(expected, seconds):
    assert nap(expected) == pytest.approx(seconds)


def test_an_epoch_of_34_ms_is_five_naps():
    # 32.48 ms, 1.62 of the 1.92 that are left, and of the last 0.3 the shortest, three times.
    work = attended(Work(34.4e-3))
    assert work.looks == 5
    assert work.now - work.seconds < SHORTEST


def test_a_long_wait_is_looked_at_twenty_times_a_second():
    assert attended(Work(2.0)).looks == pytest.approx(40, abs=6)


def test_what_is_done_already_is_not_slept_for():
    work = attended(Work(0.0))
    assert (work.looks, work.now) == (0, 0.0)


@given(st.floats(1e-5, 5.0), st.floats(0.3, 1 / 0.95))
def test_the_end_is_noticed_in_time_where_it_is_not_expected_too_late(seconds, factor):
    work = attended(Work(seconds, factor))
    assert work.now - seconds <= SHORTEST + 1e-9


@given(st.floats(1e-3, 5.0), st.floats(0.0, 100.0))
def test_a_wrong_expectation_costs_a_nap_at_most(seconds, factor):
    work = attended(Work(seconds, factor))
    assert work.now - seconds <= LONGEST


def test_what_is_raised_meanwhile_ends_the_wait():
    def interrupted() -> float:
        raise KeyboardInterrupt

    work = Work(1.0)
    with pytest.raises(KeyboardInterrupt):
        attend(work.busy, interrupted, sleep=work.sleep)
    assert work.now == 0.0
