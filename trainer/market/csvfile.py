"""OHLCV rows of a CSV file, plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from onegraph.trainer.market.errors import MarketDataError, fault, shown
from onegraph.trainer.market.rows import (
    PRICES,
    Rows,
    choose_symbol,
    is_utc_name,
    match_columns,
    place,
)
from onegraph.trainer.market.stamps import DateOrder, order_remarks, parse_stamp

if TYPE_CHECKING:
    from pathlib import Path

_GZIP_MAGIC = b"\x1f\x8b"


def read_csv(
    path: Path, symbol: str | None, *, adjusted_close: bool, date_order: DateOrder
) -> Rows:
    """One symbol's rows of the CSV at `path`.

    Args:
        path: CSV, or gzipped CSV (told by its first bytes), in UTF-8; separated by `,` or `;`,
            whichever the header has more of.
        symbol: the symbol wanted; None where the file holds one.
        adjusted_close: read that column too, where present.
        date_order: which number of a date with slashes comes first.

    Raises:
        MarketDataError: a file or row that cannot be read; it names the line and the value.
    """
    file = str(path)
    text, packed = open_text(path)
    header_line = text.readline()
    if not header_line.strip():
        problem = "the file is empty or starts with an empty line"
        raise fault(problem, _REMEDY, file)
    separator = ";" if header_line.count(";") > header_line.count(",") else ","
    reader = csv.reader(chain([header_line], text), delimiter=separator, strict=True)
    try:
        header = next(reader)
        columns = match_columns(header, place(file, "line", 1))
        rows: list[tuple[int, list[str]]] = []
        for fields in reader:
            if len(fields) < 2 and not "".join(fields).strip():
                continue
            if len(fields) != len(header):
                row = shown(separator.join(fields))
                problem = f"{len(fields)} fields, the header has {len(header)}: {row}"
                remedy = "Give every row a field for each column, and numbers no thousands commas."
                raise fault(problem, remedy, place(file, "line", reader.line_num))
            rows.append((reader.line_num, fields))
    except csv.Error as error:
        where = place(file, "line", reader.line_num)
        problem = f"not CSV: {error}"
        raise fault(problem, _REMEDY, where) from error
    if not rows:
        problem = "it has a header and no rows"
        raise fault(problem, _REMEDY, file)
    chosen, held = None, set[str]()
    if "symbol" in columns:
        at = columns["symbol"]
        for line, fields in rows:
            if not fields[at].strip():
                problem = f"the {header[at].strip()} is empty"
                raise fault(problem, "Name the symbol in every row.", place(file, "line", line))
        held = {fields[at].strip() for _, fields in rows}
        chosen = choose_symbol(held, symbol, file)
        rows = [row for row in rows if row[1][at].strip() == chosen]
    wanted = [*PRICES, *(["adj_close"] if adjusted_close and "adj_close" in columns else [])]
    values = {name: np.empty(len(rows)) for name in wanted}
    stamps = []
    clock = columns["time"]
    for i, (line, fields) in enumerate(rows):
        where = place(file, "line", line)
        stamps.append(parse_stamp(fields[clock], where, date_order))
        for name in wanted:
            values[name][i] = number(fields[columns[name]], header[columns[name]], where)
    return Rows(
        file=file,
        layout=f"CSV separated by {separator}{', gzipped' if packed else ''}",
        unit="line",
        number=[line for line, _ in rows],
        symbol=chosen,
        symbols=tuple(sorted(held)),
        stamps=stamps,
        utc=is_utc_name(header[clock]),
        values=values,
        adjusted_close="adj_close" in columns,
        remarks=order_remarks([fields[clock] for _, fields in rows], date_order),
    )


_REMEDY = "Give a CSV with a header such as Date,Open,High,Low,Close,Volume and one bar a line."


def open_text(path: Path) -> tuple[io.StringIO, bool]:
    """The text of a file, and whether it was gzipped.

    Raises:
        MarketDataError: it is not UTF-8, or its gzip data are broken.
    """
    try:
        raw = path.read_bytes()
        packed = raw.startswith(_GZIP_MAGIC)
        if packed:
            raw = gzip.decompress(raw)
        return io.StringIO(raw.decode("utf-8-sig"), newline=""), packed
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} ({error.object[error.start]:#04x}) is not UTF-8"
        raise fault(problem, "Save the file as UTF-8.", str(path)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the gzip data are broken: {error}"
        raise fault(problem, "Fetch or compress the file again.", str(path)) from error


def number(text: str, column: str, where: str) -> float:
    """The number that `text` writes; `MarketDataError` where it writes none."""
    # float() takes underscores between digits, which no market file means.
    if "_" not in text:
        try:
            return float(text)
        except ValueError:
            pass
    raise _not_a_number(text, column, where)


def _not_a_number(text: str, column: str, where: str) -> MarketDataError:
    problem = f"{column.strip()} is {shown(text)}, not a number"
    remedy = (
        "Write numbers with a decimal point and no thousands marks; leave bars without one out."
    )
    return fault(problem, remedy, where)
