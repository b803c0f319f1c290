"""Ratio adjustment of prices: from an adjusted close, or from a table of splits and rolls."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onegraph.trainer.market.bars import F64, Bars, stamp_text
from onegraph.trainer.market.csvfile import number, open_text
from onegraph.trainer.market.errors import fault, shown
from onegraph.trainer.market.rows import place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

#: Of one split or roll.
LEAST_RATIO = 1e-9
MOST_RATIO = 1e9

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REMEDY = "Give a CSV with the header date,ratio and a row such as 2005-02-28,0.5 for each."


@dataclass(frozen=True)
class AdjustmentTable:
    """Splits and rolls.

    Attributes:
        rows: (first date after it, in ISO form and UTC, ratio). Prices before it are multiplied by
            the ratio and volumes divided by it: 0.5 for a 2-for-1 split, new contract's price /
            old contract's price for a roll.
        where: the place of each row, for errors.
    """

    rows: tuple[tuple[str, float], ...]
    where: tuple[str, ...]


def read_adjustments(path: str | PathLike[str]) -> AdjustmentTable:
    """The table in a CSV file with the columns date and ratio.

    Raises:
        MarketDataError: a file or row that cannot be read; it names the line and the value.
    """
    file = str(path)
    try:
        text, _ = open_text(Path(path))
    except OSError as error:
        problem = f"the adjustments cannot be opened ({error.strerror or error})"
        raise fault(problem, _REMEDY, file) from error
    rows: list[tuple[str, float]] = []
    where: list[str] = []
    reader = csv.reader(text, strict=True)
    try:
        for fields in reader:
            at = place(file, "line", reader.line_num)
            if not "".join(fields).strip():
                continue
            if len(fields) != 2:
                problem = f"{shown(','.join(fields))} is not a date and a ratio"
                raise fault(problem, _REMEDY, at)
            date, ratio = (field.strip() for field in fields)
            if not rows and (date.lower(), ratio.lower()) == ("date", "ratio"):
                continue
            rows.append((date, number(ratio, "the ratio", at)))
            where.append(at)
    except csv.Error as error:
        raise fault(f"not CSV: {error}", _REMEDY, place(file, "line", reader.line_num)) from error
    if not rows:
        problem = "it holds no adjustments"
        raise fault(problem, _REMEDY, file)
    return AdjustmentTable(tuple(rows), tuple(where))


def adjust_by_table(bars: Bars, table: Sequence[tuple[str, float]] | AdjustmentTable) -> Bars:
    """`bars` with every price before a split or roll scaled to the prices after it.

    Args:
        bars: unadjusted bars.
        table: the splits and rolls, or the rows of an `AdjustmentTable`; in any order.

    Returns:
        New bars with `adjusted` set; jumps that remain are in their notes.

    Raises:
        MarketDataError: bars that are adjusted already, a date that is not one, repeats or has no
            bars before or after it, a ratio that is not finite and positive.
    """
    if bars.adjusted:
        remedy = "Read them with adjust=False (env.market.adjust = false) to use a table."
        problem = "the bars are adjusted already, by an adjusted close"
        raise fault(problem, remedy, bars.symbol)
    if not isinstance(table, AdjustmentTable):
        places = (f"{bars.symbol}, row {row} of the adjustment table" for row in range(len(table)))
        table = AdjustmentTable(tuple(table), tuple(places))
    ratio = np.ones(len(bars))
    seen: dict[int, str] = {}
    for (date, step), where in zip(table.rows, table.where, strict=True):
        at = _date_ns(date, where)
        if at in seen:
            problem = f"{date!r} repeats that of {seen[at]}"
            raise fault(problem, "Give one ratio for each date.", where)
        if not bars.time[0] < at <= bars.time[-1]:
            problem = (
                f"{date!r} is not within the bars, {stamp_text(int(bars.time[0]))} to "
                f"{stamp_text(int(bars.time[-1]))}"
            )
            raise fault(problem, "Leave the row out or read more bars.", where)
        if not LEAST_RATIO <= step <= MOST_RATIO:
            problem = f"the ratio is {step!r}, not a number above 0 (from 1e-9 to 1e9)"
            raise fault(problem, "Give 0.5 for a 2-for-1 split.", where)
        seen[at] = where
        ratio[bars.time < at] *= step
    return scaled(bars, ratio)


def _date_ns(date: str, where: str) -> int:
    try:
        stamp = datetime.fromisoformat(date)
    except ValueError as error:
        problem = f"{shown(date)} is not a date"
        raise fault(problem, "Write it as in 2005-02-28.", where) from error
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=UTC)
    return (stamp - _EPOCH) // timedelta(microseconds=1) * 1000


def scaled(bars: Bars, ratio: F64) -> Bars:
    """`bars` with prices times `ratio` [T] and volumes divided by it, marked as adjusted.

    Raises:
        MarketDataError: a price or volume that this makes too large or too small.
    """
    # What leaves float64 is found by the new bars' own checks.
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        changed = {name: getattr(bars, name) * ratio for name in ("open", "high", "low", "close")}
        changed["volume"] = bars.volume / ratio
    return replace(bars, **changed, adjusted=True)
