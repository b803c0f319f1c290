"""The bars and features that a config names."""

from __future__ import annotations

from pathlib import Path

from onegraph.trainer.config.schema import MarketConfig
from onegraph.trainer.market import (
    AdjustmentTable,
    Bars,
    FeatureList,
    adjust_by_table,
    load_sample,
    read_adjustments,
    read_bars,
)


def bars_of(market: MarketConfig) -> Bars:
    """The shipped sample or a file, with the splits and rolls of the config taken out.

    Raises:
        MarketDataError: with file, line and value.
    """
    name, _, symbol = market.data.partition(":")
    if name == "sample" and not Path(market.data).exists():
        bars = load_sample(symbol or market.symbol or "AAPL", adjust=market.adjust)
    else:
        bars = read_bars(
            market.data,
            market.symbol or None,
            timezone=market.timezone,
            bar_stamp=market.bar_stamp,
            adjust=market.adjust,
            bar_seconds=market.bar_seconds or None,
            date_order=market.date_order,
        )
    table = adjustments_of(market)
    return bars if table is None else adjust_by_table(bars, table)


def adjustments_of(market: MarketConfig) -> AdjustmentTable | None:
    """The config's table of splits and rolls; None: it has none."""
    if not market.adjustments:
        return None
    if isinstance(market.adjustments, str):
        return read_adjustments(market.adjustments)
    rows = tuple((day.isoformat(), ratio) for day, ratio in market.adjustments)
    return AdjustmentTable(rows, tuple(f"env.market.adjustments[{i}]" for i in range(len(rows))))


def features_of(market: MarketConfig) -> FeatureList:
    """The features that the config asks for."""
    wanted = market.features
    return FeatureList(
        returns=wanted.returns,
        volatility=wanted.volatility,
        volume_mean=wanted.volume_mean or None,
        bar_shape=wanted.bar_shape,
        clock=wanted.clock,
    )
