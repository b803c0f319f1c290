"""The market environment: E lanes that trade one series of bars on the device."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from onegraph.stages.program import Buffer, Launch, Op, Ref
from onegraph.trainer.config.schema import MarketConfig
from onegraph.trainer.envs.base import TRAINING_LANES, LaneNames, common_buffers
from onegraph.trainer.market import Bars, Normaliser
from onegraph.trainer.policy.facts import FeatureScaling, PolicyFacts

#: What stands beside the features (see `env_market`), from the lane's own account.
POSITION_FEATURE_NAMES = (
    "position / max |positions|",
    "log(equity / equity at entry), 0 when flat",
    "bars held / (bars held + 10)",
)
POSITION_FEATURES = len(POSITION_FEATURE_NAMES)

_FILL = {"next_open": 0, "next_close": 1, "close": 2}


@dataclass(frozen=True)
class MarketEnvironment:
    """Lanes over the bars [first, last) of a series.

    Attributes:
        features: [T, F] float32, normalised with the training window's statistics.
        trace_len: steps of an episode whose equity and position are kept; 0 keeps none.
        random_start: start episodes at a random bar of the window, for training.
        normaliser: what made the features, for policies that leave; without it they can't.
    """

    bars: Bars = field(repr=False)
    features: NDArray[np.float32] = field(repr=False)
    rules: MarketConfig = field(repr=False)
    first: int
    last: int
    lanes: int
    seed: int
    max_steps: int = 0
    random_start: bool = True
    trace_len: int = 0
    names: LaneNames = TRAINING_LANES
    normaliser: Normaliser | None = field(default=None, repr=False)

    @property
    def observation_width(self) -> int:
        return int(self.features.shape[1]) + POSITION_FEATURES

    @property
    def actions(self) -> int:
        return len(self.rules.positions)

    def over(self, window: slice, prefix: str) -> MarketEnvironment:
        """One lane that walks `window` once from its start, keeping its trace."""
        return replace(
            self,
            first=window.start,
            last=window.stop,
            lanes=1,
            max_steps=0,
            random_start=False,
            trace_len=window.stop - window.start,
            names=LaneNames(prefix),
        )

    @property
    def goal(self) -> None:
        """Bars hold no goal."""
        return

    def policy_facts(self) -> PolicyFacts | None:
        """How raw features are scaled, and which positions the actions are."""
        if self.normaliser is None:
            return None
        of = self.normaliser
        return PolicyFacts(
            observation_width=self.observation_width,
            action_names=tuple(f"position {p:g}" for p in self.rules.positions),
            positions=self.rules.positions,
            scaling=FeatureScaling(
                names=of.names, mean=tuple(of.mean), std=tuple(of.std), clip=of.clip
            ),
            position_features=POSITION_FEATURE_NAMES,
        )

    def buffers(self) -> tuple[Buffer, ...]:
        """Lanes, the trace, and the bars, which every set of lanes shares."""
        p, e = self.names.prefix, self.lanes
        bars = len(self.bars.close)
        positions = np.asarray(self.rules.positions, np.float64)
        return (
            *common_buffers(self.names, e, self.observation_width),
            Buffer(f"{p}_lane_f64", (e, 8), "f64", persistent=True),
            Buffer(f"{p}_lane_i64", (e, 8), "i64", persistent=True),
            Buffer(f"{p}_trace", (e, max(self.trace_len, 1), 4), "f64"),
            Buffer("market_features", self.features.shape, "f32", initial=self._features),
            Buffer("market_open", (bars,), "f64", initial=lambda: self.bars.open),
            Buffer("market_close", (bars,), "f64", initial=lambda: self.bars.close),
            Buffer(f"{p}_positions", positions.shape, "f64", initial=lambda: positions),
        )

    def _features(self) -> NDArray[np.float32]:
        return self.features

    def _op(self, *, reset: bool) -> Op:
        p, names, rules = self.names.prefix, self.names, self.rules
        return Launch(
            "env_market",
            {
                "features": Ref("market_features"),
                "open": Ref("market_open"),
                "close": Ref("market_close"),
                "positions": Ref(f"{p}_positions"),
                "action": Ref(names.action),
                "lane_f64": Ref(f"{p}_lane_f64"),
                "lane_i64": Ref(f"{p}_lane_i64"),
                "obs": Ref(names.obs),
                "obs_tm1": Ref(names.obs_tm1),
                "obs_t": Ref(names.obs_t),
                "reward": Ref(names.reward),
                "flags": Ref(names.flags),
                "episode": Ref(names.episode),
                "trace": Ref(f"{p}_trace"),
                "lanes": self.lanes,
                "bars": len(self.bars.close),
                "features_n": self.features.shape[1],
                "actions": self.actions,
                "padded": -(-self.observation_width // 8) * 8,
                "first": self.first,
                "last": self.last,
                "max_steps": self.max_steps,
                "random_start": int(self.random_start),
                "sizing": int(rules.sizing == "contracts"),
                "fill": _FILL[rules.fill],
                "initial_equity": rules.initial_equity,
                "multiplier": rules.multiplier,
                "tick_size": rules.tick_size,
                "commission": rules.commission,
                "slippage": rules.slippage,
                "borrow_rate": rules.borrow_rate,
                "reward_kind": int(rules.reward == "scaled_pnl"),
                "reward_scale": rules.reward_scale / rules.initial_equity,
                "floor_reward": rules.floor_reward,
                "seed": self.seed,
                "trace_len": self.trace_len,
                "reset": int(reset),
            },
        )

    def step(self) -> Op:
        """Step every lane."""
        return self._op(reset=False)

    def reset(self) -> Op:
        """Start an episode in every lane."""
        return self._op(reset=True)
