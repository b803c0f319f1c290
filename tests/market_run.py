"""A market environment on the host, for tests: a series of bars, lanes, and their outputs."""

import numpy as np
from pair_runs import run_host

from onegraph.kernels.env.env_market import (
    LANE_FIELDS,
    TRACE_FIELDS,
    Fill,
    LaneF64,
    LaneI64,
    RewardKind,
    Sizing,
)

FEATURES, PADDED = 2, 8


class MarketRun:
    """Steps the environment; `lane` numbers index what `step` gives."""

    def __init__(self, close, open=None, *, lanes=1, features=None, **options):  # noqa: A002
        bars = len(close)
        self.lanes, self.trace_len = lanes, options.pop("trace_len", 0)
        if features is None:
            features = np.arange(bars * FEATURES).reshape(bars, FEATURES) + 1
        self.fixed = {
            "features": features,
            "open": close if open is None else open,
            "close": close,
            "positions": options.pop("positions", [-1.0, 0.0, 1.0]),
            "lanes": lanes,
            "bars": bars,
            "features_n": FEATURES,
            "padded": PADDED,
            "first": 0,
            "last": bars,
            "max_steps": 0,
            "random_start": 0,
            "sizing": Sizing.EQUITY,
            "fill": Fill.NEXT_OPEN,
            "initial_equity": 1000.0,
            "multiplier": 1.0,
            "tick_size": 0.25,
            "commission": 0.0,
            "slippage": 0.0,
            "borrow_rate": 0.0,
            "reward_kind": RewardKind.LOG_RATIO,
            "reward_scale": 1.0,
            "floor_reward": -5.0,
            "seed": 11,
            "trace_len": self.trace_len,
            **options,
        }
        self.fixed["actions"] = len(self.fixed["positions"])
        self.state = {
            "lane_f64": np.zeros((lanes, LANE_FIELDS)),
            "lane_i64": np.zeros((lanes, LANE_FIELDS), np.int64),
            "obs": np.full((lanes, PADDED), np.nan, np.float32),
            "trace": np.zeros((lanes, max(self.trace_len, 1), TRACE_FIELDS)),
        }
        self.call([0] * lanes, reset=1)

    def call(self, action, reset=0):
        size = self.lanes * PADDED
        out = run_host(
            "env_market",
            action=action,
            **self.fixed,
            **self.state,
            obs_tm1=size,
            obs_t=size,
            reward=self.lanes,
            flags=self.lanes,
            episode=self.lanes,
            reset=reset,
        )
        self.state = {name: out[name] for name in self.state}
        return {
            name: values.reshape(self.lanes, PADDED) if name.startswith("obs") else values
            for name, values in out.items()
        }

    def step(self, position):
        """One step in every lane with the action that targets `position`."""
        return self.call([list(self.fixed["positions"]).index(position)] * self.lanes)

    def money(self, field: LaneF64, lane=0):
        return float(self.state["lane_f64"].reshape(self.lanes, -1)[lane, field])

    def place(self, field: LaneI64, lane=0):
        return int(self.state["lane_i64"].reshape(self.lanes, -1)[lane, field])

    @property
    def equity(self):
        """Of lane 0: after its last step, also when that ended the episode."""
        ended = self.place(LaneI64.STEPS) == 0 and self.place(LaneI64.EPISODE) > 1
        return self.money(LaneF64.FINAL_EQUITY if ended else LaneF64.EQUITY)
