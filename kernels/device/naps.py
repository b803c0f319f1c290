"""How the host sleeps while the device works by itself.

Waking up is what waiting costs: after milliseconds of sleep a look takes tens of microseconds of
processor time, most of it the operating system's and that of cold caches. So the host sleeps
through nearly all of the time that the work is expected to take, and looks often only towards its
end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: What a nap leaves of the expected time: a part of it, for an expectation that is too long by as
#: much, and seconds for a sleep that is longer than it was asked to be. The naps that follow are
#: shorter, by the same rule.
LEFT, LEFT_S = 0.05, 2e-4

#: Seconds of a nap at most, so that a wish to stop, the time limit and the progress bar are not
#: kept waiting; and at least, which is how late the end may be noticed.
LONGEST, SHORTEST = 50e-3, 1e-4


def nap(expected: float) -> float:
    """Seconds to sleep where the end is expected in `expected` of them (0: at any time)."""
    return min(max((1 - LEFT) * expected - LEFT_S, SHORTEST), LONGEST)


def attend(
    busy: Callable[[], bool],
    meanwhile: Callable[[], float],
    *,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Sleep until the device is not busy any more, and call `meanwhile` before each nap.

    Args:
        busy: whether the device is at work.
        meanwhile: gives the seconds until the end, as far as it knows. What it raises ends this.
        sleep: takes seconds.
    """
    while busy():
        sleep(nap(meanwhile()))
