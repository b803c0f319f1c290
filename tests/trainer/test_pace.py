"""When the host expects a loop to end, by a device whose time only its naps move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegraph.kernels.device.naps import LONGEST, SHORTEST, attend
from onegraph.trainer.pace import Pace


class Loops:
    """Loops of `steps` steps, of which each round of `each` is published at its end."""

    def __init__(self, steps: int = 1000, each: int = 4) -> None:
        self.steps, self.each = steps, each
        self.pace, self.now, self.looks = Pace(), 0.0, 0

    def take(self, step_s: float, *, before: float = 0.0, steps: int = 0) -> tuple[int, float]:
        """Attend one loop; gives the looks, and how late its end was noticed in seconds.

        Args:
            step_s: seconds a step of this one.
            before: seconds that the host needs between `begin` and the first look.
            steps: of this one, if not as many as ever.
        """
        steps = steps or self.steps
        self.pace.begin(steps)
        self.now += before
        started, looks = self.now, 0

        def done() -> int:
            return min(steps, int((self.now - started) / step_s / self.each) * self.each)

        def meanwhile() -> float:
            nonlocal looks
            looks += 1
            return self.pace.left(done(), self.now)

        def sleep(seconds: float) -> None:
            self.now += seconds

        attend(lambda: self.now - started < steps * step_s, meanwhile, sleep=sleep)
        self.pace.end(steps)
        return looks, self.now - started - steps * step_s


#: Seconds a step of an epoch of 34.4 ms.
STEP = 34.4e-6


def test_a_loop_like_the_one_before_takes_few_looks():
    loops = Loops()
    first, late = loops.take(STEP)
    assert first <= 12
    assert late < 2 * SHORTEST
    for _ in range(5):
        looks, late = loops.take(STEP)
        assert looks <= 5
        assert late < 2 * SHORTEST


def test_what_the_host_did_before_it_looked_is_not_the_pace():
    loops = Loops()
    loops.take(STEP, before=3.0)  # captures
    looks, late = loops.take(STEP)
    assert looks <= 5
    assert late < 2 * SHORTEST


@pytest.mark.parametrize("factor", [0.5, 0.8, 0.93, 0.97, 1.05, 1.5, 4.0])
def test_another_pace_is_found_out(factor):
    """It may cost one loop time, up to a nap; from the next one on it is known again."""
    loops = Loops()
    loops.take(STEP)
    loops.take(STEP)
    tolerance = 2 * SHORTEST + loops.each * factor * STEP  # a round is not seen before its end
    assert loops.take(factor * STEP)[1] < LONGEST
    assert loops.take(factor * STEP)[1] < tolerance
    looks, late = loops.take(factor * STEP)
    assert late < tolerance
    assert looks <= 8


def test_a_loop_that_was_over_at_once_tells_nothing():
    loops = Loops()
    loops.take(STEP, steps=4)
    assert loops.take(STEP)[1] < 2 * SHORTEST


@given(st.floats(1e-6, 1e-3), st.integers(1, 50), st.integers(1, 5000))
def test_the_end_is_not_missed_by_much_even_the_first_time(step_s, each, steps):
    """A loop that is not known is not slept through for longer than it has been watched."""
    loops = Loops(steps, each)
    _, late = loops.take(step_s)
    assert late <= max(0.2 * steps * step_s, 4 * each * step_s, 2 * SHORTEST)


def test_nothing_is_expected_after_the_goal():
    pace = Pace()
    pace.begin(10)
    assert pace.left(0, 1.0) == 0.0
    assert pace.left(4, 1.4) == pytest.approx(0.6)
    assert pace.left(10, 2.0) == 0.0
    assert pace.left(12, 2.2) == 0.0
