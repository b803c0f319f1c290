"""`Bars`: one symbol's bars, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onegraph.trainer.market.errors import MarketDataError, fault

if TYPE_CHECKING:
    from collections.abc import Callable

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

#: Nanoseconds in a day.
DAY_NS = 86_400_000_000_000

#: Prices beyond these are no prices, and ratios of them have no place in float64.
LEAST_PRICE = 1e-150
MOST_PRICE = 1e150

#: The bars' longest span, 290 years: int64 holds differences of 292.
LONGEST_SPAN_NS = 290 * 365 * DAY_NS

#: |log(open / previous close)| above which a bar is noted as a jump: a move of 42% up or 30% down.
#: A 3-for-2 split (0.41) is seen; a 5-for-4 split (0.22) could be a bad day and is not.
JUMP_LOG_RATIO = 0.35

#: A step within a date is a break in the session where this many dates, and this share of them,
#: have it at the same time of day. A change of the clocks moves it: the share is below one half.
BREAK_DATES = 5
BREAK_SHARE = 0.25

#: Relative distance by which open and close may leave [low, high]: prices rounded to float32 do.
ROUNDING = 1e-6

#: Jumps listed one by one in the notes; more are counted.
JUMPS_LISTED = 8


@dataclass(frozen=True)
class Source:
    """The file that bars were read from.

    Attributes:
        path: as the caller gave it.
        layout: the file's format, for people.
        symbols: all that the file names, sorted; empty: it names none.
        dates: the bars are stamped with dates, not with times.
        adjusted_close: the file has an adjusted close, used or not.
        newest_first: the file has its newest bar first.
        remarks: what a reader of the bars should know of the file.
    """

    path: str
    layout: str
    symbols: tuple[str, ...] = ()
    dates: bool = False
    adjusted_close: bool = False
    newest_first: bool = False
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars of one symbol, oldest first. T bars; the arrays are copied and read-only.

    Attributes:
        symbol: the instrument's name.
        time: int64 [T], end of the bar in nanoseconds since 1970 UTC, strictly increasing. A daily
            bar carries midnight UTC of its date.
        open: float64 [T], price.
        high: float64 [T], price.
        low: float64 [T], price.
        close: float64 [T], price.
        volume: float64 [T], units traded, >= 0.
        adjusted: prices are adjusted for splits (and, from an adjusted close, dividends).
        intraday: bars are shorter than a day, so that the time of day says something.
        source: the file; None: the bars were made in memory.
        zero_volume_bars: bars without volume.
        gaps: steps between bars that are too long; see `find_gaps`.
        notes: what a reader of the data should know: the source's remarks, jumps, open or close
            outside the bar.

    Raises:
        MarketDataError: no bars, arrays that differ in length, duplicate or unsorted times, a price
            that is not finite and positive, high < low, a volume that is not finite or below 0.
    """

    symbol: str
    time: I64
    open: F64
    high: F64
    low: F64
    close: F64
    volume: F64
    adjusted: bool = False
    intraday: bool = False
    source: Source | None = None
    zero_volume_bars: int = field(init=False)
    gaps: int = field(init=False)
    notes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("time", "open", "high", "low", "close", "volume"):
            given = np.asarray(getattr(self, name))
            if name == "time" and given.dtype != np.int64:
                problem = f"time has dtype {given.dtype}, not int64"
                raise fault(problem, "Give nanoseconds since 1970 UTC as int64.", self.symbol)
            array = np.array(given, dtype=np.int64 if name == "time" else np.float64)
            if array.shape != (len(self.time),):
                problem = f"{name} has shape {array.shape}, time has {len(self.time)} bars"
                raise fault(problem, "Give one value for each bar.", self.symbol)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        check_bars(self, lambda i: f"{self.symbol}, bar {i}")
        object.__setattr__(self, "zero_volume_bars", int(np.count_nonzero(self.volume == 0)))
        object.__setattr__(self, "gaps", len(find_gaps(self.time, intraday=self.intraday)))
        remarks = () if self.source is None else self.source.remarks
        notes = (*remarks, *_outside_notes(self), *_jump_notes(self))
        object.__setattr__(self, "notes", notes)

    def __len__(self) -> int:
        return len(self.time)


def check_bars(bars: Bars, where: Callable[[int], str]) -> None:
    """Raise `MarketDataError` for the first bar that is wrong; `where(i)` names bar i."""
    if len(bars.time) == 0:
        problem = "there are no bars"
        raise fault(problem, "Give at least one bar.", bars.symbol)
    check_order(bars.time, where)
    check_values(bars.open, bars.high, bars.low, bars.close, bars.volume, where)


def check_order(time: I64, where: Callable[[int], str]) -> None:
    """Raise `MarketDataError` at the first time that repeats or precedes the one before it.

    So do times that lie too far apart: their difference has no place in 64 bits.
    """
    for i in _first(time[1:] <= time[:-1]):
        stamp = stamp_text(int(time[i + 1]))
        if time[i + 1] == time[i]:
            problem = f"the time {stamp} repeats that of {where(i)}"
            raise fault(problem, "Keep one bar for each time.", where(i + 1))
        problem = f"the time {stamp} is before {stamp_text(int(time[i]))} of {where(i)}"
        raise fault(problem, "Sort the bars by time, oldest first.", where(i + 1))
    if len(time) and int(time[-1]) - int(time[0]) > LONGEST_SPAN_NS:
        problem = f"the time {stamp_text(int(time[-1]))} is more than 290 years after the first"
        raise fault(problem, "Correct the year, or read fewer bars.", where(len(time) - 1))


