"""The one error of market data."""

from __future__ import annotations


class MarketDataError(ValueError):
    """Market data, or a request about it, is wrong.

    The message says where (file and line, or symbol and bar), what, with the value, and what to do.
    """


#: Characters of a file's text that an error shows: a binary file may be one line of any length.
SHOWN = 60


def shown(text: str) -> str:
    """`text` in quotes, its unprintable characters escaped, cut to `SHOWN` characters."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}..."


def fault(problem: str, remedy: str, where: str) -> MarketDataError:
    """The error for `problem` found at `where`; `remedy` is a sentence that says what to do."""
    return MarketDataError(f"{where}: {problem}. {remedy}")
