"""No look-ahead, from the file to the trade.

A market file is read, a small policy is trained on it and acts greedily. Then every bar after bar t
is changed, prices and volumes, and the whole is built again with the same policy: nothing that was
known or done up to the close of bar t may differ in a bit. That takes in the features as they are,
the features as the network sees them, the observations with the account in them, the actions, and
the money.

What the training window holds sets the scale of the normalised features, so bars changed within it
change that scale: there, the features are compared as they are, and, with the scale of the run that
trained, as the policy sees them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from trainer.setups import fill, make, market, steps

from onegraph.kernels.device import HostDevice
from onegraph.stages.runner import Runner
from onegraph.trainer.config.schema import MarketConfig
from onegraph.trainer.envs.bars import features_of
from onegraph.trainer.envs.base import reset_program
from onegraph.trainer.envs.build import MarketSetup, build_market
from onegraph.trainer.envs.market import MarketEnvironment
from onegraph.trainer.evaluation import WindowEvaluator
from onegraph.trainer.market import Normaliser, compute_features
from onegraph.trainer.trainer import Trainer

BARS = 200
FILLS = ("next_open", "next_close", "close")
WINDOWS = ("train", "validation", "test")


@dataclass(frozen=True)
class Rows:
    """Columns of a file, [BARS] each."""

    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    volume: np.ndarray

    def write(self, path):
        days = np.datetime64("2020-01-01") + np.arange(BARS)
        columns = (self.open, self.high, self.low, self.close, self.volume)
        lines = ["Date,Open,High,Low,Close,Volume"]
        for i, day in enumerate(days):
            lines.append(",".join([str(day), *(repr(float(column[i])) for column in columns)]))
        path.write_text("\n".join(lines))
        return path


def random_rows(seed, scale):
    rng = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(rng.normal(0, scale, BARS)))
    opened = np.concatenate([[100.0], close[:-1]]) * np.exp(rng.normal(0, scale / 2, BARS))
    high = np.maximum(opened, close) * (1 + rng.uniform(0, scale, BARS))
    low = np.minimum(opened, close) * (1 - rng.uniform(0, scale, BARS))
    return Rows(opened, high, low, close, rng.integers(0, 4, BARS) * 1e5)


def changed_after(rows, t):
    """The same up to bar t; wilder bars, at another level, after it."""
    other = random_rows(t, 0.1)
    return Rows(
        *(
            np.concatenate(
                [getattr(rows, name)[: t + 1], factor * getattr(other, name)[t + 1 :]]
            )
            for name, factor in (
                ("open", 3.0), ("high", 3.0), ("low", 3.0), ("close", 3.0), ("volume", 7.0)
            )
        )
    )  # fmt: skip


def config_of(path):
    # Fast enough for the greedy action to depend on the bars within a few learning steps.
    return market(
        env__market__data=str(path), env__market__purge_bars=0, learn__lr__start=3e-3,
        env__max_episode_steps=40,
    )  # fmt: skip


@dataclass(frozen=True)
class Walk:
    """What was seen and done in a window of N bars; step k is decided at its bar k."""

    observations: np.ndarray  # [N, Sp], at each bar
    actions: np.ndarray  # [N - 1]
    positions: np.ndarray  # [N - 1], by the evaluator
    equity: np.ndarray  # [N], by the evaluator


def walk(trainer: Trainer, lane: MarketEnvironment, setup: MarketSetup, window: str) -> Walk:
    """Walk a window by the greedy policy: step by step, and as an evaluation does."""
    space, names = trainer.workspace, lane.names
    Runner(reset_program(lane), space).step()
    step = Runner(trainer.programs.evaluate(lane), space)
    seen, actions = [space.read(names.obs)[0].copy()], []
    for _ in range(lane.last - lane.first - 1):
        step.step()
        actions.append(int(space.read(names.action)[0]))
        seen.append(space.read(names.obs_t)[0].copy())
    setup = replace(setup, environment=replace(setup.environment, rules=lane.rules,
                                               features=lane.features))  # fmt: skip
    # Another prefix for each fill: its rules are another program's.
    prefix = f"evaluated_{lane.rules.fill}_{window}"
    evaluator = WindowEvaluator(
        trainer.programs, space, setup, getattr(setup.windows, window), prefix
    )
    curve = evaluator.curve()
    return Walk(np.array(seen), np.array(actions), curve.position, curve.equity)


def walks(trainer: Trainer, setup: MarketSetup, window: str) -> dict[str, Walk]:
    """The window's walks, by fill."""
    found = {}
    for kind in FILLS:
        rules: MarketConfig = setup.environment.rules.model_copy(update={"fill": kind})
        lane = replace(setup.environment, rules=rules).over(
            getattr(setup.windows, window), f"{window}_{kind}"
        )
        found[kind] = walk(trainer, lane, setup, window)
    return found


