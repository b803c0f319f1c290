"""Training, validation and test windows: once, or walking forward by months.

A window is a half-open range of bar indices. Purge and embargo follow M. Lopez de Prado, "Advances
in Financial Machine Learning" (2018), section 7.4, for windows that only ever lie forward in time.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from onegraph.trainer.market.bars import I64, stamp_text
from onegraph.trainer.market.errors import MarketDataError, fault

#: A window's extent: a share of the bars, or a half-open range (first date, date after the last) of
#: ISO dates or datetimes in UTC.
Extent = float | tuple[str, str]

_NAMES: Final = ("train", "validation", "test")


@dataclass(frozen=True)
class Windows:
    """Three half-open ranges of bar indices, in order and apart: `slice(start, stop)`."""

    train: slice
    validation: slice
    test: slice

    def describe(self, time: I64) -> str:
        """One line with each window's first and last bar, by `time` (int64 [T], ns UTC)."""
        parts = []
        for name in _NAMES:
            window: slice = getattr(self, name)
            first, last = int(time[window.start]), int(time[window.stop - 1])
            count = window.stop - window.start
            parts.append(f"{name} {stamp_text(first)} to {stamp_text(last)} ({count} bars)")
        return ", ".join(parts)


def split(
    time: I64,
    train: Extent = 0.6,
    validation: Extent = 0.2,
    test: Extent = 0.2,
    *,
    purge: int = 0,
    embargo: int = 0,
    first_valid: int = 0,
) -> Windows:
    """One set of windows.

    Args:
        time: int64 [T], bar ends in ns since 1970 UTC, increasing.
        train: share of the bars from `first_valid` on, or dates; all three alike.
        validation: as `train`.
        test: as `train`; shares sum to 1 at most, what is left over at the end is not used.
        purge: a sample's horizon in bars: bar t is kept only if bar t + purge is still before the
            next window's first bar.
        embargo: bars left out after a window's end (as given, before purging).
        first_valid: bars before it are not used (`Features.first_valid`).

    Returns:
        Windows over the indices of `time`.

    Raises:
        MarketDataError: an empty window (named, with its range), shares that are no shares, dates
            that are none or overlap, shares mixed with dates, a negative purge or embargo.
    """
    _check_arguments(time, purge, embargo, first_valid)
    extents = (train, validation, test)
    ranges: list[tuple[int, int]] = []
    labels: list[str] = []
    if all(isinstance(extent, tuple) for extent in extents):
        previous = None
        for name, extent in zip(_NAMES, extents, strict=True):
            assert isinstance(extent, tuple)
            start, end = (_date_ns(text, name) for text in extent)
            labels.append(f"[{extent[0]}, {extent[1]})")
            if end <= start:
                problem = f"the range {labels[-1]} ends before it starts"
                raise fault(
                    problem, "Give its first date, then the one after it.", f"{name} window"
                )
            if previous is not None and start < previous:
                problem = f"the range {labels[-1]} starts within the window before it"
                raise fault(problem, "Start it where that one ends, or later.", f"{name} window")
            previous = end
            ranges.append(_indices(time, start, end, first_valid))
    elif not any(isinstance(extent, tuple) for extent in extents):
        bars = len(time) - first_valid
        edges = [first_valid]
        shares: list[float] = []
        for name, extent in zip(_NAMES, extents, strict=True):
            share = float(extent)  # type: ignore[arg-type]
            if not 0 < share <= 1:
                remedy = "Give a share of the bars, above 0 and at most 1."
                problem = f"the share is {share!r}"
                raise fault(problem, remedy, f"{name} window")
            shares.append(share)
            # The tolerance lets shares such as .7, .2 and .1 sum to 1.
            if math.fsum(shares) > 1 + 1e-9:
                problem = f"the shares {shares} sum to more than 1"
                raise fault(problem, "Make them smaller.", f"{name} window")
            edges.append(first_valid + min(round(bars * math.fsum(shares)), bars))
            labels.append(f"a share of {share} of {bars} bars")
        ranges = list(itertools.pairwise(edges))
    else:
        remedy = "Give three shares or three pairs of dates."
        problem = f"shares and dates are mixed: {extents}"
        raise fault(problem, remedy, "windows")
    return _separate(ranges, labels, purge, embargo)


