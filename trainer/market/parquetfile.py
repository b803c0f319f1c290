"""OHLCV rows of a Parquet file. pyarrow is an extra, so it is imported when asked for."""

from __future__ import annotations

from datetime import date, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from onegraph.trainer.market.errors import fault
from onegraph.trainer.market.rows import (
    PRICES,
    Rows,
    choose_symbol,
    is_utc_name,
    match_columns,
    place,
)
from onegraph.trainer.market.stamps import DateOrder, Stamp, order_remarks, parse_stamp

if TYPE_CHECKING:
    from pathlib import Path


def read_parquet(
    path: Path, symbol: str | None, *, adjusted_close: bool, date_order: DateOrder
) -> Rows:
    """One symbol's rows of the Parquet file at `path`; arguments and errors as for `read_csv`.

    The time column holds dates, timestamps (with or without a time zone) or text.
    """
    file = str(path)
    try:
        arrow = import_module("pyarrow")
        parquet = import_module("pyarrow.parquet")
        types = import_module("pyarrow.types")
    except ImportError as error:
        remedy = "Install it with: pip install 'onegraph[parquet]', or export the file as CSV."
        problem = "reading Parquet needs pyarrow"
        raise fault(problem, remedy, file) from error
    try:
        # Opened as a file: the folder names of a path are no columns.
        table = parquet.ParquetFile(file).read()
    except (arrow.ArrowException, OSError) as error:
        problem = f"not a Parquet file that can be read: {error}"
        raise fault(problem, "Write the file again.", file) from error
    header = [str(name) for name in table.column_names]
    columns = match_columns(header, file)
    if table.num_rows == 0:
        problem = "it has columns and no rows"
        raise fault(problem, "Write one bar a row.", file)
    number = list(range(1, table.num_rows + 1))
    chosen, held = None, set[str]()
    if "symbol" in columns:
        names = [str(name) for name in _values(table, columns["symbol"], file)]
        held = set(names)
        chosen = choose_symbol(held, symbol, file)
        number = [row for row, name in zip(number, names, strict=True) if name == chosen]
        table = table.take(arrow.array([row - 1 for row in number]))
    values = {}
    for name in PRICES + (("adj_close",) if adjusted_close and "adj_close" in columns else ()):
        kind = table.schema.field(columns[name]).type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
            problem = f"column {header[columns[name]]} holds {kind}, not numbers"
            raise fault(problem, "Write prices and volumes as float64.", file)
        cells = _values(table, columns[name], file, number)
        values[name] = np.array([float(cell) for cell in cells], dtype=np.float64)
    stamps, remarks = _stamps(table, columns["time"], file, number, arrow, date_order)
    return Rows(
        file=file,
        layout="Parquet",
        unit="row",
        number=number,
        symbol=chosen,
        symbols=tuple(sorted(held)),
        stamps=stamps,
        utc=is_utc_name(header[columns["time"]]),
        values=values,
        adjusted_close="adj_close" in columns,
        remarks=remarks,
    )


def _values(table: Any, column: int, file: str, number: list[int] | None = None) -> list[Any]:
    try:
        cells: list[Any] = table.column(column).to_pylist()
    except (OverflowError, ValueError) as error:
        problem = f"column {table.column_names[column]} holds a value that cannot be read: {error}"
        raise fault(problem, "Keep times to the years 1678 to 2261.", file) from error
    for i, cell in enumerate(cells):
        if cell is None:
            where = place(file, "row", number[i] if number else i + 1)
            problem = f"column {table.column_names[column]} is null"
            raise fault(problem, "Leave the bar out; nothing is filled in.", where)
    return cells


def _stamps(
    table: Any, column: int, file: str, number: list[int], arrow: Any, date_order: DateOrder
) -> tuple[list[Stamp], tuple[str, ...]]:
    """The stamps of a column, and remarks on how its text was read."""
    cells = table.column(column)
    kind = cells.type
    nanos = [0] * len(number)
    if arrow.types.is_timestamp(kind):
        if kind.unit == "ns":
            # Python's datetime ends at the microsecond.
            counts = cells.cast(arrow.int64()).to_pylist()
            nanos = [0 if count is None else count % 1000 for count in counts]
            table = table.set_column(
                column,
                table.column_names[column],
                cells.cast(arrow.timestamp("us", tz=kind.tz), safe=False),
            )
    elif not (
        arrow.types.is_date(kind)
        or arrow.types.is_string(kind)
        or arrow.types.is_large_string(kind)
        or arrow.types.is_string_view(kind)
    ):
        problem = f"column {table.column_names[column]} holds {kind}, not times"
        raise fault(problem, "Write it as a date, a timestamp or ISO text.", file)
    stamps = []
    written = _values(table, column, file, number)
    for i, cell in enumerate(written):
        if isinstance(cell, str):
            stamps.append(parse_stamp(cell, place(file, "row", number[i]), date_order))
        elif isinstance(cell, datetime):
            wall = cell.replace(tzinfo=None)
            stamps.append(Stamp(wall, nanos[i], cell.utcoffset(), has_clock=True))
        else:
            stamps.append(_date_stamp(cell))
    return stamps, order_remarks([cell for cell in written if isinstance(cell, str)], date_order)


def _date_stamp(day: date) -> Stamp:
    # A date has no clock, so no zone.
    wall = datetime(day.year, day.month, day.day)  # noqa: DTZ001
    return Stamp(wall, 0, None, has_clock=False)
