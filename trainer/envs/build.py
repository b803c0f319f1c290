"""From a config to an environment, and what evaluation needs to know about it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onegraph.trainer.config import Config
from onegraph.trainer.envs.base import Environment
from onegraph.trainer.envs.bit_flip import BitFlipEnvironment
from onegraph.trainer.envs.coin import CoinEnvironment
from onegraph.trainer.envs.gym.make import Registered, registered_environment
from onegraph.trainer.envs.market import MarketEnvironment
from onegraph.trainer.envs.tabular import chain, cliff, truncation_probe
from onegraph.trainer.market import (
    Bars,
    Normaliser,
    Windows,
    compute_features,
    load_sample,
    read_bars,
    split,
)
from onegraph.trainer.offline.environment import RecordedEnvironment
from onegraph.trainer.offline.setup import OfflineData


@dataclass(frozen=True)
class MarketSetup:
    """The bars, how they are split, and the training environment over them."""

    bars: Bars
    windows: Windows
    environment: MarketEnvironment


def load_bars(config: Config) -> Bars:
    """The bars that the config names: the shipped sample, or a file.

    Raises:
        MarketDataError: with file, line and value.
    """
    market = config.env.market
    name, _, symbol = market.data.partition(":")
    if name == "sample" and not Path(market.data).exists():
        return load_sample(symbol or market.symbol or "AAPL", adjust=market.adjust)
    return read_bars(
        market.data,
        market.symbol or None,
        timezone=market.timezone,
        bar_stamp=market.bar_stamp,
        adjust=market.adjust,
    )


def build_market(config: Config) -> MarketSetup:
    """Read, compute features, split, and normalise by the training window alone."""
    market = config.env.market
    bars = load_bars(config)
    features = compute_features(bars)
    if market.train_end is not None and market.validation_end is not None:
        middle, late = market.train_end.isoformat(), market.validation_end.isoformat()
        end = max(_day_after(bars), (market.validation_end + dt.timedelta(days=1)).isoformat())
        windows = split(
            bars.time,
            ("1677-09-22", middle),
            (middle, late),
            (late, end),
            purge=market.purge_bars,
            embargo=market.embargo_bars,
            first_valid=features.first_valid,
        )
    else:
        windows = split(
            bars.time,
            market.train,
            market.validation,
            market.test,
            purge=market.purge_bars,
            embargo=market.embargo_bars,
            first_valid=features.first_valid,
        )
    normaliser = Normaliser.fit(features, windows.train)
    environment = MarketEnvironment(
        bars=bars,
        features=normaliser.apply(features),
        rules=market,
        first=windows.train.start,
        last=windows.train.stop,
        lanes=config.env.lanes,
        seed=config.seed,
        max_steps=config.env.max_episode_steps,
    )
    return MarketSetup(bars, windows, environment)


def _day_after(bars: Bars) -> str:
    last = np.datetime64(int(bars.time[-1]), "ns").astype("datetime64[D]")
    return str(last + np.timedelta64(1, "D"))


def build_environment(
    config: Config, offline: OfflineData | None = None
) -> tuple[Environment, MarketSetup | None]:
    """The training environment, and the market behind it if it is one.

    Args:
        config: as `offline_run` gives it, where transitions were recorded.
        offline: the recorded transitions. Their environment is there to evaluate in.

    Raises:
        TransitionsError: the environment has other states or actions than were recorded.
        MarketDataError: the bars can't be used.
    """
    if offline is not None and config.env.kind == "recorded":
        return RecordedEnvironment(offline.training.width, offline.actions), None
    environment, market = _build_named(config)
    if offline is not None:
        offline.check(environment, config.env.kind)
    return environment, market


def _build_named(config: Config) -> tuple[Environment, MarketSetup | None]:
    env = config.env
    if env.kind == "market":
        setup = build_market(config)
        return setup.environment, setup
    if env.kind == "bit-flip":
        most = env.max_episode_steps or env.bits
        return BitFlipEnvironment(env.bits, most, env.lanes, config.seed), None
    if env.kind == "gymnasium":
        made = Registered(env.id, env.kwargs, env.vectorization, env.max_episode_steps)
        return registered_environment(made, env.lanes, config.seed), None
    if env.kind == "coin":
        return CoinEnvironment(env.lanes, config.seed), None
    makers = {"chain": chain, "truncation-probe": truncation_probe, "cliff": cliff}
    return makers[env.kind](env.lanes, config.seed, env.max_episode_steps), None
