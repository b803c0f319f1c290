"""OHLCV records of a Databento file (DBN, plain or zstd).

databento-dbn is an extra, so it is imported when asked for. What the format means is in its
publisher's documentation ("Databento Binary Encoding", and the OHLCV schemas): prices are int64 in
units of 1e-9, 2^63 - 1 stands for none; `ts_event` is the start of the bar; a bar in which nothing
traded is absent; a continuous symbol is one contract after another, their prices as they were.
"""

from __future__ import annotations

from datetime import date
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onegraph.trainer.market.bars import DAY_NS, I64, stamp_text
from onegraph.trainer.market.errors import fault
from onegraph.trainer.market.rows import PRICES, KnownTimes, Rows, choose_symbol, place
from onegraph.trainer.market.zstdframe import MAGIC as ZSTD_MAGIC
from onegraph.trainer.market.zstdframe import ends_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

DBN_MAGIC: Final = b"DBN"

#: Length of a bar by schema, in ns; 0 marks dates.
SCHEMAS: Final[dict[str, int]] = {
    "ohlcv-1s": 1_000_000_000,
    "ohlcv-1m": 60_000_000_000,
    "ohlcv-1h": 3_600_000_000_000,
    "ohlcv-1d": 0,
}

#: What 1 is, in the file's units of price.
PRICE_UNITS: Final = 1_000_000_000

#: Stands for a price that there is none of.
UNDEFINED_PRICE: Final = 2**63 - 1

#: Rolls listed one by one; more are counted.
ROLLS_LISTED: Final = 8

_RECORD: Final = np.dtype(
    [
        ("instrument", "i8"),
        ("start", "u8"),
        *((name, "i8") for name in PRICES[:4]),
        ("volume", "u8"),
    ]
)

#: Bytes that are decoded at a time.
_PIECE: Final = 2**20

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_REMEDY = "Download the file again, as historical bars of ohlcv-1s, 1m, 1h or 1d."


def read_dbn(path: Path, symbol: str | None) -> Rows:
    """One symbol's records of the DBN file at `path`; its times are known, nothing is declared.

    Args:
        path: the file, plain or zstd.
        symbol: the symbol wanted, as it was asked of Databento (``ES.c.0``); None where the file
            holds one. Records whose instrument the file maps to no symbol go by its number.

    Raises:
        MarketDataError: databento-dbn is absent, a file that is cut off or no DBN, another schema
            than OHLCV of a second, minute, hour or day, a price that is undefined; it names the
            record, counted over all symbols from 1.
    """
    file = str(path)
    metadata, records, packed = _decode(path, file)
    schema = None if metadata.schema is None else str(metadata.schema)
    if schema not in SCHEMAS:
        problem = f"its schema is {schema or 'not stated (a live capture)'}"
        raise fault(problem, _REMEDY, file)
    if not len(records):
        problem = "it holds no records"
        raise fault(problem, "Ask for a range in which the market was open.", file)
    for i in np.flatnonzero(records["start"] >= UNDEFINED_PRICE)[:1]:
        problem = f"ts_event is {records['start'][i]}, which is undefined or later than 2262"
        raise fault(problem, _REMEDY, place(file, "record", int(i) + 1))
    names, which = _symbols(metadata.mappings, records)
    chosen = choose_symbol(names, symbol, file)
    mine = np.flatnonzero(np.array([name == chosen for name in names])[which])
    records = records[mine]
    for name in PRICES[:4]:
        for i in np.flatnonzero(records[name] == UNDEFINED_PRICE)[:1]:
            problem = f"{name} is undefined (2^63 - 1)"
            remedy = "Leave the record out; nothing is filled in."
            raise fault(problem, remedy, place(file, "record", int(mine[i]) + 1))
    values = {name: records[name].astype(np.float64) / PRICE_UNITS for name in PRICES[:4]}
    values["volume"] = records["volume"].astype(np.float64)
    start = records["start"].astype(np.int64)
    return Rows(
        file=file,
        layout=f"Databento DBN, {schema}{', zstd' if packed else ''}",
        unit="record",
        number=(mine + 1).tolist(),
        symbol=chosen,
        symbols=tuple(sorted(set(names))),
        stamps=KnownTimes(start, SCHEMAS[schema]),
        utc=True,
        values=values,
        remarks=_rolls(chosen, records["instrument"], start, values),
    )


