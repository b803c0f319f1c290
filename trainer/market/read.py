"""`read_bars`: a file of OHLCV rows to checked bars."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from onegraph.trainer.market.adjust import scaled
from onegraph.trainer.market.bars import Bars, check_order, check_values
from onegraph.trainer.market.csvfile import read_csv
from onegraph.trainer.market.errors import fault
from onegraph.trainer.market.parquetfile import read_parquet
from onegraph.trainer.market.stamps import ends_from_starts, to_utc, usual_step

if TYPE_CHECKING:
    from os import PathLike

    from onegraph.trainer.market.rows import Rows

_PARQUET_MAGIC = b"PAR1"

#: Median step in days from which bars are daily even where their stamps have a time of day (a daily
#: bar stamped with its session's close).
DAILY_STEP = 0.8


def read_bars(
    path: str | PathLike[str],
    symbol: str | None = None,
    timezone: str = "UTC",
    bar_stamp: Literal["end", "start"] = "end",
    *,
    adjust: bool = True,
    bar_seconds: float | None = None,
) -> Bars:
    """Bars of one symbol from a CSV (plain or gzipped) or Parquet file.

    The columns are Date (or Datetime, Timestamp, Time), Open, High, Low, Close, Volume, and perhaps
    Adj Close and Ticker (or Symbol), in any order and case; others are left aside, an unnamed index
    column too. Rows may stand newest first. Nothing is filled in.

    Args:
        path: the file.
        symbol: which symbol to read; needed where the file holds several. Where it has no such
            column, the name to give the bars (default: the file's name).
        timezone: IANA name of the clock that stamps without an offset from UTC were read from.
        bar_stamp: which end of the bar a time of day marks. Dates are kept as midnight UTC of the
            date either way.
        adjust: scale prices by Adj Close / Close, and volume by the inverse, where the file has an
            Adj Close. Without one, prices stay as traded (`adjusted` says so) and jumps are noted.
        bar_seconds: length of a bar in seconds, for `bar_stamp="start"`; None: the smallest step.

    Returns:
        Bars, oldest first, stamped with their ends in UTC.

    Raises:
        MarketDataError: the file is missing, empty, malformed or wrong in a way that `Bars`
            refuses; the message names the file, the line and the value, and says what to do.
    """
    path = Path(path)
    if bar_stamp not in ("end", "start"):
        problem = f"{bar_stamp!r} is not known"
        raise fault(problem, "Use end or start.", "bar_stamp")
    rows = _rows(path, symbol, adjusted_close=adjust)
    if rows.utc and timezone != "UTC":
        problem = f"its time column is in GMT, the time zone given is {timezone}"
        raise fault(problem, "Leave the time zone at UTC.", rows.file)
    time, dates = to_utc(rows.stamps, timezone, rows.where)
    if len(time) > 1 and np.all(np.diff(time) < 0):
        time = time[::-1]
        rows = replace(
            rows,
            number=rows.number[::-1],
            stamps=rows.stamps[::-1],
            values={name: column[::-1] for name, column in rows.values.items()},
        )
    check_order(time, rows.where)
    values = rows.values
    prices = (values["open"], values["high"], values["low"], values["close"])
    check_values(*prices, values["volume"], rows.where)
    if bar_stamp == "start" and not dates:
        time = ends_from_starts(time, bar_seconds, rows.file)
    bars = Bars(
        rows.symbol or symbol or path.name.split(".")[0],
        time,
        *prices,
        values["volume"],
        intraday=not dates and usual_step(time) < DAILY_STEP,
    )
    if "adj_close" not in values:
        return bars
    adjusted = values["adj_close"]
    for i in np.flatnonzero(~(np.isfinite(adjusted) & (adjusted > 0)))[:1]:
        problem = f"the adjusted close is {float(adjusted[i])!r}, not a finite price above 0"
        raise fault(problem, "Correct it, or pass adjust=False.", rows.where(int(i)))
    return scaled(bars, adjusted / bars.close)


def _rows(path: Path, symbol: str | None, *, adjusted_close: bool) -> Rows:
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        problem = f"it cannot be opened ({error.strerror or error})"
        raise fault(problem, "Give the path of a CSV or Parquet file.", str(path)) from error
    if start == _PARQUET_MAGIC:
        return read_parquet(path, symbol, adjusted_close=adjusted_close)
    if path.suffix.lower() in (".parquet", ".pq"):
        problem = f"it is named like a Parquet file and starts with {start!r}, not b'PAR1'"
        raise fault(problem, "Write the file again, or name it .csv.", str(path))
    return read_csv(path, symbol, adjusted_close=adjusted_close)
