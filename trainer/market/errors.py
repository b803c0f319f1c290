"""The one error of market data."""

from __future__ import annotations


class MarketDataError(ValueError):
    """Market data, or a request about it, is wrong.

    The message says where (file and line, or symbol and bar), what, with the value, and what to do.
    """


def fault(problem: str, remedy: str, where: str) -> MarketDataError:
    """The error for `problem` found at `where`; `remedy` is a sentence that says what to do."""
    return MarketDataError(f"{where}: {problem}. {remedy}")
