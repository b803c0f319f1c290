"""Text and wall-clock time to UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from onegraph.trainer.market.bars import DAY_NS, I64
from onegraph.trainer.market.errors import fault, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_CLOCK = r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?"
_YEAR_FIRST = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})" + _CLOCK)
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})" + _CLOCK)
_SLASHES = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})" + _CLOCK)

_FORMS = "Write it as 2005-02-28, 2005-02-28 16:00:00, 28.02.2005 16:00:00.000 or 2/28/2005."

#: Which number of a date with slashes comes first; nothing in 1/2/2020 itself tells.
DateOrder = Literal["month-first", "day-first"]
DATE_ORDERS: Final = ("month-first", "day-first")

#: A bar is at most this long, in seconds: 366 days.
_LONGEST_BAR: Final = 366 * 86_400

# int64 nanoseconds end in April 2262 and start in September 1677.
_FIRST_YEAR, _LAST_YEAR = 1678, 2261


class Stamp(NamedTuple):
    """A time as it was written: on a wall clock, perhaps with an offset.

    Attributes:
        wall: what the clock showed, without a time zone.
        nanos: nanoseconds (0 to 999) beyond the microseconds of `wall`.
        offset: of the clock from UTC; None: the declared time zone says.
        has_clock: a time of day was written.
    """

    wall: datetime
    nanos: int
    offset: timedelta | None
    has_clock: bool


def parse_stamp(text: str, where: str, date_order: DateOrder = "month-first") -> Stamp:
    """The stamp that `text` writes.

    Year-month-day, day.month.year and month/day/year (or, declared by `date_order`, day/month/year)
    are read, each with an optional time of day (to the nanosecond) and, after it, an optional
    offset from UTC.

    Raises:
        MarketDataError: any other text, or a date that is not in the calendar; it names `where`.
    """
    text = text.strip()
    if match := _YEAR_FIRST.fullmatch(text):
        year, month, day, *clock = match.groups()
    elif match := _DAY_FIRST.fullmatch(text):
        day, month, year, *clock = match.groups()
    elif match := _SLASHES.fullmatch(text):
        month, day, year, *clock = match.groups()
        if date_order == "day-first":
            month, day = day, month
        if int(month) > 12 >= int(day):
            other = DATE_ORDERS[date_order == "month-first"]
            problem = (
                f"{text!r} has no month {int(month)}; dates with slashes are read {date_order}"
            )
            remedy = f"If the file writes them so, declare date_order = {other!r}."
            raise fault(problem, remedy, where)
    else:
        problem = f"{shown(text)} is not a date that can be read"
        raise fault(problem, _FORMS, where)
    hour, minute, second, fraction, offset = clock
    nanos = int((fraction or "").ljust(9, "0"))
    try:
        # The zone is told apart later: a wall clock has none.
        wall = datetime(  # noqa: DTZ001
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
            nanos // 1000,
        )  # fmt: skip
        shift = _offset(offset)
    except ValueError as error:
        problem = f"{text!r} is not in the calendar: {error}"
        raise fault(problem, _FORMS, where) from error
    return Stamp(wall, nanos % 1000, shift, hour is not None)


def order_remarks(texts: Sequence[str], date_order: DateOrder) -> tuple[str, ...]:
    """A remark if nothing in the dates tells which of their numbers is the month.

    Args:
        texts: T stamps as written.
        date_order: how they were read.
    """
    slashes = [match for text in texts if (match := _SLASHES.fullmatch(text.strip()))]
    told = any(max(int(m[1]), int(m[2])) > 12 for m in slashes)
    unlike = [m[0] for m in slashes if int(m[1]) != int(m[2])]
    if told or not unlike:
        return ()
    return (
        f"dates such as {unlike[0]} could be read day-first and month-first, and no date in the "
        f"file tells; they were read {date_order} (date_order)",
    )


def zone(name: str) -> ZoneInfo:
    """The IANA time zone called `name`; `MarketDataError` where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        remedy = (
            "Use an IANA name such as UTC or America/New_York (on Windows: pip install tzdata)."
        )
        problem = f"{name!r} is not a time zone known here"
        raise fault(problem, remedy, "timezone") from error


