"""What the bars themselves say of their calendar: how long they are, and when they are traded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from onegraph.trainer.market.bars import DAY_NS, I64, find_gaps, stamp_text, traded_weekdays
from onegraph.trainer.market.metrics import periods_per_year

if TYPE_CHECKING:
    from onegraph.trainer.market.bars import Bars

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

#: Median step in days from which bars are weekly, and from which they are longer than that.
_WEEKLY_STEP: Final = 4.0
_LONGER_STEP: Final = 10.0


@dataclass(frozen=True)
class Session:
    """A stretch of the day that bars cover on some dates.

    Attributes:
        first: end of the first bar, in ns after midnight UTC.
        last: end of the last bar, alike.
        dates: on how many UTC dates.
    """

    first: int
    last: int
    dates: int

    def describe(self) -> str:
        """As in ``14:31 to 21:00 on 160 dates``."""
        return f"{clock_text(self.first)} to {clock_text(self.last)} on {self.dates} dates"


@dataclass(frozen=True)
class Gap:
    """A step between two bars that the calendar does not explain.

    Attributes:
        before: end of the bar before it, ns since 1970 UTC.
        after: end of the bar after it.
    """

    before: int
    after: int

    @property
    def length(self) -> int:
        """In ns."""
        return self.after - self.before


@dataclass(frozen=True)
class Calendar:
    """The calendar that bars keep.

    Attributes:
        kind: intraday, daily, weekly, or longer than weekly.
        step: the median step between bars in ns; 0 for a single bar.
        weekdays: names of the weekdays (UTC) that are traded as a rule; none for bars longer than a
            day.
        sessions: of intraday bars, those kept on most dates first.
        gaps: in order of time.
        periods_per_year: P, bars a year.
    """

    kind: str
    step: int
    weekdays: tuple[str, ...]
    sessions: tuple[Session, ...]
    gaps: tuple[Gap, ...]
    periods_per_year: float

    @property
    def longest_gap(self) -> Gap | None:
        """The first of the longest."""
        return max(self.gaps, key=lambda gap: gap.length, default=None)


def calendar_of(bars: Bars) -> Calendar:
    """The calendar of `bars`."""
    time = bars.time
    step = int(np.median(np.diff(time))) if len(time) > 1 else 0
    days = step / DAY_NS
    if bars.intraday:
        kind = "intraday"
    elif days < _WEEKLY_STEP:
        kind = "daily"
    else:
        kind = "weekly" if days < _LONGER_STEP else "longer than weekly"
    short = kind in ("intraday", "daily")
    return Calendar(
        kind=kind,
        step=step,
        weekdays=tuple(np.array(WEEKDAYS)[traded_weekdays(time)].tolist()) if short else (),
        sessions=_sessions(time) if bars.intraday else (),
        gaps=tuple(
            Gap(int(time[i]), int(time[i + 1])) for i in find_gaps(time, intraday=bars.intraday)
        ),
        periods_per_year=periods_per_year(time),
    )


def summary(bars: Bars) -> str:
    """One line on `bars`: how many, from when to when, and what is missing in them."""
    calendar = calendar_of(bars)
    return (
        f"{bars.symbol}: {len(bars):,} {calendar.kind} bars, {stamp_text(int(bars.time[0]))} to "
        f"{stamp_text(int(bars.time[-1]))}, {calendar.periods_per_year:.1f} a year, "
        f"{bars.gaps} gaps, {bars.zero_volume_bars} without volume, "
        f"{'adjusted' if bars.adjusted else 'unadjusted'}"
    )


def length_text(nanoseconds: int) -> str:
    """A length of time in its largest whole unit: ``1 min``, ``90 s``, ``3 days``."""
    for unit, name in (
        (DAY_NS, "day"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
    ):
        if nanoseconds >= unit and nanoseconds % unit == 0:
            count = nanoseconds // unit
            return f"{count} {name}{'s' if name == 'day' and count != 1 else ''}"
    return f"{nanoseconds / 1e9:g} s"


def clock_text(nanoseconds: int) -> str:
    """A time of day, given in ns after midnight: ``14:31``, or with its seconds."""
    seconds = nanoseconds // 1_000_000_000
    hours, minutes = seconds // 3600, seconds // 60 % 60
    text = f"{hours:02}:{minutes:02}"
    return text if seconds % 60 == 0 else f"{text}:{seconds % 60:02}"


def _sessions(time: I64) -> tuple[Session, ...]:
    date = time // DAY_NS
    starts = np.flatnonzero(np.diff(date, prepend=date[0] - 1))
    ends = np.append(starts[1:], len(time)) - 1
    clock = time % DAY_NS
    pairs = zip(clock[starts].tolist(), clock[ends].tolist(), strict=True)
    return tuple(Session(*pair, count) for pair, count in Counter(pairs).most_common())
