"""From a config to an environment, and what evaluation needs to know about it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import numpy as np

from onegraph.trainer.config import Config
from onegraph.trainer.envs.bars import bars_of, features_of
from onegraph.trainer.envs.base import Environment
from onegraph.trainer.envs.bit_flip import BitFlipEnvironment
from onegraph.trainer.envs.coin import CoinEnvironment
from onegraph.trainer.envs.gym.make import Registered, registered_environment
from onegraph.trainer.envs.market import MarketEnvironment
from onegraph.trainer.envs.tabular import chain, cliff, truncation_probe
from onegraph.trainer.market import (
    Bars,
    Features,
    Normaliser,
    Windows,
    compute_features,
    split,
)
from onegraph.trainer.offline.environment import RecordedEnvironment
from onegraph.trainer.offline.setup import OfflineData

#: The first whole day that int64 nanoseconds since 1970 can hold.
FIRST_DATE = "1677-09-22"


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
    return bars_of(config.env.market)


def load_features(config: Config) -> tuple[Bars, Features]:
    """The bars that the config names, and their raw features.

    Raises:
        MarketDataError: with file, line and value, or too few bars for the features.
    """
    bars = load_bars(config)
    return bars, compute_features(bars, features_of(config.env.market))


def build_market(config: Config, windows: Windows | None = None) -> MarketSetup:
    """Read, compute features, split, and normalise by the training window alone.

    Args:
        config: the run's config.
        windows: used as given, in place of those that the config describes.
    """
    bars, features = load_features(config)
    windows = windows or _split(config, bars, features)
    normaliser = Normaliser.fit(features, windows.train)
    environment = MarketEnvironment(
        bars=bars,
        features=normaliser.apply(features),
        rules=config.env.market,
        first=windows.train.start,
        last=windows.train.stop,
        lanes=config.env.lanes,
        seed=config.seed,
        max_steps=config.env.max_episode_steps,
        normaliser=normaliser,
    )
    return MarketSetup(bars, windows, environment)


def _split(config: Config, bars: Bars, features: Features) -> Windows:
    """The windows of the config: by dates, or else by shares of the bars."""
    market = config.env.market
    if market.train_end is not None and market.validation_end is not None:
        start = FIRST_DATE if market.train_start is None else market.train_start.isoformat()
        middle, late = market.train_end.isoformat(), market.validation_end.isoformat()
        end = max(_day_after(bars), (market.validation_end + dt.timedelta(days=1)).isoformat())
        if market.test_end is not None:
            end = market.test_end.isoformat()
        return split(
            bars.time,
            (start, middle),
            (middle, late),
            (late, end),
            purge=market.purge_bars,
            embargo=market.embargo_bars,
            first_valid=features.first_valid,
        )
    return split(
        bars.time,
        market.train,
        market.validation,
        market.test,
        purge=market.purge_bars,
        embargo=market.embargo_bars,
        first_valid=features.first_valid,
    )


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
