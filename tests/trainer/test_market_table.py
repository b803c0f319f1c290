"""What is right, case by case, through the environment as a config makes it, and its figures."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onegraph.kernels.common.layout import Flag
from onegraph.kernels.device import HostDevice
from onegraph.kernels.env.env_market import LaneF64, LaneI64, TraceField
from onegraph.stages.runner import Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.config.schema import MarketConfig
from onegraph.trainer.envs.base import reset_program, walk_program
from onegraph.trainer.envs.market import MarketEnvironment
from onegraph.trainer.market import Bars, Metrics, evaluate_curve

DAY = 86_400_000_000_000


def bars_of(close, opens=None):
    close = np.array(close, dtype=np.float64)
    opens = close if opens is None else np.array(opens, dtype=np.float64)
    high, low = np.maximum(opens, close), np.minimum(opens, close)
    time = np.arange(len(close), dtype=np.int64) * DAY
    return Bars("X", time, opens, high, low, close, np.ones(len(close)))


class Played:
    """A lane over bars [first, last) that takes the positions given, then stops."""

    def __init__(self, bars, positions, *, first=0, last=None, max_steps=0, **rules):
        self.bars, self.initial = bars, rules.setdefault("initial_equity", 1000.0)
        lane = MarketEnvironment(
            bars=bars,
            features=np.zeros((len(bars), 1), np.float32),
            rules=MarketConfig(**rules),
            first=first,
            last=len(bars) if last is None else last,
            lanes=1,
            seed=0,
            max_steps=max_steps,
            random_start=False,
            trace_len=len(bars),
        )
        space = Workspace(HostDevice())
        Runner(reset_program(lane), space).step()
        step = Runner(walk_program(lane), space)
        space.ensure(step.program.buffers)
        self.flags, self.rewards = [], []
        for position in positions:
            action = lane.rules.positions.index(position)
            space.write("env_action", np.array([action], np.int32))
            step.step()
            self.flags.append(int(space.read("env_flags")[0]))
            self.rewards.append(float(space.read("env_reward")[0]))
        self.rows = int(space.read("env_lane_i64")[0, LaneI64.TRACED])
        self.trace = space.read("env_trace")[0, : self.rows].copy()
        self.final = float(space.read("env_lane_f64")[0, LaneF64.FINAL_EQUITY])

    @property
    def equity(self):
        return [self.initial, *self.trace[:, TraceField.EQUITY].tolist()]

    @property
    def metrics(self) -> Metrics:
        at = self.trace[:, TraceField.CURSOR].astype(np.int64)
        position = self.trace[:, TraceField.POSITION]
        return evaluate_curve(self.equity, position, self.bars.time[at], periods=1.0)


def test_fully_short_through_three_flat_bars_at_a_borrow_rate_of_one_per_cent():
    played = Played(bars_of([100] * 4), [-1, -1, -1], borrow_rate=0.01)
    assert played.equity[-1] == pytest.approx(970.299, rel=1e-14)
    assert played.flags == [0, 0, Flag.TRUNCATED]


def test_buying_on_the_last_bar_changes_nothing():
    played = Played(bars_of([100, 50]), [1], first=1, commission=0.1, slippage=0.1)
    assert played.equity == [1000, 1000]
    assert (played.flags, played.rewards) == ([Flag.TRUNCATED], [0.0])


def test_a_point_on_a_multiplier_of_50_less_a_round_trip_of_5():
    played = Played(
        bars_of([4700, 4700, 4701, 4701]), [1, 1, 0], sizing="contracts", multiplier=50.0,
        commission=2.5, initial_equity=10_000.0,
    )  # fmt: skip
    assert played.equity[-1] - played.equity[0] == 45
    assert played.metrics.closed_trades == 1
    assert played.metrics.hit_rate_trade == 1


def test_a_first_day_of_minus_10_per_cent_counts_to_a_drawdown_of_25():
    played = Played(bars_of([100, 90, 80, 75, 85]), [1, 1, 1, 1], fill="close")
    assert played.metrics.max_drawdown == pytest.approx(-0.25, rel=1e-14)


@pytest.mark.parametrize("returns", list(permutations([-0.10, 0.02, 0.01, 0.03])))
def test_sortino_is_the_same_in_any_order(returns):
    close = 100 * np.cumprod([1, *(1 + r for r in returns)])
    played = Played(bars_of(close), [1] * 4, fill="close")
    assert played.metrics.sortino == pytest.approx(-0.2, rel=1e-12)


@pytest.mark.parametrize("fill", ["next_open", "next_close", "close"])
def test_a_trade_from_100_over_105_to_110_makes_ten_points(fill):
    bars = bars_of([100, 100, 105, 110, 110, 110])
    played = Played(bars, [1, 1, 1, 0, 0], fill=fill, sizing="contracts", multiplier=2.0)
    assert played.equity[-1] - played.equity[0] == 20
    assert played.metrics.closed_trades == 1
    assert played.metrics.total_return == pytest.approx(0.02)


def test_flat_is_exactly_nothing():
    played = Played(bars_of([100, 150, 20, 80]), [0] * 3, commission=0.1, borrow_rate=0.1)
    assert played.equity == [1000] * 4
    assert played.rewards == [0] * 3
    figures = played.metrics.as_dict()
    assert {name for name, value in figures.items() if value} == {"bars", "periods_per_year"}


@pytest.mark.parametrize("reward", ["log_return", "scaled_pnl"])
@pytest.mark.parametrize("sizing", ["equity", "contracts"])
def test_an_account_that_is_lost_ends_with_the_floor_reward(sizing, reward):
    played = Played(
        bars_of([100, 250, 250]), [-1, 0], sizing=sizing, reward=reward, fill="close",
        floor_reward=-7.0, initial_equity=150.0,
    )  # fmt: skip
    assert played.flags == [Flag.TERMINATED, 0]
    assert played.rewards[0] == -7
    assert (played.rows, played.final) == (1, 0)


@pytest.mark.parametrize(("max_steps", "ends"), [(0, [2, 5]), (2, [1, 3, 5]), (99, [2, 5])])
def test_the_end_of_the_data_and_the_longest_duration_truncate(max_steps, ends):
    played = Played(bars_of([100, 101, 102, 103]), [1] * 6, max_steps=max_steps)
    assert [i for i, flag in enumerate(played.flags) if flag] == ends
    assert {flag for flag in played.flags if flag} == {Flag.TRUNCATED}


prices = st.floats(50, 150)


@st.composite
def markets(draw):
    count = draw(st.integers(2, 12))
    close, opens = (draw(st.lists(prices, min_size=count, max_size=count)) for _ in range(2))
    positions = st.lists(st.sampled_from([-1, 0, 1]), min_size=count - 1, max_size=count - 1)
    return close, opens, draw(positions)


@settings(max_examples=60, deadline=None)
@given(
    markets(),
    st.sampled_from(["equity", "contracts"]),
    st.sampled_from(["next_open", "next_close", "close"]),
    st.floats(0, 0.05),
    st.floats(0, 0.05),
)
def test_log_rewards_sum_to_the_log_of_the_whole(market, sizing, fill, cost, borrow):
    close, opens, positions = market
    played = Played(
        bars_of(close, opens), positions, sizing=sizing, fill=fill, commission=cost,
        borrow_rate=borrow, multiplier=2.0 if sizing == "contracts" else 1.0,
        initial_equity=1e5,
    )  # fmt: skip
    rewards = played.trace[:, TraceField.REWARD]
    if Flag.TERMINATED in played.flags:
        rewards = rewards[:-1]
    whole = math.log(played.equity[len(rewards)] / played.equity[0])
    # Gains and losses that cancel leave nothing to be relative to but themselves.
    size = max(abs(whole), float(np.sum(np.abs(rewards))))
    assert abs(math.fsum(rewards) - whole) <= 1e-12 * size + 1e-15