@dataclass(frozen=True)
class Original:
    rows: Rows
    setup: MarketSetup
    features: np.ndarray
    normaliser: Normaliser
    trainer: Trainer
    walks: dict[str, dict[str, Walk]]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The file as it was, with a policy trained on it."""
    rows = random_rows(5, 0.02)
    config = config_of(rows.write(tmp_path_factory.mktemp("bars") / "x.csv"))
    setup = build_market(config)
    features = compute_features(setup.bars, features_of(config.env.market))
    trainer = steps(fill(make(HostDevice(), config)), 120)
    return Original(
        rows,
        setup,
        features.values,
        Normaliser.fit(features, setup.windows.train),
        trainer,
        {window: walks(trainer, setup, window) for window in WINDOWS},
    )


def test_the_policy_is_one_that_acts(original):
    """Or its actions would say nothing."""
    for window in WINDOWS:
        for found in original.walks[window].values():
            assert len(set(found.actions.tolist())) > 1, window


def places(windows, window):
    """Bars of a window after which the rest is changed: the first, one within, the last but one."""
    chosen = getattr(windows, window)
    length = chosen.stop - chosen.start
    within = (0, length // 2, length - 2)
    return [chosen.start + k for k in within]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("window", WINDOWS)
def test_nothing_up_to_bar_t_depends_on_a_later_bar(tmp_path, original, window, place):
    t = places(original.setup.windows, window)[place]
    config = config_of(changed_after(original.rows, t).write(tmp_path / "y.csv"))
    setup = build_market(config)
    assert setup.windows == original.setup.windows
    raw = compute_features(setup.bars, features_of(config.env.market))

    assert raw.values[: t + 1].tobytes() == original.features[: t + 1].tobytes()
    assert (raw.values[t + 1] != original.features[t + 1]).any(), "the change shows after t"
    if t >= setup.windows.train.stop - 1:
        seen, was = setup.environment.features, original.setup.environment.features
        assert seen[: t + 1].tobytes() == was[: t + 1].tobytes()
    else:
        scaled = original.normaliser.apply(raw)
        setup = replace(setup, environment=replace(setup.environment, features=scaled))
        assert scaled[: t + 1].tobytes() == original.setup.environment.features[: t + 1].tobytes()

    trainer = Trainer(config, HostDevice(), original.trainer.stages, environment=setup.environment)
    trainer.restore(original.trainer.state(), original.trainer.progress)
    for kind, after in walks(trainer, setup, window).items():
        before = original.walks[window][kind]
        last = t - getattr(setup.windows, window).start  # the last bar of the walk that stays
        assert after.observations[: last + 1].tobytes() == before.observations[: last + 1].tobytes()
        # The action of bar t is decided at its close, whatever price fills it later.
        assert after.actions[: last + 1].tolist() == before.actions[: last + 1].tolist()
        assert after.positions[: last + 1].tobytes() == before.positions[: last + 1].tobytes()
        assert after.equity[: last + 1].tobytes() == before.equity[: last + 1].tobytes()
        assert (after.observations[last + 1] != before.observations[last + 1]).any()
    trainer.close()


@pytest.mark.parametrize(("fill", "depends"), [("next_open", True), ("close", False)])
def test_only_an_honest_fill_pays_the_next_bars_price(original, fill, depends):
    """The fill `close` takes the price that was decided on: that is the optimism in it."""
    setup = original.setup
    rules = setup.environment.rules.model_copy(update={"fill": fill})
    lane = replace(setup.environment, rules=rules).over(setup.windows.test, f"paid_{fill}")
    moved = replace(setup.bars, open=setup.bars.open * 1.01)
    curves = []
    for bars in (setup.bars, moved):
        trainer = Trainer(
            original.trainer.config, HostDevice(), original.trainer.stages,
            environment=replace(setup.environment, bars=bars),
        )  # fmt: skip
        trainer.restore(original.trainer.state(), original.trainer.progress)
        curves.append(walk(trainer, replace(lane, bars=bars), replace(
            setup, environment=replace(setup.environment, bars=bars)), "test"))  # fmt: skip
        trainer.close()
    same = curves[0].equity.tobytes() == curves[1].equity.tobytes()
    assert same is not depends
