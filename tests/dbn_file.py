"""Small Databento files for tests, written with the package that reads them."""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import dataclass

RTYPES = {"ohlcv-1s": 32, "ohlcv-1m": 33, "ohlcv-1h": 34, "ohlcv-1d": 35, "ohlcv-eod": 36}
UNDEFINED = 2**63 - 1


@dataclass
class Interval:
    start_date: dt.date
    end_date: dt.date
    symbol: str


@dataclass
class Mapping:
    raw_symbol: str
    intervals: list[Interval]


def ns(text):
    """Nanoseconds since 1970 of an ISO time in UTC."""
    return round(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()) * 10**9


def record(dbn, schema, instrument, start, prices, volume=1, units=10**9):
    """One bar; `prices` are open, high, low, close, in numbers or, as int, in units of 1e-9."""
    fixed = [p if isinstance(p, int) else round(p * units) for p in prices]
    return bytes(dbn.OHLCVMsg(RTYPES[schema], 1, instrument, ns(start), *fixed, volume))


def header(dbn, schema, mappings, *, live=False, by_number=False, version=None):
    """Metadata that map (symbol, first day, day after the last, instrument)."""
    symbols = {}
    for symbol, first, end, instrument in mappings:
        days = (dt.date.fromisoformat(first), dt.date.fromisoformat(end))
        asked, given = (str(instrument), symbol) if by_number else (symbol, str(instrument))
        symbols.setdefault(asked, []).append(Interval(*days, given))
    number, raw = dbn.SType.INSTRUMENT_ID, dbn.SType.CONTINUOUS
    metadata = dbn.Metadata(
        dataset="GLBX.MDP3",
        start=ns("2024-01-01"),
        stype_in=number if by_number else raw,
        stype_out=dbn.SType.RAW_SYMBOL if by_number else number,
        schema=None if live else getattr(dbn.Schema, schema.upper().replace("-", "_")),
        symbols=sorted(symbols),
        mappings=[Mapping(name, intervals) for name, intervals in symbols.items()],
        **({} if version is None else {"version": version}),
    )
    return bytes(metadata)


def packed(dbn, data):
    """`data` as zstd."""
    target = io.BytesIO()
    writer = dbn.Transcoder(target, dbn.Encoding.DBN, dbn.Compression.ZSTD)
    writer.write(data)
    writer.flush()
    del writer  # ends the frame
    return target.getvalue()
