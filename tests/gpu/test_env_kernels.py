"""The environments' kernels against their twins, bit for bit, step after step."""

import itertools

import numpy as np
import pytest
from pair_runs import assert_same

from onegraph.kernels.common.layout import Flag
from onegraph.kernels.env.env_market import (
    LANE_FIELDS,
    TRACE_FIELDS,
    Fill,
    LaneI64,
    RewardKind,
    Sizing,
)

pytestmark = pytest.mark.gpu

LANES = [1, 3, 4, 5, 131]


def walk(cuda, kernel, fixed, state, actions_of, steps):
    """Reset, then step; each call is compared and its result is the next one's input."""
    for step in range(steps + 1):
        out = assert_same(
            cuda, kernel, **fixed, **state, action=actions_of(step), reset=int(step == 0)
        )
        state = {name: out[name] for name in state}
        yield out


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("padded", [8, 40])
@pytest.mark.parametrize(("start", "max_steps"), [(0, 0), (-1, 3), (99, 1)])
def test_env_tabular(cuda, lanes, padded, start, max_steps):
    states, actions = 7, 3
    rng = np.random.default_rng(lanes)
    table_next = rng.integers(states, size=(states, actions))
    table_next[2, 1] = 100  # out of range
    fixed = {
        "table_next": table_next,
        "table_reward": rng.normal(size=(states, actions)),
        "table_flags": np.where(rng.random((states, actions)) < 0.2, int(Flag.TERMINATED), 0),
        "obs_tm1": lanes * padded,
        "obs_t": lanes * padded,
        "reward": lanes,
        "flags": lanes,
        "episode": lanes,
        "lanes": lanes,
        "states": states,
        "actions": actions,
        "padded": padded,
        "start": start,
        "max_steps": max_steps,
        "seed": 2**63 + 5,
    }
    state = {
        "lane_state": np.zeros(lanes),
        "lane_steps": np.zeros(lanes),
        "lane_episode": np.zeros(lanes),
        "obs": np.full((lanes, padded), np.nan),
    }
    for _ in walk(
        cuda,
        "env_tabular",
        fixed,
        state,
        lambda step: rng.integers(-1, actions + 1, size=lanes),
        steps=12,
    ):
        pass


@pytest.mark.parametrize("lanes", [*LANES, 1025])
@pytest.mark.parametrize("padded", [8, 40])
def test_env_coin(cuda, lanes, padded):
    size = lanes * padded
    fixed = {
        "obs": size,
        "obs_tm1": size,
        "obs_t": size,
        "reward": lanes,
        "flags": lanes,
        "episode": lanes,
        "lanes": lanes,
        "padded": padded,
        "seed": 2**63 + 5,
    }
    state = {"lane_episode": np.zeros(lanes)}
    for step in range(7):
        out = assert_same(cuda, "env_coin", **fixed, **state, reset=int(step == 0))
        state = {"lane_episode": out["lane_episode"]}


@pytest.mark.parametrize("lanes", [*LANES, 1025])
@pytest.mark.parametrize("padded", [8, 40])
@pytest.mark.parametrize("reset", [0, 1])
def test_env_receive(cuda, lanes, padded, reset):
    rng = np.random.default_rng(lanes)
    size = lanes * padded
    now = rng.normal(size=size)
    now[rng.random(size) < 0.1] = np.nan
    assert_same(
        cuda,
        "env_receive",
        host_obs=now,
        host_final=rng.normal(size=size),
        host_reward=rng.normal(size=lanes),
        host_flags=rng.integers(8, size=lanes),
        host_episode=rng.integers(2**40, size=lanes),
        obs=rng.normal(size=size),
        **dict.fromkeys(("obs_tm1", "obs_t"), size),
        **dict.fromkeys(("reward", "flags", "episode"), lanes),
        lanes=lanes,
        padded=padded,
        reset=reset,
    )