def _decode(path: Path, file: str) -> tuple[Any, NDArray[np.void], bool]:
    """The metadata, the records (`_RECORD`), and whether the file was compressed."""
    try:
        dbn = import_module("databento_dbn")
    except ImportError as error:
        remedy = "Install it with: pip install 'onegraph[dbn]', or export the file as CSV."
        problem = "reading DBN needs databento-dbn"
        raise fault(problem, remedy, file) from error
    data = path.read_bytes()
    packed = data.startswith(ZSTD_MAGIC)
    if packed and not ends_whole(data):
        problem = "its zstd data are cut off or broken"
        raise fault(problem, "Download the file again.", file)
    decoder = dbn.DBNDecoder(compression=dbn.Compression.ZSTD if packed else dbn.Compression.NONE)
    metadata, count = None, 0
    parts = [np.empty(0, _RECORD)]
    # In pieces: a record is a large object until it is a row.
    for at in range(0, len(data), _PIECE):
        try:
            decoder.write(data[at : at + _PIECE])
            decoded = decoder.decode()
        except BaseException as error:
            # Some broken files make the decoder panic, which is no Exception.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            problem = f"not DBN that can be read: {error}"
            raise fault(problem, _REMEDY, file) from error
        if metadata is None and decoded:
            metadata = decoded.pop(0)
        for i, record in enumerate(decoded):
            if not isinstance(record, dbn.OHLCVMsg):
                problem = f"a {type(record).__name__} stands among the bars"
                raise fault(problem, _REMEDY, place(file, "record", count + i + 1))
        parts.append(np.array([_row(record) for record in decoded], _RECORD))
        count += len(decoded)
    if not hasattr(metadata, "mappings"):
        problem = "it ends before its metadata do, or is no DBN"
        raise fault(problem, "Download the file again.", file)
    if rest := len(decoder.buffer()):
        problem = f"it is cut off: {rest} bytes follow, less than a record"
        raise fault(problem, "Download the file again.", place(file, "record", count))
    return metadata, np.concatenate(parts), packed


def _row(record: Any) -> tuple[int, ...]:
    prices = (record.open, record.high, record.low, record.close)
    return (record.instrument_id, record.ts_event, *prices, record.volume)


def _symbols(
    mappings: Mapping[str, Sequence[Mapping[str, Any]]], records: NDArray[np.void]
) -> tuple[list[str], I64]:
    """Symbols, some perhaps twice, and for each record the index of its own.

    A record's symbol depends on its instrument and its date.
    """
    known: dict[int, list[tuple[int, int, str]]] = {}
    for asked, intervals in mappings.items():
        for interval in intervals:
            # Either side of the mapping may be the instrument's number; an empty one maps to none.
            given = str(interval["symbol"])
            number, name = (given, asked) if given.isdigit() else (asked, given)
            if not number.isdigit() or not name:
                continue
            first, end = interval["start_date"], interval["end_date"]
            known.setdefault(int(number), []).append(
                (first.toordinal() - _EPOCH_DAY, end.toordinal() - _EPOCH_DAY, name)
            )
    days = (records["start"] // np.uint64(DAY_NS)).astype(np.int64)
    pairs, which = np.unique(
        np.stack([records["instrument"], days], axis=1), axis=0, return_inverse=True
    )
    names = []
    for number, day in pairs.tolist():
        found = (name for first, end, name in known.get(number, ()) if first <= day < end)
        names.append(next(found, str(number)))
    return names, which.reshape(-1)


def _rolls(symbol: str, instrument: I64, start: I64, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Remarks on where one contract follows another under the same symbol."""
    at = np.flatnonzero(np.diff(instrument)) + 1
    # Prices are checked later; one that is not above 0 ends there.
    with np.errstate(all="ignore"):
        ratio = values["open"][at] / values["close"][at - 1]
    remarks = [
        f"{stamp_text(int(start[i]))}: {symbol} rolls from instrument {instrument[i - 1]} to "
        f"{instrument[i]}; as traded it opens at {step:.6g} times the close before it"
        for i, step in zip(at[:ROLLS_LISTED].tolist(), ratio.tolist(), strict=False)
    ]
    if len(at) > ROLLS_LISTED:
        remarks.append(f"{len(at) - ROLLS_LISTED} more rolls like these")
    return tuple(remarks)
