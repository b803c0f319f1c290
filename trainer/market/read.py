"""`read_bars`: a file of OHLCV rows to checked bars."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from onegraph.trainer.market.adjust import scaled
from onegraph.trainer.market.bars import (
    F64,
    LEAST_PRICE,
    MOST_PRICE,
    Bars,
    Source,
    check_order,
    check_values,
)
from onegraph.trainer.market.csvfile import read_csv
from onegraph.trainer.market.dbnfile import DBN_MAGIC, read_dbn
from onegraph.trainer.market.errors import fault
from onegraph.trainer.market.parquetfile import read_parquet
from onegraph.trainer.market.rows import KnownTimes, Rows
from onegraph.trainer.market.stamps import (
    DATE_ORDERS,
    DateOrder,
    ends_from_starts,
    to_utc,
    usual_step,
)
from onegraph.trainer.market.zstdframe import MAGIC as ZSTD_MAGIC

if TYPE_CHECKING:
    from os import PathLike

BarStamp = Literal["end", "start"]

_PARQUET_MAGIC = b"PAR1"
_ZIP_MAGIC = b"PK\x03\x04"

#: What a file's first bytes must be where its name ends like this.
_NAMED: Final = {
    ".parquet": ("Parquet", (_PARQUET_MAGIC,)),
    ".pq": ("Parquet", (_PARQUET_MAGIC,)),
    ".dbn": ("DBN", (DBN_MAGIC, ZSTD_MAGIC)),
    ".zst": ("zstd", (ZSTD_MAGIC,)),
}

#: Median step in days from which bars are daily even where their stamps have a time of day (a daily
#: bar stamped with its session's close).
DAILY_STEP = 0.8


def read_bars(
    path: str | PathLike[str],
    symbol: str | None = None,
    timezone: str = "UTC",
    bar_stamp: BarStamp = "end",
    *,
    adjust: bool = True,
    bar_seconds: float | None = None,
    date_order: DateOrder = "month-first",
) -> Bars:
    """Bars of one symbol from a CSV (plain or gzipped), Parquet or Databento (DBN) file.

    The columns of CSV and Parquet are Date (or Datetime, Timestamp, Time), Open, High, Low, Close,
    Volume, and perhaps Adj Close and Ticker (or Symbol), in any order and case; others are left
    aside, an unnamed index column too. Rows may stand newest first. Nothing is filled in.

    Args:
        path: the file; its format is told by its first bytes.
        symbol: which symbol to read; needed where the file holds several. Where it names none, the
            name to give the bars (default: the file's name).
        timezone: IANA name of the clock that stamps without an offset from UTC were read from.
        bar_stamp: which end of the bar a time of day marks. Dates are kept as midnight UTC of the
            date either way, and DBN says itself.
        adjust: scale prices by Adj Close / Close, and volume by the inverse, where the file has an
            Adj Close. Without one, prices stay as traded (`adjusted` says so) and jumps are noted.
        bar_seconds: length of a bar in seconds, for `bar_stamp="start"`; None: the smallest step.
        date_order: which number comes first in dates with slashes, month-first or day-first.

    Returns:
        Bars, oldest first, stamped with their ends in UTC.

    Raises:
        MarketDataError: the file is missing, empty, malformed or wrong in a way that `Bars`
            refuses; the message names the file, the line and the value, and says what to do.
    """
    path = Path(path)
    for name, value, choices in (
        ("bar_stamp", bar_stamp, ("end", "start")),
        ("date_order", date_order, DATE_ORDERS),
    ):
        if value not in choices:
            problem = f"{value!r} is not known"
            raise fault(problem, f"Use {' or '.join(choices)}.", name)
    rows = _rows(path, symbol, adjusted_close=adjust, date_order=date_order)
    if rows.utc and timezone != "UTC":
        problem = f"its times are in UTC (GMT), the time zone given is {timezone}"
        raise fault(problem, "Leave the time zone at UTC.", rows.file)
    if isinstance(rows.stamps, KnownTimes):
        time, dates = rows.stamps.utc, rows.stamps.length == 0
        bar_stamp, bar_seconds = "start", _known_seconds(rows.stamps, bar_seconds, rows.file)
    else:
        time, dates = to_utc(rows.stamps, timezone, rows.where)
    newest_first = len(time) > 1 and bool(np.all(time[1:] < time[:-1]))
    if newest_first:
        time = time[::-1]
        rows = replace(
            rows,
            number=rows.number[::-1],
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
        source=Source(
            rows.file,
            rows.layout,
            rows.symbols,
            dates,
            rows.adjusted_close,
            newest_first,
            rows.remarks,
        ),
    )
    return _by_adjusted_close(bars, values["adj_close"], rows) if "adj_close" in values else bars


def _by_adjusted_close(bars: Bars, adjusted: F64, rows: Rows) -> Bars:
    usable = (adjusted >= LEAST_PRICE) & (adjusted <= MOST_PRICE)  # NaN is neither
    for i in np.flatnonzero(~usable)[:1]:
        problem = f"the adjusted close is {float(adjusted[i])!r}, not a finite price above 0"
        raise fault(
            problem,
            "Correct it, or pass adjust=False (env.market.adjust = false).",
            rows.where(int(i)),
        )
    with np.errstate(over="ignore", under="ignore"):
        return scaled(bars, adjusted / bars.close)


def _known_seconds(known: KnownTimes, given: float | None, file: str) -> float | None:
    """The length of a bar that the file states; one given must be the same."""
    seconds = known.length / 1e9
    if given is not None and given != (seconds or 86_400.0):
        problem = f"its bars are {seconds or 86_400.0:g} s long, bar_seconds is {given!r}"
        raise fault(problem, "Leave bar_seconds out: the file says how long its bars are.", file)
    return seconds or None


def _rows(path: Path, symbol: str | None, *, adjusted_close: bool, date_order: DateOrder) -> Rows:
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        problem = f"it cannot be opened ({error.strerror or error})"
        raise fault(problem, "Give the path of a CSV, Parquet or DBN file.", str(path)) from error
    kind, magics = _NAMED.get(path.suffix.lower(), ("", (b"",)))
    if not start.startswith(magics):
        problem = f"it is named like a {kind} file and starts with {start!r}"
        raise fault(problem, "Write the file again, or name it for what it is.", str(path))
    if start == _PARQUET_MAGIC:
        return read_parquet(path, symbol, adjusted_close=adjusted_close, date_order=date_order)
    if start.startswith((DBN_MAGIC, ZSTD_MAGIC)):
        return read_dbn(path, symbol)
    if start == _ZIP_MAGIC:
        problem = "it is a zip archive, or a workbook"
        raise fault(problem, "Unpack it, or export it as CSV.", str(path))
    return read_csv(path, symbol, adjusted_close=adjusted_close, date_order=date_order)
