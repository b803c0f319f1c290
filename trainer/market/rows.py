"""What the file formats share: one symbol's rows, the columns' names, the choice of symbol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onegraph.trainer.market.errors import fault, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onegraph.trainer.market.bars import F64, I64
    from onegraph.trainer.market.stamps import Stamp

#: Columns of numbers that every file must have.
PRICES: Final = ("open", "high", "low", "close", "volume")

#: A column's names in lower case, with spaces for underscores.
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "time": ("date", "datetime", "date time", "time", "timestamp", "gmt time"),
    "symbol": ("ticker", "symbol"),
    "open": ("open",),
    "high": ("high",),
    "low": ("low",),
    "close": ("close",),
    "volume": ("volume",),
    "adj_close": ("adj close", "adjclose", "adjusted close"),
}

_OPTIONAL: Final = ("symbol", "adj_close")

#: Columns and symbols that an error lists; more are counted.
LISTED: Final = 20


@dataclass(frozen=True)
class KnownTimes:
    """Times of a format that says itself what they are, so that nothing is left to declare.

    Attributes:
        utc: int64 [T], ns since 1970 UTC: starts of the bars, or midnights of dates.
        length: of a bar, in ns; 0: the times are dates.
    """

    utc: I64
    length: int


@dataclass(frozen=True)
class Rows:
    """The rows of one symbol in the file's order. T rows.

    Attributes:
        file: name of the file, as the caller gave it.
        layout: the file's format, for people.
        unit: what a row is called in this kind of file: line, row or record.
        number: T line (or row, or record) numbers, from 1.
        symbol: the rows' symbol; None: the file names none.
        symbols: all that the file holds, sorted; empty: it names none.
        stamps: T times as written, or known.
        utc: the time column is declared to be in UTC by its name.
        values: float64 [T] for each of `PRICES`, and `adj_close` where asked for and present.
        adjusted_close: the file has an adjusted close, read or not.
        remarks: what a reader of the bars should know of the file.
    """

    file: str
    layout: str
    unit: str
    number: Sequence[int]
    symbol: str | None
    symbols: tuple[str, ...]
    stamps: Sequence[Stamp] | KnownTimes
    utc: bool
    values: dict[str, F64]
    adjusted_close: bool = False
    remarks: tuple[str, ...] = ()

    def where(self, i: int) -> str:
        """The place of row i, for errors."""
        return place(self.file, self.unit, self.number[i])


def place(file: str, unit: str, number: int) -> str:
    """Text that names a line or row of a file."""
    return f"{file}, {unit} {number}"


def match_columns(header: Sequence[str], where: str) -> dict[str, int]:
    """Positions of the known columns in `header`; others, unnamed ones too, are left aside.

    Raises:
        MarketDataError: a required column is absent, or a known one stands there twice.
    """
    found: dict[str, int] = {}
    for position, given in enumerate(header):
        plain = " ".join(given.strip().lower().replace("_", " ").split())
        for column, names in NAMES.items():
            if plain not in names:
                continue
            if column in found:
                both = f"{shown(header[found[column]])} and {shown(given)}"
                problem = f"columns {both} both give the {column}"
                remedy = "Keep one of them; a date and a time of day go into one column."
                raise fault(problem, remedy, where)
            found[column] = position
    absent = [column for column in NAMES if column not in found and column not in _OPTIONAL]
    if absent:
        wanted = ", ".join("Date" if column == "time" else column.title() for column in absent)
        there = ", ".join(shown(name) for name in header[:LISTED])
        there += f" and {len(header) - LISTED} more" if len(header) > LISTED else ""
        remedy = "Name the columns Date, Open, High, Low, Close, Volume, separated by , or ;."
        problem = f"absent: {wanted}; the columns are {there}"
        raise fault(problem, remedy, where)
    return found


def is_utc_name(name: str) -> bool:
    """Whether a time column's name declares UTC."""
    return name.strip().lower().startswith("gmt")


def choose_symbol(found: Iterable[str], wanted: str | None, file: str) -> str:
    """The symbol to read among those `found` in a file's symbol column.

    Raises:
        MarketDataError: `wanted` is not there, or there are several and none is wanted.
    """
    choices = sorted(set(found))
    listed = ", ".join(choices[:LISTED]) + (", ..." if len(choices) > LISTED else "")
    if wanted is None:
        if len(choices) == 1:
            return choices[0]
        problem = f"it holds {len(choices)} symbols and none was asked for"
        raise fault(problem, f"Pass symbol= (env.market.symbol), one of {listed}.", file)
    if wanted not in choices:
        problem = f"it has no symbol {wanted!r}"
        raise fault(problem, f"Choose one of {listed}.", file)
    return wanted
