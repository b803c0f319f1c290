"""The bars that come with the package; `data/SOURCE.md` says where they are from."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Final

from onegraph.trainer.market.errors import fault
from onegraph.trainer.market.read import read_bars

if TYPE_CHECKING:
    from onegraph.trainer.market.bars import Bars

SAMPLE_SYMBOLS: Final = ("AAPL", "IBM", "MSFT")


def load_sample(symbol: str = "AAPL", *, adjust: bool = True) -> Bars:
    """Daily bars of one share, 2000-03-01 to 2013-03-01: 3,270 bars.

    Args:
        symbol: AAPL, IBM or MSFT.
        adjust: scale prices to the adjusted close; False leaves the splits in (AAPL 2000-06-21 and
            2005-02-28, MSFT 2003-02-18).

    Raises:
        MarketDataError: another symbol; it names the choices.
    """
    if symbol not in SAMPLE_SYMBOLS:
        problem = f"no symbol {symbol!r}"
        raise fault(problem, f"Choose one of {', '.join(SAMPLE_SYMBOLS)}.", "the sample")
    with as_file(files("onegraph.trainer.market") / "data" / "sample.csv.gz") as path:
        return read_bars(path, symbol, adjust=adjust)
