"""How long a loop on the device still takes, from how far it has come."""

from __future__ import annotations

#: Times that the loop has run so far, for which an expectation holds that is of this loop alone.
#: What it has published is of whole rounds, so that the first figures are far off.
_SEEN = 3.0

#: The part of a loop that a look has to have seen for its pace to be that of the next one.
_NEARLY_ALL = 0.9


class Pace:
    """Expects the end of a loop, so that the host can sleep until shortly before it.

    The pace of one loop is taken for that of the next. Where the loop ended long before it was
    expected (the GPU has become faster, say) nobody saw how fast it was; then the next one is
    watched from its begin, with looks that lie ever further apart.
    """

    def __init__(self) -> None:
        self._step_s = 0.0  # seconds a step
        self._known = False  # from the loop before
        self._goal = self._looked = 0
        self._begun: tuple[float, int] | None = None

    def begin(self, goal: int) -> None:
        """A loop of `goal` steps begins."""
        self._goal, self._looked, self._begun = goal, 0, None

    def left(self, done: int, now: float) -> float:
        """Seconds until the end of the loop, as far as is known.

        Args:
            done: steps of it so far.
            now: seconds by any clock. What the host did before the first look (warming up, say) is
                not taken for the device's pace.
        """
        if self._begun is None:
            self._begun = now, done
        seconds, steps = now - self._begun[0], done - self._begun[1]
        self._looked = done
        if steps > 0:
            self._step_s = seconds / steps
        ahead = max(self._step_s * (self._goal - done), 0.0)
        if self._known:
            return ahead
        return min(ahead, _SEEN * seconds) if steps > 0 else seconds

    def end(self, done: int) -> None:
        """The loop has ended, after `done` steps."""
        self._known = self._step_s > 0 and self._looked >= _NEARLY_ALL * done