def walk_forward_months(
    time: I64,
    train_months: int,
    val_months: int,
    test_months: int,
    step_months: int,
    *,
    first_valid: int = 0,
) -> list[tuple[dt.date, dt.date, dt.date, dt.date]]:
    """The months of `walk_forward`'s windows, without looking at what they hold.

    Args:
        time: as for `walk_forward`, and so are the others.
        train_months: length of the training windows.
        val_months: length of the validation windows.
        test_months: length of the test windows.
        step_months: from one set of windows to the next.
        first_valid: as for `split`.

    Returns:
        For each set of windows the first days (UTC) of training, of validation, of the test, and
        of what follows the test.

    Raises:
        MarketDataError: a length that is not above 0, too few months for one set of windows.
    """
    _check_arguments(time, 0, 0, first_valid)
    lengths = (train_months, val_months, test_months)
    for name, months in zip(
        ("train_months", "val_months", "test_months", "step_months"),
        (*lengths, step_months),
        strict=True,
    ):
        if months < 1:
            problem = f"{months!r} months"
            raise fault(problem, "Use 1 or more.", name)
    month = _months(time)
    begin, end = int(month[first_valid]), int(month[-1]) + 1
    if begin + sum(lengths) > end:
        problem = (
            f"{sum(lengths)} months are asked for, {np.datetime64(begin, 'M')} to "
            f"{np.datetime64(end - 1, 'M')} are {end - begin}"
        )
        raise fault(problem, "Shorten the windows or give more bars.", "walk-forward")
    found = []
    for first in range(begin, end - sum(lengths) + 1, step_months):
        edges = [first + sum(lengths[:i]) for i in range(4)]
        days = [np.datetime64(edge, "M").astype("datetime64[D]").item() for edge in edges]
        found.append((days[0], days[1], days[2], days[3]))
    return found


def walk_forward(
    time: I64,
    train_months: int,
    val_months: int,
    test_months: int,
    step_months: int,
    *,
    purge: int = 0,
    embargo: int = 0,
    first_valid: int = 0,
) -> list[Windows]:
    """Windows that walk forward: each starts `step_months` after the one before it.

    The first training window starts with the calendar month (UTC) of bar `first_valid`, the last
    test window ends with the month of the last bar at the latest; both of those months may be
    partial. Every range is half-open: a bar at midnight of the 1st belongs to the new month.

    Args:
        time: int64 [T], bar ends in ns since 1970 UTC, increasing.
        train_months: length of the training windows.
        val_months: length of the validation windows, which follow.
        test_months: length of the test windows, which follow those.
        step_months: from one set of windows to the next; `test_months` tiles the tests without
            overlap.
        purge: as for `split`.
        embargo: as for `split`.
        first_valid: as for `split`.

    Raises:
        MarketDataError: a length that is not above 0, too few months for one set of windows, an
            empty window (named, with its range), a negative purge or embargo.
    """
    _check_arguments(time, purge, embargo, first_valid)
    found = []
    for days in walk_forward_months(
        time, train_months, val_months, test_months, step_months, first_valid=first_valid
    ):
        at = [int(np.datetime64(day, "ns").astype(np.int64)) for day in days]
        ranges = [_indices(time, at[i], at[i + 1], first_valid) for i in range(3)]
        labels = [f"[{days[i]:%Y-%m}, {days[i + 1]:%Y-%m})" for i in range(3)]
        found.append(_separate(ranges, labels, purge, embargo))
    return found


def _separate(
    ranges: list[tuple[int, int]], labels: list[str], purge: int, embargo: int
) -> Windows:
    starts = [ranges[0][0]] + [
        max(start, previous_stop + embargo)
        for (start, _), (_, previous_stop) in zip(ranges[1:], ranges[:-1], strict=True)
    ]
    stops = [
        min(stop, following - purge)
        for (_, stop), following in zip(ranges[:-1], starts[1:], strict=True)
    ] + [ranges[-1][1]]
    windows = []
    for name, start, stop, (given_start, given_stop), label in zip(
        _NAMES, starts, stops, ranges, labels, strict=True
    ):
        if start >= stop:
            raise _empty(name, label, given_stop - given_start, purge, embargo)
        windows.append(slice(start, stop))
    return Windows(*windows)


def _empty(name: str, label: str, bars: int, purge: int, embargo: int) -> MarketDataError:
    if bars <= 0:
        problem = f"{label} holds no bars"
        return fault(problem, "Move or lengthen it, or give more bars.", f"{name} window")
    problem = f"{label} holds {bars} bars, and purge {purge} and embargo {embargo} leave none"
    return fault(problem, "Lengthen it, or lower purge or embargo.", f"{name} window")


def _check_arguments(time: I64, purge: int, embargo: int, first_valid: int) -> None:
    for name, value in (("purge", purge), ("embargo", embargo)):
        if value < 0:
            problem = f"{value!r} bars"
            raise fault(problem, "Use 0 or more.", name)
    if not 0 <= first_valid < len(time):
        problem = f"first_valid is {first_valid}, there are {len(time)} bars"
        raise fault(problem, "Give more bars.", "windows")


def _date_ns(text: str, name: str) -> int:
    try:
        stamp = np.datetime64(text, "ns")
    except ValueError as error:
        problem = f"{text!r} is not a date"
        raise fault(problem, "Write it as in 2005-02-28.", f"{name} window") from error
    return int(stamp.astype(np.int64))


def _indices(time: I64, start: int, end: int, first_valid: int) -> tuple[int, int]:
    low, high = (int(np.searchsorted(time, edge, side="left")) for edge in (start, end))
    return max(low, first_valid), max(high, first_valid)


def _months(time: I64) -> I64:
    months = time.astype("datetime64[ns]").astype("datetime64[M]")
    return months.astype(np.int64)
