"""Ratio adjustment of prices: from an adjusted close, or from a table of splits and rolls."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from onegraph.trainer.market.bars import F64, Bars, stamp_text
from onegraph.trainer.market.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence


def adjust_by_table(bars: Bars, table: Sequence[tuple[str, float]]) -> Bars:
    """`bars` with every price before a split or roll scaled to the prices after it.

    Args:
        bars: unadjusted bars.
        table: rows of (first date after the split or roll, in ISO form and UTC, ratio). Prices
            before it are multiplied by the ratio and volumes divided by it: 0.5 for a 2-for-1
            split, new contract's price / old contract's price for a roll.

    Returns:
        New bars with `adjusted` set; jumps that remain are in their notes.

    Raises:
        MarketDataError: bars that are adjusted already, a date that is not one, repeats or has no
            bars before or after it, a ratio that is not finite and positive.
    """
    if bars.adjusted:
        remedy = "Read the bars with adjust=False to use a table."
        problem = "the bars are adjusted already"
        raise fault(problem, remedy, bars.symbol)
    ratio = np.ones(len(bars))
    seen: set[int] = set()
    for row, (date, step) in enumerate(table):
        where = f"{bars.symbol}, row {row} of the adjustment table"
        try:
            at = int(np.datetime64(date, "ns").astype(np.int64))
        except ValueError as error:
            remedy = "Write it as in 2005-02-28."
            problem = f"{date!r} is not a date"
            raise fault(problem, remedy, where) from error
        if at in seen:
            problem = f"{date!r} repeats"
            raise fault(problem, "Give one ratio for each date.", where)
        if not bars.time[0] < at <= bars.time[-1]:
            problem = (
                f"{date!r} is not within the bars, {stamp_text(int(bars.time[0]))} to "
                f"{stamp_text(int(bars.time[-1]))}"
            )
            raise fault(problem, "Leave the row out or read more bars.", where)
        if not (math.isfinite(step) and step > 0):
            problem = f"the ratio is {step!r}, not a finite number above 0"
            raise fault(problem, "Give 0.5 for a 2-for-1 split.", where)
        seen.add(at)
        ratio[bars.time < at] *= step
    return scaled(bars, ratio)


def scaled(bars: Bars, ratio: F64) -> Bars:
    """`bars` with prices times `ratio` [T] and volumes divided by it, marked as adjusted."""
    return replace(
        bars,
        open=bars.open * ratio,
        high=bars.high * ratio,
        low=bars.low * ratio,
        close=bars.close * ratio,
        volume=bars.volume / ratio,
        adjusted=True,
    )