def check_values(
    open_: F64, high: F64, low: F64, close: F64, volume: F64, where: Callable[[int], str]
) -> None:
    """Raise `MarketDataError` at a price or volume that no bar can have."""
    for name, price in (("open", open_), ("high", high), ("low", low), ("close", close)):
        for i in _first(~(np.isfinite(price) & (price > 0))):
            raise _value_fault(where(i), name, float(price[i]), "a finite price above 0")
        for i in _first((price < LEAST_PRICE) | (price > MOST_PRICE)):
            bounds = f"a price from {LEAST_PRICE:g} to {MOST_PRICE:g}"
            raise _value_fault(where(i), name, float(price[i]), bounds)
    for i in _first(~(np.isfinite(volume) & (volume >= 0))):
        raise _value_fault(where(i), "volume", float(volume[i]), "finite and at least 0")
    for i in _first(high < low):
        problem = f"high {float(high[i])!r} is below low {float(low[i])!r}"
        raise fault(problem, "Correct the bar or leave it out.", where(i))


def find_gaps(time: I64, *, intraday: bool) -> I64:
    """The bars that are followed by a step longer than the calendar explains.

    Args:
        time: int64 [T], ns since 1970 UTC, increasing.
        intraday: bars shorter than a day: a gap is a step between two bars of one UTC date that is
            more than 1.5 times the median step, so that nights and weekends are none; nor is a
            step that many dates have at the same time of day, which is a break in the session.
            Otherwise a gap is a step of more than 1 day where every weekday is traded, and of more
            than 2 days beyond the weekend where not (4 days from a Friday: a long weekend), or,
            for weekly and longer bars, more than 1.5 times the median step.

    Returns:
        int64 [G] indices into `time`.
    """
    if len(time) < 2:
        return np.empty(0, dtype=np.int64)
    step = np.diff(time)
    usual = float(np.median(step))
    if intraday:
        same_date = time[1:] // DAY_NS == time[:-1] // DAY_NS
        found = np.flatnonzero(same_date & (step > 1.5 * usual))
        clock, seen = np.unique(time[found] % DAY_NS, return_counts=True)
        often = max(BREAK_DATES, BREAK_SHARE * len(np.unique(time // DAY_NS)))
        return found[~np.isin(time[found] % DAY_NS, clock[seen >= often])]
    idle = idle_weekdays(time)
    longest = DAY_NS * (idle + 2 if idle else 1)
    return np.flatnonzero(step > max(longest, 1.5 * usual))


def traded_weekdays(time: I64) -> NDArray[np.bool_]:
    """Whether each weekday, Monday first, has bars as a rule: a quarter of the busiest one's.

    Less than four weeks of bars show no rule: Monday to Friday are traded, and what is seen.
    """
    # 1970-01-01 was a Thursday.
    seen: I64 = np.bincount((time // DAY_NS + 3) % 7, minlength=7)
    short = bool(time[-1] - time[0] < 28 * DAY_NS)
    return (seen > 0) | (np.arange(7) < 5) if short else 4 * seen >= np.max(seen)


def idle_weekdays(time: I64) -> int:
    """The longest run of weekdays without trade, around the end of the week."""
    traded = traded_weekdays(time).tolist() * 2
    run = longest = 0
    for day in traded:
        run = 0 if day else run + 1
        longest = max(longest, run)
    return longest


def find_jumps(bars: Bars) -> tuple[I64, F64]:
    """The bars that open far from the close before them: their indices [J], and open / close."""
    ratio = bars.open[1:] / bars.close[:-1]
    jumps = np.flatnonzero(np.abs(np.log(ratio)) > JUMP_LOG_RATIO)
    return jumps + 1, ratio[jumps]


def stamp_text(time: int) -> str:
    """ISO text of `time` (ns since 1970 UTC), without a time of day that is midnight."""
    if time % DAY_NS == 0:
        return str(np.datetime64(time // DAY_NS, "D"))
    if time % 1_000_000_000 == 0:
        return f"{np.datetime64(time // 1_000_000_000, 's')}Z"
    return f"{np.datetime64(time, 'ns')}Z"


def _first(wrong: NDArray[np.bool_]) -> list[int]:
    return [int(i) for i in np.flatnonzero(wrong)[:1]]


def _value_fault(where: str, name: str, value: float, wanted: str) -> MarketDataError:
    remedy = "Correct the bar or leave it out; nothing is filled in."
    problem = f"{name} is {value!r}, not {wanted}"
    return fault(problem, remedy, where)


def _outside_notes(bars: Bars) -> list[str]:
    highest = bars.high * (1 + ROUNDING)
    lowest = bars.low * (1 - ROUNDING)
    outside = np.zeros(len(bars.time), dtype=np.bool_)
    for price in (bars.open, bars.close):
        outside |= (price > highest) | (price < lowest)
    count = int(np.count_nonzero(outside))
    if count == 0:
        return []
    first = stamp_text(int(bars.time[np.flatnonzero(outside)[0]]))
    return [f"{count} bars have their open or close outside [low, high], the first at {first}"]


def _jump_notes(bars: Bars) -> list[str]:
    jumps, ratio = find_jumps(bars)
    notes = [
        f"{stamp_text(int(bars.time[i]))}: opens at {step:.3f} times the close before it: a split, "
        "a roll or a real move"
        for i, step in zip(jumps[:JUMPS_LISTED], ratio[:JUMPS_LISTED], strict=True)
    ]
    if len(jumps) > JUMPS_LISTED:
        notes.append(f"{len(jumps) - JUMPS_LISTED} more jumps like these")
    return notes