def to_utc(
    stamps: Sequence[Stamp], timezone_name: str, where: Callable[[int], str]
) -> tuple[I64, bool]:
    """UTC of `stamps`, and whether they are dates.

    Where every stamp is a date or stands at midnight of its own clock, the stamps are dates: each
    becomes midnight UTC of its date, whatever the time zone, since a date names a whole session.

    Args:
        stamps: T stamps as written.
        timezone_name: IANA name of the clock that stamps without an offset were read from.
        where: names the place of stamp i, for errors.

    Returns:
        int64 [T] nanoseconds since 1970 UTC, and True for dates.

    Raises:
        MarketDataError: an unknown time zone; a local time that the clock showed twice or never; a
            date among times; a year outside 1678 to 2261.
    """
    declared = zone(timezone_name)
    for i, stamp in enumerate(stamps):
        if not _FIRST_YEAR <= stamp.wall.year <= _LAST_YEAR:
            problem = f"the year {stamp.wall.year} does not fit nanoseconds in 64 bits"
            raise fault(problem, f"Keep to {_FIRST_YEAR} to {_LAST_YEAR}.", where(i))
    if all(_at_midnight(stamp) for stamp in stamps):
        dates = [_ns(stamp.wall, 0, timedelta(0)) for stamp in stamps]
        return np.array(dates, dtype=np.int64), True
    times = np.empty(len(stamps), dtype=np.int64)
    for i, stamp in enumerate(stamps):
        if not stamp.has_clock:
            problem = f"{stamp.wall.date().isoformat()} has no time of day, other bars have one"
            raise fault(problem, "Write the time of day in every row.", where(i))
        offset = stamp.offset
        if offset is None:
            offset = _local_offset(stamp.wall, declared, where(i))
        times[i] = _ns(stamp.wall, stamp.nanos, offset)
    return times, False


def ends_from_starts(time: I64, bar_seconds: float | None, where: str) -> I64:
    """Ends of intraday bars that are stamped with their starts.

    Args:
        time: int64 [T], starts in ns since 1970 UTC, increasing.
        bar_seconds: length of a bar; None: the smallest step between bars, of which every other
            step must be a multiple.
        where: names the file, for errors.

    Raises:
        MarketDataError: the length is not above 0, or cannot be told from the steps.
    """
    if bar_seconds is not None:
        # The comparison is false for NaN too.
        if not 1e-9 <= bar_seconds <= _LONGEST_BAR:
            problem = f"bar_seconds is {bar_seconds!r}"
            remedy = f"Give the length of a bar in seconds, above 0 and at most {_LONGEST_BAR}."
            raise fault(problem, remedy, where)
        return time + np.int64(round(bar_seconds * 1e9))
    remedy = "Say how long a bar is with bar_seconds."
    if len(time) < 2:
        problem = "one bar does not show how long a bar is"
        raise fault(problem, remedy, where)
    step = np.diff(time)
    shortest = int(step.min())
    if np.any(step % shortest != 0):
        odd = int(step[step % shortest != 0][0])
        problem = f"steps of {shortest / 1e9:g} s and {odd / 1e9:g} s do not show how long a bar is"
        raise fault(problem, remedy, where)
    return time + np.int64(shortest)


def usual_step(time: I64) -> float:
    """Median step between bars in days; 0 for fewer than two bars."""
    return float(np.median(np.diff(time))) / DAY_NS if len(time) > 1 else 0.0


def _offset(text: str | None) -> timedelta | None:
    if text is None:
        return None
    if text in ("Z", "UTC"):
        return timedelta(0)
    shift = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    shift = -shift if text[0] == "-" else shift
    # The constructor refuses offsets of a day and more.
    timezone(shift)
    return shift


def _at_midnight(stamp: Stamp) -> bool:
    wall = stamp.wall
    clock = (wall.hour, wall.minute, wall.second, wall.microsecond, stamp.nanos)
    return not stamp.has_clock or clock == (0, 0, 0, 0, 0)


def _ns(wall: datetime, nanos: int, offset: timedelta) -> int:
    micros = (wall.replace(tzinfo=UTC) - offset - _EPOCH) // _MICROSECOND
    return micros * 1000 + nanos


def _local_offset(wall: datetime, declared: ZoneInfo, where: str) -> timedelta:
    first = wall.replace(tzinfo=declared, fold=0).utcoffset()
    second = wall.replace(tzinfo=declared, fold=1).utcoffset()
    if first is None or second is None or first != second:
        # Clocks set back show a time twice: the first time with the larger offset.
        twice = first is not None and second is not None and first > second
        kind = "ambiguous (the clock showed it twice)" if twice else "impossible (never shown)"
        remedy = "Write an offset from UTC with the time, or export the file in UTC."
        problem = f"the local time {wall} is {kind} in {declared.key}"
        raise fault(problem, remedy, where)
    return first
