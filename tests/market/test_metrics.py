"""Metrics, against tables worked out by hand."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegraph.trainer.market import (
    MarketDataError,
    comparison_rows,
    evaluate_curve,
    load_sample,
    periods_per_year,
)
from onegraph.trainer.market.metrics import max_drawdown, sharpe, sortino, turnover

DAY = 86_400_000_000_000


def days(count):
    return np.arange(count, dtype=np.int64) * DAY


@pytest.mark.parametrize("returns", list(permutations([-0.10, 0.02, 0.01, 0.03])))
def test_sortino_counts_all_returns_in_any_order(returns):
    assert sortino(returns) == pytest.approx(-0.2, rel=1e-12)


@pytest.mark.parametrize(
    ("equity", "drawdown"),
    [
        ([100, 90, 75], -0.25),  # first day -10%, total -25%
        ([100, 90, 75, 80], -0.25),
        ([100, 200, 150, 300, 180, 400], -0.4),
        ([100, 110, 120], 0.0),
        ([100], 0.0),
        ([100, 50, 0], -1.0),
    ],
)
def test_drawdown_includes_the_initial_equity(equity, drawdown):
    assert max_drawdown(equity) == pytest.approx(drawdown, rel=1e-12)


@pytest.mark.parametrize(
    ("returns", "periods", "ratio"),
    [
        ([0.01, 0.03], 1, math.sqrt(2)),  # mean .02, std .02 / sqrt(2)
        ([0.01, 0.03], 4, 2 * math.sqrt(2)),
        ([-0.02, 0.0, 0.02], 252, 0.0),
        ([0.0, 0.0, 0.0, 0.04], 1, 0.5),  # mean .01, std .02
    ],
)
def test_sharpe(returns, periods, ratio):
    assert sharpe(returns, periods) == pytest.approx(ratio, abs=1e-12)


@pytest.mark.parametrize(
    ("position", "change"),
    [
        ([], 0.0),
        ([0, 0], 0.0),
        ([1, 1, 1, 1], 0.25),
        ([1, -1, 0, 0], 1.0),
        ([0.5, 1, 1, 0.75], 0.3125),
    ],
)
def test_turnover_starts_flat(position, change):
    assert turnover(position) == pytest.approx(change, rel=1e-12)


@pytest.mark.parametrize("returns", [[], [0.01], [0.0] * 5, [0.1] * 3, [0.1] * 7])
def test_ratios_with_nothing_to_divide_by_are_zero(returns):
    assert sharpe(returns, 252) == 0.0
    assert sortino(returns, 252) == 0.0


@given(st.floats(1e-4, 0.2), st.integers(2, 300))
def test_an_equity_that_grows_evenly_has_no_ratio(rate, steps):
    equity = 1000 * (1 + rate) ** np.arange(steps + 1)
    metrics = evaluate_curve(equity, np.ones(steps), days(steps))
    assert (metrics.sharpe, metrics.sortino, metrics.max_drawdown) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("equity", "position", "trades", "trade_rate", "bar_rate"),
    [
        # 100 -> 105 -> 110, then sell: the whole trade's profit counts, in one trade.
        ([100, 105, 110, 110], [1, 1, 0], 1, 1.0, 2 / 3),
        # Two steps up, but the trade loses by the fill that closes it.
        ([100, 101, 102, 95], [1, 1, 0], 1, 0.0, 2 / 3),
        # A loser, then a winner on the other side; the flat steps between belong to neither.
        ([100, 99, 99, 99, 103, 103], [1, 0, 0, -1, 0], 2, 0.5, 1 / 4),
        # Turned over at once: the step of the turn counts to the new trade.
        ([100, 98, 103, 103], [1, -1, 0], 2, 0.5, 1 / 3),
        # Size changes within a trade, and a trade left open is not closed.
        ([100, 101, 103, 102], [1, 2, 1], 0, 0.0, 2 / 3),
        ([100, 100, 100], [0, 0], 0, 0.0, 0.0),
        ([100], [], 0, 0.0, 0.0),
    ],
)
def test_hit_rates(equity, position, trades, trade_rate, bar_rate):
    metrics = evaluate_curve(equity, position, days(len(position)))
    assert metrics.closed_trades == trades
    assert metrics.hit_rate_trade == pytest.approx(trade_rate)
    assert metrics.hit_rate_bar == pytest.approx(bar_rate)


def test_flat_is_exactly_zero():
    metrics = evaluate_curve(np.full(253, 1000.0), np.zeros(252), days(252))
    figures = metrics.as_dict()
    assert figures.pop("bars") == 252
    assert figures.pop("periods_per_year") == pytest.approx(365.25)
    assert set(figures.values()) == {0}


def test_a_whole_curve_by_hand():
    # Returns +10%, -10%, 0: mean 0, downside sqrt(.01 / 3).
    metrics = evaluate_curve([100, 110, 99, 99], [1, 1, 0], days(3), periods=4)
    assert metrics.total_return == pytest.approx(-0.01)
    assert metrics.sharpe == pytest.approx(0.0, abs=1e-12)
    assert metrics.max_drawdown == pytest.approx(-0.1)
    assert metrics.turnover == pytest.approx(2 / 3)
    assert metrics.periods_per_year == 4


def test_annualised_by_the_bars_own_calendar():
    returns = [-0.10, 0.02, 0.01, 0.03]
    equity = 1000 * np.cumprod([1.0, *(1 + r for r in returns)])
    metrics = evaluate_curve(equity, np.ones(4), days(4))
    assert metrics.sortino == pytest.approx(-0.2 * math.sqrt(365.25), rel=1e-9)


@pytest.mark.parametrize(
    ("time", "periods"),
    [
        (days(0), 0.0),
        (days(1), 0.0),
        (days(1000), 365.25),
        (days(1000) // 24, 8766.0),
        (days(100) * 7, 52.178571),
    ],
)
def test_periods_of_regular_calendars(time, periods):
    assert periods_per_year(time) == pytest.approx(periods, rel=1e-7)


def test_periods_of_us_shares():
    assert periods_per_year(load_sample().time) == pytest.approx(251.5, abs=0.1)


@pytest.mark.parametrize(
    ("equity", "position", "time", "says"),
    [
        ([1, 2], [1, 1], days(2), ["2 equities", "2 positions", "T + 1"]),
        ([1, 2, 3], [1, 1], days(3), ["3 times"]),
        ([1, 0, 3], [1, 1], days(2), ["equity[1] is 0.0", "End the curve"]),
        ([0], [], days(0), ["[0.0]", "above 0"]),
        ([1, math.nan], [1], days(1), ["equity: value 1 is nan"]),
        ([1, 2], [math.inf], days(1), ["position: value 0 is inf"]),
        ([[1, 2]], [1], days(1), ["shape (1, 2)"]),
    ],
)
def test_curves_that_are_refused(equity, position, time, says):
    with pytest.raises(MarketDataError) as caught:
        evaluate_curve(equity, position, time)
    for part in says:
        assert part in str(caught.value)


def test_a_lost_account_has_figures():
    metrics = evaluate_curve([100, 50, -10], [1, 1], days(2))
    assert metrics.total_return == pytest.approx(-1.1)
    assert metrics.max_drawdown == pytest.approx(-1.1)


def test_table_rows_stand_beside_baselines():
    flat = evaluate_curve([100, 100, 100], [0, 0], days(2))
    held = evaluate_curve([100, 90, 75], [1, 1], days(2))
    header, first, second = comparison_rows({"flat": flat, "buy and hold": held})
    assert [first[0], second[0]] == ["flat", "buy and hold"]
    assert second[header.index("return")] == "-25.00%"
    assert second[header.index("max drawdown")] == "-25.00%"
    assert second[header.index("bars a year")] == "365.2"
    assert len(header) == len(first) == len(second)
