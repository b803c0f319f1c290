"""The market environment: the money, worked out by hand and by an accountant that holds units."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market_run import MarketRun

import onegraph.kernels.env.env_market as module
from onegraph.kernels.common.layout import Flag
from onegraph.kernels.env.env_market import (
    Fill,
    LaneF64,
    LaneI64,
    RewardKind,
    Sizing,
    TraceField,
)

TERMINATED, TRUNCATED, INVALID = (int(f) for f in Flag)
CONTRACTS = {"sizing": Sizing.CONTRACTS}


def play(run, positions):
    return [run.step(p) for p in positions]


# ---------------------------------------------------------------- the money


def test_short_through_three_flat_bars_at_one_per_cent_a_bar():
    run = MarketRun([100.0] * 5, borrow_rate=0.01)
    play(run, [-1, -1, -1])
    assert run.equity == pytest.approx(970.299, rel=1e-14)


def test_a_long_position_borrows_nothing():
    run = MarketRun([100.0] * 5, borrow_rate=0.01)
    play(run, [1, 1, 1])
    assert run.equity == 1000


def test_buy_on_the_last_bar():
    run = MarketRun([100.0, 50.0], first=1, commission=0.1)
    out = run.step(1)
    assert run.equity == 1000
    assert out["reward"].tolist() == [0]
    assert out["flags"].tolist() == [TRUNCATED]


def test_a_point_on_a_50_dollar_contract_with_a_round_trip_of_5():
    run = MarketRun([10.0, 10.0, 11.0, 11.0, 11.0], multiplier=50.0, commission=2.5, **CONTRACTS)
    play(run, [1, 1, 0])
    assert run.equity - 1000 == pytest.approx(45)


@pytest.mark.parametrize("fill", list(Fill))
def test_a_trade_held_and_sold_makes_the_whole_trades_profit(fill):
    run = MarketRun([100.0, 100.0, 105.0, 110.0, 110.0, 110.0], fill=fill, **CONTRACTS)
    play(run, [1, 1, 1, 0])
    assert run.equity == 1010


def test_log_rewards_of_a_whole_trade_sum_to_its_return():
    run = MarketRun([100.0, 100.0, 105.0, 110.0, 110.0, 110.0])
    rewards = [out["reward"][0] for out in play(run, [1, 1, 1, 0])]
    assert sum(rewards) == pytest.approx(math.log(1.1), rel=1e-6)


@pytest.mark.parametrize(
    ("fill", "equity"), [(Fill.NEXT_OPEN, 1010), (Fill.NEXT_CLOSE, 1000), (Fill.THIS_CLOSE, 1020)]
)
def test_the_fill_price(fill, equity):
    run = MarketRun([100.0, 120.0, 120.0], [0.0, 110.0, 120.0], fill=fill, **CONTRACTS)
    run.step(1)
    assert run.equity == equity


def test_equity_sizing_by_hand():
    # 1000 fully long at the open of 110; close 121: x 1.1; costs 1% + 0.5% of what is traded
    run = MarketRun([100.0, 121.0, 121.0, 121.0], [0, 110.0, 121.0, 121.0],
                    commission=0.01, slippage=0.005)  # fmt: skip
    run.step(1)
    assert run.equity == pytest.approx(1000 * 0.985 * 1.1)
    run.step(-1)  # from +1 to -1: twice the position is traded
    assert run.equity == pytest.approx(1000 * 0.985 * 1.1 * 0.97)


@pytest.mark.parametrize(("position", "equity"), [(1, 997), (-1, 997), (3, 991)])
def test_slippage_is_ticks_against_the_trade_on_either_side(position, equity):
    run = MarketRun([10.0] * 3, positions=[-1.0, 0.0, 1.0, 3.0], multiplier=2.0, slippage=3.0,
                    tick_size=0.5, **CONTRACTS)  # fmt: skip
    run.step(position)
    assert run.equity == equity


def test_contracts_borrow_on_the_shorts_value():
    run = MarketRun(
        [10.0, 12.0, 12.0], [0, 10.0, 12.0], multiplier=5.0, borrow_rate=0.01, **CONTRACTS
    )
    run.step(-1)
    assert run.equity == pytest.approx(1000 - 5 * 2 - 0.01 * 5 * 12)


def test_scaled_profit_and_loss_as_the_reward():
    run = MarketRun([10.0, 12.0, 12.0], [0, 10.0, 12.0], multiplier=5.0,
                    reward_kind=RewardKind.SCALED_PNL, reward_scale=0.1, **CONTRACTS)  # fmt: skip
    assert run.step(1)["reward"].tolist() == [1]


# ---------------------------------------------------------------- ruin


@pytest.mark.parametrize(
    "prices",
    [
        pytest.param(([100, 200, 200], [0, 100, 200]), id="short, price doubles: exactly 0"),
        pytest.param(([100, 350, 350], [0, 100, 350]), id="short through a rise"),
        pytest.param(([100, math.nan, 100], [0, 100, 100]), id="a price that is no number"),
        pytest.param(([100, math.inf, 100], [0, 100, 100]), id="an infinite price"),
    ],
)
@pytest.mark.parametrize("kind", list(RewardKind))
def test_ruin(prices, kind):
    close, open_price = (np.array(p, float) for p in prices)
    out = (run := MarketRun(close, open_price, reward_kind=kind)).step(-1)
    assert out["flags"].tolist() == [TERMINATED]
    assert out["reward"].tolist() == [-5]
    assert run.money(LaneF64.FINAL_EQUITY) == 0
    assert run.money(LaneF64.EQUITY) == 1000  # the next episode
    assert out["obs_t"][0, 2:].tolist() == [0] * 6  # finite: the account is flat


def test_an_infinite_gain_is_ruin_too():
    run = MarketRun([100.0, math.inf, 100.0], [0, 100.0, 100.0])
    out = run.step(1)
    assert out["flags"].tolist() == [TERMINATED]
    assert np.isfinite(out["obs_t"]).all()
    assert run.money(LaneF64.FINAL_EQUITY) == 0


def test_two_losses_beyond_everything_do_not_make_a_gain():
    # short from 100: at the open of 300 equity is negative; turning long into a fall would flip it
    run = MarketRun([100.0, 100.0, 10.0, 10.0], [0, 100.0, 300.0, 10.0], positions=[-1.0, 0.0, 2.0])
    out = play(run, [-1, 2])[-1]
    assert out["flags"].tolist() == [TERMINATED]
    assert run.money(LaneF64.FINAL_EQUITY) == 0


def test_a_negative_balance_of_contracts_is_ruin():
    run = MarketRun([100.0, 130.0, 130.0], [0, 100.0, 130.0], initial_equity=1000.0,
                    multiplier=50.0, **CONTRACTS)  # fmt: skip
    assert run.step(-1)["flags"].tolist() == [TERMINATED]


def test_ruin_wins_over_the_end_of_the_data():
    run = MarketRun([100.0, 300.0], [0, 100.0])
    assert run.step(-1)["flags"].tolist() == [TERMINATED]


# ---------------------------------------------------------------- episodes


def test_the_window_is_half_open_and_its_last_bar_truncates():
    run = MarketRun([float(c) for c in range(100, 110)], first=2, last=6)
    assert run.place(LaneI64.CURSOR) == 2
    assert [out["flags"][0] for out in play(run, [0] * 4)] == [0, 0, TRUNCATED, 0]


def test_no_bar_after_the_window_is_read():
    close = [100.0, 101.0, 102.0, math.nan, math.nan]
    outs = play(MarketRun(close, first=0, last=3), [1] * 10)
    assert all(np.isfinite(out["reward"]).all() for out in outs)
    assert not any(out["flags"][0] & TERMINATED for out in outs)


def test_a_window_beyond_the_data_ends_with_it():
    run = MarketRun([100.0] * 3, last=99)
    assert [out["flags"][0] for out in play(run, [0, 0])] == [0, TRUNCATED]


def test_max_steps_truncates():
    run = MarketRun([100.0] * 9, max_steps=2)
    assert [out["flags"][0] for out in play(run, [0] * 4)] == [0, TRUNCATED] * 2


def test_episode_ids_and_what_a_new_episode_begins_with():
    run = MarketRun([100.0] * 3, lanes=2)
    outs = play(run, [1] * 4)
    ids = [out["episode"].tolist() for out in outs]
    assert ids == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert outs[1]["obs_t"][0].tolist() == [5, 6, 1, 0, pytest.approx(2 / 12), 0, 0, 0]
    assert outs[1]["obs"][0].tolist() == [1, 2, 0, 0, 0, 0, 0, 0]


def test_random_starts_lie_where_at_least_one_step_is_left():
    run = MarketRun([100.0] * 40, lanes=4000, first=10, last=15, random_start=1)
    starts = run.state["lane_i64"].reshape(4000, -1)[:, LaneI64.CURSOR]
    counts = np.bincount(starts, minlength=40)
    assert set(np.flatnonzero(counts)) == {10, 11, 12, 13}
    assert np.all(np.abs(counts[10:14] - 1000) < 5 * np.sqrt(4000 * 0.25 * 0.75))


def test_an_action_out_of_range_is_clamped_and_flagged():
    run = MarketRun([100.0] * 4)
    assert run.call([7])["flags"].tolist() == [INVALID]
    assert run.money(LaneF64.POSITION) == 1


# ---------------------------------------------------------------- observation and trace


def test_the_account_in_the_observation():
    run = MarketRun([100.0, 100.0, 110.0, 110.0, 110.0, 110.0], positions=[-2.0, 0.0, 1.0, 2.0])
    seen = [out["obs_t"][0, 2:5].tolist() for out in play(run, [1, 1, 0, -2])]
    gain = math.log(1.1)
    expected = [[0.5, 0, 1 / 11], [0.5, gain, 2 / 12], [0, 0, 0], [-1, 0, 1 / 11]]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_a_new_position_shows_what_it_cost_and_a_larger_one_is_the_same_trade():
    run = MarketRun([100.0] * 6, positions=[0.0, 1.0, 2.0], commission=0.1)
    seen = [out["obs_t"][0, 3:5].tolist() for out in play(run, [1, 2])]
    np.testing.assert_allclose(
        seen, [[math.log(0.9), 1 / 11], [2 * math.log(0.9), 2 / 12]], rtol=1e-6
    )


def test_what_was_acted_on_is_what_was_shown():
    run = MarketRun([100.0, 101.0, 102.0, 103.0])
    shown = run.state["obs"].copy()
    for out in play(run, [1, -1, 0, 1, 1]):
        np.testing.assert_array_equal(out["obs_tm1"].reshape(-1), shown.reshape(-1))
        shown = out["obs"].copy()


def test_the_trace_holds_the_first_episode_and_nothing_after_it():
    run = MarketRun([100.0, 100.0, 110.0, 110.0], trace_len=5)
    play(run, [1, 1, 0, -1, -1])
    trace = run.state["trace"].reshape(5, -1)
    assert run.place(LaneI64.TRACED) == 3
    np.testing.assert_allclose(trace[:3, TraceField.EQUITY], [1000, 1100, 1100])
    assert trace[:3, TraceField.POSITION].tolist() == [1, 1, 0]
    assert trace[:3, TraceField.CURSOR].tolist() == [1, 2, 3]
    assert trace[1, TraceField.REWARD] == pytest.approx(math.log(1.1), rel=1e-15)
    assert not trace[3:].any()


def test_a_reset_traces_anew():
    run = MarketRun([100.0] * 5, trace_len=4)
    play(run, [1, 1])
    run.call([0], reset=1)
    assert run.place(LaneI64.TRACED) == 0
    run.step(-1)
    assert run.state["trace"].reshape(4, -1)[0, TraceField.POSITION] == -1


def test_the_kernels_names_are_the_twins():
    header = Path(module.__file__).with_name("market_lane.cuh").read_text()
    names = {name: int(value) for name, value in re.findall(r"\b(\w+) = (\d+)", header)}
    expected = {
        f"{prefix}_{field.name}": field.value
        for prefix, enum in [
            ("L", LaneF64), ("L", LaneI64), ("Z", Sizing), ("B", Fill), ("W", RewardKind),
            ("X", TraceField),
        ]
        for field in enum
    }  # fmt: skip
    assert names == expected
    assert f"#define LANE_FIELDS {module.LANE_FIELDS}" in header
    assert f"#define TRACE_FIELDS {module.TRACE_FIELDS}" in header


# ---------------------------------------------------------------- against an accountant

prices = st.floats(50, 150)
SETTINGS = settings(max_examples=60, deadline=None)


@st.composite
def markets(draw):
    bars = draw(st.integers(2, 12))
    close = draw(st.lists(prices, min_size=bars, max_size=bars))
    opens = draw(st.lists(prices, min_size=bars, max_size=bars))
    return close, opens, draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=bars, max_size=bars))


def fill_price(fill, t, close, opens):
    return {Fill.NEXT_OPEN: opens[t + 1], Fill.NEXT_CLOSE: close[t + 1]}.get(fill, close[t])


def equity_account(close, opens, wanted, fill, cost, borrow):
    """Equity after each bar of an account of cash and units; `None` from ruin on."""
    equity, fraction, history = 1000.0, 0.0, []
    for t in range(len(close) - 1):
        price = fill_price(fill, t, close, opens)
        units = fraction * equity / close[t]
        cash = equity - units * close[t]
        at_fill = cash + units * price
        paid = at_fill - cost * abs(wanted[t] - fraction) * at_fill
        fraction = float(wanted[t])
        units = fraction * paid / price
        marked = (paid - units * price) + units * close[t + 1]
        equity = marked - (borrow * abs(fraction) * marked if fraction < 0 else 0)
        if min(at_fill, paid, marked, equity) <= 0:
            return [*history, None]
        history.append(equity)
    return history


def contract_account(close, opens, wanted, fill, fee, slip, borrow, multiplier):
    """The same of a futures account: cash moves when contracts are bought and sold."""
    cash, contracts, history = 1000.0, 0, []
    for t in range(len(close) - 1):
        price = fill_price(fill, t, close, opens)
        bought = wanted[t] - contracts
        if cash + contracts * multiplier * price <= 0:
            return [*history, None]
        paid = price + math.copysign(slip, bought)
        cash -= bought * multiplier * paid + fee * abs(bought)
        contracts = wanted[t]
        if cash + contracts * multiplier * price <= 0:
            return [*history, None]
        if cash + contracts * multiplier * close[t + 1] <= 0:
            return [*history, None]
        cash -= borrow * max(-contracts, 0) * multiplier * close[t + 1]
        equity = cash + contracts * multiplier * close[t + 1]
        if equity <= 0:
            return [*history, None]
        history.append(equity)
    return history


def check_against(run, history, wanted):
    initial, rewards = 1000.0, []
    for t, expected in enumerate(history):
        out = run.step(wanted[t])
        if expected is None:
            assert out["flags"].tolist() == [TERMINATED]
            return
        assert run.equity == pytest.approx(expected, rel=1e-9)
        rewards.append(run.state["trace"].reshape(-1, 4)[t, TraceField.REWARD])
        assert out["reward"][0] == np.float32(rewards[-1])
    assert out["flags"].tolist() == [TRUNCATED]
    total = math.log(run.equity / initial)
    assert math.fsum(rewards) == pytest.approx(total, rel=1e-12, abs=1e-14)


@SETTINGS
@given(markets(), st.sampled_from(list(Fill)), st.floats(0, 0.05), st.floats(0, 0.05))
def test_equity_sizing_against_an_account_of_cash_and_units(market, fill, cost, borrow):
    close, opens, wanted = market
    run = MarketRun(close, opens, fill=fill, commission=cost, borrow_rate=borrow, trace_len=16)
    check_against(run, equity_account(close, opens, wanted, fill, cost, borrow), wanted)


@SETTINGS
@given(markets(), st.sampled_from(list(Fill)), st.floats(0, 5), st.integers(0, 4))
def test_contracts_against_a_cash_account(market, fill, fee, ticks):
    close, opens, wanted = market
    run = MarketRun(close, opens, fill=fill, commission=fee, slippage=float(ticks), tick_size=0.25,
                    multiplier=3.0, borrow_rate=0.001, trace_len=16, **CONTRACTS)  # fmt: skip
    history = contract_account(close, opens, wanted, fill, fee, ticks * 0.25, 0.001, 3.0)
    check_against(run, history, wanted)
