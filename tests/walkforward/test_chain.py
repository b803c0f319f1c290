"""Tests chained in time, against equities worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walkforward.walks import bars_of

from onegraph.trainer.config import MarketConfig
from onegraph.trainer.evaluation import EquityCurve
from onegraph.trainer.market import Windows
from onegraph.trainer.walkforward.chain import Segment, chain, figures, hold, joined, segments

MONEY = MarketConfig(initial_equity=1000.0)


def windows(*tests):
    """Windows of which only the tests matter."""
    return [Windows(slice(0, 1), slice(1, 2), slice(*test)) for test in tests]


def curve(bars, first, equity, position):
    """A walk from bar `first` on."""
    n = len(position)
    return EquityCurve(
        bars.time[first + 1 : first + 1 + n],
        np.asarray(equity, np.float64),
        np.asarray(position, np.float64),
        np.zeros(n),
    )


def days_of(chained, bars):
    return np.searchsorted(bars.time, chained.curve.time).tolist()


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ([(2, 5), (5, 8)], [(2, 5), (5, 8)]),  # one after another
        ([(2, 6), (4, 8)], [(2, 4), (4, 8)]),  # bars 4 and 5 count for the newer
        ([(2, 4), (6, 8)], [(2, 4), (6, 8)]),  # bars 4 and 5 for none
        ([(2, 9), (4, 11), (6, 13)], [(2, 4), (4, 6), (6, 13)]),
        ([(4, 8), (4, 11)], [(4, 4), (4, 11)]),  # nothing is left of the first
    ],
)
def test_a_window_trades_until_the_next_test_begins(tests, expected):
    found = segments(windows(*tests))
    assert [(s.first, s.last) for s in found] == expected
    assert [s.final for s in found] == [False] * (len(tests) - 1) + [True]


def test_segments_without_a_seam_are_joined():
    parts = segments(windows((2, 5), (5, 8), (9, 11), (11, 12)))
    assert joined(parts) == [Segment(2, 8, False), Segment(9, 12, True)]


def test_returns_are_compounded_and_a_position_is_closed_at_the_seam():
    #                0    1    2    3    4    5
    bars = bars_of([100, 100, 110, 110, 110, 121], [100, 100, 100, 110, 121, 110])
    market = MONEY.model_copy(update={"commission": 0.01})
    parts = segments(windows((0, 3), (3, 6)))
    # Long over the step to bar 2, 10% up; closed at bar 3's open for 1%; then 5% in the second.
    first = curve(bars, 0, [1000, 1000, 1100], [0, 1])
    second = curve(bars, 3, [1000, 1000, 1050], [0, 1])
    found = chain([first, second], parts, bars, market)
    assert days_of(found, bars) == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(
        found.curve.equity, [1000, 1000, 1100, 1089, 1089, 1143.45], rtol=1e-14
    )
    assert found.curve.position.tolist() == [0, 1, 0, 0, 1]
    assert found.lost is None
    figure = figures(found, bars)
    assert figure.total_return == pytest.approx(0.14345, rel=1e-12)
    assert figure.turnover == 3 / 5
    assert (figure.closed_trades, figure.hit_rate_trade) == (1, 1.0)


@pytest.mark.parametrize(
    ("fill", "expected"),
    [("next_open", 1000 * 1.05), ("next_close", 1000 * 1.20), ("close", 1000.0)],
)
def test_the_seam_is_filled_as_the_environment_fills(fill, expected):
    bars = bars_of([100, 100, 120, 120], [100, 100, 105, 120])
    parts = segments(windows((0, 2), (2, 4)))
    curves = [curve(bars, 0, [1000, 1000], [1]), curve(bars, 2, [1000, 1000], [0])]
    found = chain(curves, parts, bars, MONEY.model_copy(update={"fill": fill}))
    np.testing.assert_allclose(found.curve.equity[2], expected, rtol=1e-14)


def test_contracts_are_closed_with_their_own_costs():
    bars = bars_of([100, 100, 101, 101])
    market = MarketConfig(
        initial_equity=1000.0, sizing="contracts", multiplier=50.0, commission=2.5, tick_size=0.25
    )
    parts = segments(windows((0, 2), (2, 4)))
    curves = [curve(bars, 0, [1000, 997.5], [1]), curve(bars, 2, [1000, 1000], [0])]
    found = chain(curves, parts, bars, market)
    # +1 point on a multiplier-50 contract, 5.00 round-trip fee.
    assert found.curve.equity[2] == pytest.approx(1045.0, rel=1e-14)


def test_bars_of_overlapping_tests_count_once_for_the_newer():
    bars = bars_of(np.full(8, 100.0))
    parts = segments(windows((0, 6), (3, 8)))
    old = curve(bars, 0, [1000, 1100, 1210, 1331, 1464.1, 1610.51], [1, 1, 1, 1, 1])
    new = curve(bars, 3, [1000, 900, 810, 729, 656.1], [1, 1, 1, 1])
    found = chain([old, new], parts, bars, MONEY)
    assert days_of(found, bars) == [1, 2, 3, 4, 5, 6, 7]
    # Two steps of the older, the seam without costs, four of the newer.
    assert found.curve.equity[-1] == pytest.approx(1000 * 1.1**2 * 0.9**4, rel=1e-14)


def test_bars_between_tests_do_not_count():
    bars = bars_of([100, 100, 100, 150, 150, 150])
    parts = segments(windows((0, 2), (4, 6)))
    flat = [curve(bars, 0, [1000, 1000], [0]), curve(bars, 4, [1000, 1000], [0])]
    assert days_of(chain(flat, parts, bars, MONEY), bars) == [1, 2, 5]
    held = hold(parts, bars, MONEY, 1.0)
    assert held.curve.equity[-1] == pytest.approx(1000.0)  # the jump lies between
    assert held.curve.position.tolist() == [1, 0, 1]


def test_an_account_that_is_lost_stays_lost():
    bars = bars_of(np.full(6, 100.0))
    parts = segments(windows((0, 3), (3, 6)))
    curves = [curve(bars, 0, [1000, 500, 0], [1, 1]), curve(bars, 3, [1000, 2000, 2000], [1, 1])]
    found = chain(curves, parts, bars, MONEY)
    assert found.lost == 0
    assert found.curve.equity.tolist() == [1000, 500, 0]
    assert figures(found, bars).total_return == -1.0


def test_an_account_may_be_lost_as_it_is_closed():
    bars = bars_of([100, 100, 250, 250], [100, 100, 250, 250])
    parts = segments(windows((0, 2), (2, 4)))
    curves = [curve(bars, 0, [1000, 1000], [-1]), curve(bars, 2, [1000, 1000], [0])]
    found = chain(curves, parts, bars, MONEY)
    assert found.lost == 0
    assert found.curve.equity.tolist() == [1000, 1000, 0]


def test_holding_is_not_sold_where_one_test_follows_another():
    bars = bars_of([100, 100, 110, 121, 121, 133.1])
    market = MONEY.model_copy(update={"commission": 0.01})
    held = hold(segments(windows((0, 3), (3, 6))), bars, market, 1.0)
    assert held.curve.equity[-1] == pytest.approx(1000 * 0.99 * 1.331, rel=1e-14)
    assert held.curve.position.tolist() == [1] * 5
    flat = hold(segments(windows((0, 3), (3, 6))), bars, market, 0.0)
    assert flat.curve.equity.tolist() == [1000.0] * 6


@given(
    steps=st.lists(st.floats(-0.05, 0.05), min_size=8, max_size=30),
    cut=st.integers(2, 6),
    position=st.sampled_from([-1.0, 0.0, 0.5, 1.0]),
)
def test_holding_through_one_segment_or_two_is_the_same(steps, cut, position):
    bars = bars_of(100 * np.exp(np.cumsum(steps)))
    market = MONEY.model_copy(update={"commission": 0.001, "borrow_rate": 1e-4})
    n = len(bars)
    one = hold(segments(windows((0, n))), bars, market, position)
    two = hold(segments(windows((0, cut), (cut, n))), bars, market, position)
    assert one.curve.equity.tolist() == two.curve.equity.tolist()