def market_fixed(lanes, *, bars=60, padded=40, features_n=30, bad_bar=True, **options):
    rng = np.random.default_rng(lanes)
    close = 100 * np.exp(np.cumsum(rng.normal(size=bars) * 0.2))
    open_price = close * np.exp(rng.normal(size=bars) * 0.05)
    if bad_bar:
        close[bars // 2] = np.nan
    positions = options.pop("positions", [-1.5, -1.0, 0.0, 0.5, 1.0])
    return {
        "features": rng.normal(size=(bars, features_n)),
        "open": open_price,
        "close": close,
        "positions": positions,
        "obs_tm1": lanes * padded,
        "obs_t": lanes * padded,
        "reward": lanes,
        "flags": lanes,
        "episode": lanes,
        "lanes": lanes,
        "bars": bars,
        "features_n": features_n,
        "actions": len(positions),
        "padded": padded,
        "first": 3,
        "last": bars - 2,
        "max_steps": 17,
        "random_start": 1,
        "sizing": Sizing.EQUITY,
        "fill": Fill.NEXT_OPEN,
        "initial_equity": 1000.0,
        "multiplier": 7.0,
        "tick_size": 0.25,
        "commission": 0.001,
        "slippage": 0.0007,
        "borrow_rate": 0.0003,
        "reward_kind": RewardKind.LOG_RATIO,
        "reward_scale": 0.013,
        "floor_reward": -3.0,
        "seed": 17,
        "trace_len": 10,
        **options,
    }


def market_state(fixed):
    lanes = fixed["lanes"]
    return {
        "lane_f64": np.zeros((lanes, LANE_FIELDS)),
        "lane_i64": np.zeros((lanes, LANE_FIELDS)),
        "obs": np.full((lanes, fixed["padded"]), np.nan),
        "trace": np.full((lanes, max(fixed["trace_len"], 1), TRACE_FIELDS), -1.0),
    }


@pytest.mark.parametrize(
    ("sizing", "fill", "kind"), list(itertools.product(Sizing, Fill, RewardKind))
)
def test_env_market_in_every_mode(cuda, sizing, fill, kind):
    lanes = 37
    options = {"positions": [-9.0, -1.0, 0.0, 2.0, 5.0]} if sizing == Sizing.CONTRACTS else {}
    fixed = market_fixed(lanes, sizing=sizing, fill=fill, reward_kind=kind, **options)
    rng = np.random.default_rng(5)
    flags = set()
    for out in walk(
        cuda,
        "env_market",
        fixed,
        market_state(fixed),
        lambda step: rng.integers(-1, 6, size=lanes),
        steps=40,
    ):
        flags |= set(out["flags"].tolist())
    assert flags >= {0, int(Flag.TERMINATED), int(Flag.TRUNCATED), int(Flag.INVALID)}


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"random_start": 0, "max_steps": 0, "trace_len": 0}, id="whole window"),
        pytest.param({"first": 59, "last": 60}, id="window of one bar"),
        pytest.param({"bars": 2, "first": 0, "last": 2}, id="two bars"),
        pytest.param({"last": 10**12, "positions": [0.0]}, id="beyond the data, always flat"),
        pytest.param({"padded": 33, "features_n": 30}, id="no padding"),
        pytest.param({"padded": 8, "features_n": 1}, id="fewer columns than a warp"),
    ],
)
def test_env_market_shapes_and_windows(cuda, lanes, options):
    fixed = market_fixed(lanes, **{"bad_bar": options.get("bars") != 2, **options})
    rng = np.random.default_rng(6)
    for _ in walk(
        cuda,
        "env_market",
        fixed,
        market_state(fixed),
        lambda step: rng.integers(len(fixed["positions"]), size=lanes),
        steps=12,
    ):
        pass


def test_a_long_episode_sums_to_its_return_on_the_device(cuda):
    lanes, bars = 8, 300
    fixed = market_fixed(
        lanes, bars=bars, bad_bar=False, positions=[0.0, 0.3, 0.6], first=0, last=bars,
        max_steps=0, random_start=0, trace_len=bars,
    )  # fmt: skip
    rng = np.random.default_rng(7)
    *_, out = walk(
        cuda,
        "env_market",
        fixed,
        market_state(fixed),
        lambda step: rng.integers(3, size=lanes),
        steps=bars - 1,
    )
    fields = out["lane_i64"].reshape(lanes, LANE_FIELDS)
    trace = out["trace"].reshape(lanes, bars, TRACE_FIELDS)
    for lane in range(lanes):
        rows = trace[lane, : fields[lane, LaneI64.TRACED]]
        assert len(rows) == bars - 1
        total = np.log(rows[-1, 0] / 1000)
        assert np.sum(rows[:, 2]) == pytest.approx(total, rel=1e-12, abs=1e-13)
