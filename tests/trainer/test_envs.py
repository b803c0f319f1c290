"""From a config to an environment: tables with known values, and bars without look-ahead."""

import datetime as dt
import math

import numpy as np
import pytest
from dbn_file import header, packed, record
from trainer.setups import market, short

from onegraph.kernels.common.layout import Flag
from onegraph.kernels.device import HostDevice
from onegraph.stages.runner import Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.config import MarketConfig, load_config
from onegraph.trainer.envs.bars import features_of
from onegraph.trainer.envs.base import reset_program, walk_program
from onegraph.trainer.envs.build import build_environment, build_market, load_bars
from onegraph.trainer.envs.tabular import chain, cliff, truncation_probe
from onegraph.trainer.market import (
    FeatureList,
    MarketDataError,
    Normaliser,
    Windows,
    compute_features,
    load_sample,
)

# ------------------------------------------------------------------------ tables


def test_the_chain_goes_left_and_right_and_ends_at_the_right():
    env = chain(1, 0)
    assert env.next_state.tolist() == [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]]
    assert env.reward.tolist() == [[0, 0]] * 4 + [[0, 1]]
    assert env.terminated.tolist() == [[False, False]] * 4 + [[False, True]]
    assert (env.observation_width, env.actions, env.start) == (5, 2, 0)


def test_the_chains_values():
    q = chain(1, 0).optimal_q(0.9)
    np.testing.assert_allclose(q[:, 1], [0.6561, 0.729, 0.81, 0.9, 1], rtol=1e-12)
    np.testing.assert_allclose(q[:, 0], [0.59049, 0.59049, 0.6561, 0.729, 0.81], rtol=1e-12)


def test_a_reward_that_is_no_number_makes_the_values_that_depend_on_it_none():
    env = chain(1, 0)
    env.reward[3, 0] = math.nan
    # Every state can be left for state 3; only the step into the end has no successor.
    assert np.argwhere(np.isfinite(env.optimal_q(0.9))).tolist() == [[4, 1]]


def test_the_probes_value_is_not_bounded_by_truncation():
    np.testing.assert_allclose(truncation_probe(1, 0).optimal_q(0.99), 100, rtol=1e-9)


UP, RIGHT, DOWN, LEFT = range(4)


@pytest.mark.parametrize(
    ("state", "action", "to", "reward", "ends"),
    [
        (36, UP, 24, -1, False),
        (36, RIGHT, 36, -100, False),  # off the cliff, back to the start
        (36, LEFT, 36, -1, False),
        (36, DOWN, 36, -1, False),
        (24, DOWN, 36, -1, False),
        (25, DOWN, 36, -100, False),
        (34, DOWN, 36, -100, False),
        (35, DOWN, 47, -1, True),
        (35, RIGHT, 35, -1, False),
        (0, UP, 0, -1, False),
        (0, RIGHT, 1, -1, False),
        (11, RIGHT, 11, -1, False),
    ],
)
def test_moves_on_the_cliff(state, action, to, reward, ends):
    env = cliff(1, 0)
    assert env.next_state[state, action] == to
    assert env.reward[state, action] == reward
    assert env.terminated[state, action] == ends


def test_the_cliffs_value_at_the_start():
    env = cliff(1, 0)
    assert env.start == 36
    value = env.optimal_q(0.99)[36].max()
    assert value == pytest.approx(-12.2479, abs=5e-5)
    assert value == pytest.approx(-(1 - 0.99**13) / 0.01)  # thirteen steps around it


@pytest.mark.parametrize("kind", ["chain", "truncation-probe", "cliff"])
def test_tables_are_built_by_name(kind):
    environment, setup = build_environment(short(env__kind=kind, env__max_episode_steps=9))
    assert setup is None
    assert (environment.lanes, environment.max_steps) == (4, 9)


def test_a_tabular_lane_walks_its_table():
    """Right four times is the end; then a new episode; truncation keeps the last observation."""
    env = chain(1, 0, max_steps=6)
    space = Workspace(HostDevice())
    Runner(reset_program(env), space).step()
    walk = Runner(walk_program(env), space)
    seen = []
    for action in (1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0):
        space.write("env_action", np.array([action], np.int32))
        walk.step()
        state, after = (int(space.read(n)[0].argmax()) for n in ("env_obs_tm1", "env_obs_t"))
        now = int(space.read("env_obs")[0].argmax())
        flags, episode = int(space.read("env_flags")[0]), int(space.read("env_episode")[0])
        seen.append((state, after, now, float(space.read("env_reward")[0]), flags, episode))
    assert seen[:5] == [(s, s + 1, s + 1, 0, 0, 0) for s in range(4)] + [(4, 4, 0, 1, 1, 0)]
    assert seen[5:] == [
        (0, 0, 0, 0, 0, 1),
        (0, 1, 1, 0, 0, 1),
        (1, 0, 0, 0, 0, 1),
        (0, 0, 0, 0, 0, 1),
        (0, 0, 0, 0, 0, 1),
        (0, 0, 0, 0, 2, 1),
    ]


def test_the_coin_is_tossed_anew_in_every_lane_and_step():
    env, setup = build_environment(load_config("coin"))
    assert setup is None
    assert (env.lanes, env.observation_width, env.actions, env.goal) == (16, 1, 2, None)
    space = Workspace(HostDevice())
    Runner(reset_program(env), space).step()
    walk = Runner(walk_program(env), space)
    rewards = []
    for episode in range(50):
        walk.step()
        rewards.append(space.read("env_reward").tolist())
        assert (space.read("env_flags") == Flag.TERMINATED).all()
        assert space.read("env_episode").tolist() == [lane + 16 * episode for lane in range(16)]
        assert space.read("env_obs").tolist() == [[1.0] + [0.0] * 7] * 16
    assert len(set(map(tuple, rewards))) == 50, "steps differ"
    assert len(set(zip(*rewards, strict=True))) == 16, "lanes differ"
    assert 0.4 < np.mean(rewards) < 0.6


# ------------------------------------------------------------------------ bars


def test_windows_follow_one_another_from_the_first_bar_with_all_features():
    setup = build_market(market(env__market__purge_bars=0))
    windows, bars = setup.windows, len(setup.bars)
    first = windows.train.start
    assert first == 20  # the longest history that a feature needs, of the default list
    assert (windows.validation.start, windows.test.start) == (
        windows.train.stop,
        windows.validation.stop,
    )
    assert windows.test.stop == bars
    shares = [(w.stop - w.start) / (bars - first) for w in (windows.train, windows.validation)]
    assert shares == pytest.approx([0.6, 0.2], abs=1e-3)
    environment = setup.environment
    assert (environment.first, environment.last) == (first, windows.train.stop)
    assert np.isfinite(environment.features[first:]).all()
    assert environment.features.dtype == np.float32


def test_dates_replace_fractions_and_bars_are_dropped_between_windows():
    setup = build_market(
        market(
            env__market__train_end=dt.date(2008, 1, 1),
            env__market__validation_end=dt.date(2010, 1, 1),
            env__market__purge_bars=5,
            env__market__embargo_bars=3,
        )
    )
    days = setup.bars.time.astype("datetime64[ns]").astype("datetime64[D]")
    train, validation, test = setup.windows.train, setup.windows.validation, setup.windows.test
    assert days[train.stop - 1] < np.datetime64("2008-01-01") <= days[validation.start]
    assert days[validation.stop - 1] < np.datetime64("2010-01-01") <= days[test.start]
    assert validation.start - train.stop >= 5
    assert test.stop == len(days)


def test_four_dates_bound_the_windows_on_both_sides():
    setup = build_market(
        market(
            env__market__train_start=dt.date(2005, 1, 1),
            env__market__train_end=dt.date(2008, 1, 1),
            env__market__validation_end=dt.date(2010, 1, 1),
            env__market__test_end=dt.date(2011, 1, 1),
        )
    )
    days = setup.bars.time.astype("datetime64[ns]").astype("datetime64[D]")
    train, test = setup.windows.train, setup.windows.test
    assert days[train.start - 1] < np.datetime64("2005-01-01") <= days[train.start]
    assert days[test.stop - 1] < np.datetime64("2011-01-01") <= days[test.stop]
    assert (setup.environment.first, setup.environment.last) == (train.start, train.stop)


def test_given_windows_are_taken_as_they_are():
    given = Windows(slice(100, 400), slice(410, 500), slice(505, 600))
    setup = build_market(market(), given)
    assert setup.windows == given
    assert (setup.environment.first, setup.environment.last) == (100, 400)
    fitted = Normaliser.fit(compute_features(setup.bars), given.train)
    expected = fitted.apply(compute_features(setup.bars))
    np.testing.assert_array_equal(setup.environment.features, expected)


def test_an_empty_window_is_an_error_that_names_it():
    with pytest.raises(MarketDataError, match="validation window"):
        build_market(
            market(
                env__market__train_end=dt.date(2014, 1, 1),
                env__market__validation_end=dt.date(2015, 1, 1),
            )
        )


@pytest.mark.parametrize(
    ("fields", "symbol", "adjusted"),
    [
        ({}, "AAPL", True),
        ({"env__market__data": "sample:IBM"}, "IBM", True),
        ({"env__market__symbol": "MSFT", "env__market__adjust": False}, "MSFT", False),
    ],
)
def test_the_sample_by_symbol(fields, symbol, adjusted):
    bars = load_bars(market(**fields))
    wanted = load_sample(symbol, adjust=adjusted)
    assert bars.symbol == symbol
    np.testing.assert_array_equal(bars.close, wanted.close)


def test_a_file_is_read_with_its_declared_clock(tmp_path):
    file = tmp_path / "m.csv"
    rows = [f"2024-01-02 09:{30 + i}:00,100,101,99,100,5" for i in range(4)]
    file.write_text("\n".join(["Date,Open,High,Low,Close,Volume", *rows]))
    fields = {"env__market__data": str(file)}
    plain = load_bars(market(**fields))
    told = load_bars(
        market(**fields, env__market__timezone="America/New_York", env__market__bar_stamp="start")
    )
    # New York is five hours behind UTC in January, and a bar of one minute ends a minute later.
    assert set((told.time - plain.time).tolist()) == {(5 * 3600 + 60) * 10**9}
    longer = load_bars(
        market(**fields, env__market__bar_stamp="start", env__market__bar_seconds=90)
    )
    assert set((longer.time - plain.time).tolist()) == {90 * 10**9}
    with pytest.raises(MarketDataError, match="time zone"):
        load_bars(market(**fields, env__market__timezone="Mars/Olympus"))


SPLITS = [[dt.date(2000, 6, 21), 0.5], ["2005-02-28", 0.5]]


def test_a_configs_splits_are_taken_out_by_list_and_by_file(tmp_path):
    file = tmp_path / "splits.csv"
    file.write_text("date,ratio\n2000-06-21,0.5\n2005-02-28,0.5\n")
    raw = {"env__market__data": "sample:AAPL", "env__market__adjust": False}
    flagged = load_bars(market(**raw))
    assert not flagged.adjusted
    assert len(flagged.notes) == 3
    for table in (SPLITS, str(file)):
        bars = load_bars(market(**raw, env__market__adjustments=table))
        assert bars.adjusted
        assert len(bars.notes) == 1
        assert bars.close[0] == flagged.close[0] / 4


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, r"adjusted already.*env\.market\.adjust = false"),
        (
            {"env__market__adjust": False, "env__market__adjustments": [["1999-01-01", 2]]},
            r"env\.market\.adjustments\[0\]: '1999-01-01' is not within",
        ),
        (
            {"env__market__adjust": False, "env__market__adjustments": "absent.csv"},
            r"absent\.csv: the adjustments cannot be opened",
        ),
    ],
)
def test_splits_that_cannot_be_taken_out(fields, says):
    with pytest.raises(MarketDataError, match=says):
        load_bars(market(**{"env__market__adjustments": SPLITS, **fields}))


def test_the_features_are_the_configs():
    fields = {"returns": [3], "volatility": [], "volume_mean": 0, "bar_shape": False}
    named = {f"env__market__features__{name}": value for name, value in fields.items()}
    setup = build_market(market(**named))
    assert setup.windows.train.start == 3
    # Position, unrealised return and bars held stand behind the one feature of the bars.
    assert setup.environment.observation_width == 4
    assert build_market(market()).environment.observation_width == 13


def test_the_default_features_are_the_feature_lists():
    assert features_of(MarketConfig()) == FeatureList()


def test_a_databento_file_is_read_by_its_config(tmp_path):
    dbn = pytest.importorskip("databento_dbn")
    mappings = [("ES.c.0", "2024-01-01", "2025-01-01", 17)]
    bars = [
        record(dbn, "ohlcv-1h", 17, f"2024-01-0{2 + i // 24}T{i % 24:02}:00", (100.0 + i,) * 4)
        for i in range(48)
    ]
    file = tmp_path / "es.dbn.zst"
    file.write_bytes(packed(dbn, header(dbn, "ohlcv-1h", mappings) + b"".join(bars)))
    setup = build_market(market(env__market__data=str(file), env__market__purge_bars=0))
    assert setup.bars.symbol == "ES.c.0"
    # Ten features, and four of the clock since the bars are intraday.
    assert setup.environment.observation_width == 14 + 3
    assert setup.windows.train.start == 20


BARS = 400


def written_bars(path, prices):
    """Daily bars that open at one price and close at the next."""
    days = np.datetime64("2020-01-01") + np.arange(len(prices) - 1)
    with path.open("w") as file:
        file.write("Date,Open,High,Low,Close,Volume\n")
        for day, opened, closed in zip(
            days, prices[:-1].tolist(), prices[1:].tolist(), strict=True
        ):
            high, low = max(opened, closed) * 1.01, min(opened, closed) * 0.99
            file.write(f"{day},{opened!r},{high!r},{low!r},{closed!r},{1000 * opened!r}\n")
    return path


def observations(path, window):
    """What a lane that trades by a fixed pattern sees, bar by bar, over a window of the file."""
    setup = build_market(market(env__market__data=str(path)))
    lane = setup.environment.over(getattr(setup.windows, window), "walk")
    space = Workspace(HostDevice())
    Runner(reset_program(lane), space).step()
    walk = Runner(walk_program(lane), space)
    seen = [space.read("walk_obs")[0]]
    for k in range(lane.last - lane.first - 1):
        space.write("walk_action", np.array([k * k % 3], np.int32))
        walk.step()
        seen.append(space.read("walk_obs_t")[0])
    return lane.first, np.array(seen)


@pytest.fixture(scope="module")
def prices():
    rng = np.random.default_rng(1)
    return 100 * np.exp(np.cumsum(rng.normal(0, 0.02, BARS + 1)))


@pytest.mark.parametrize("window", ["validation", "test"])
@pytest.mark.parametrize("into", [0, 1, 7, 40])
def test_no_observation_depends_on_a_later_bar(tmp_path, prices, window, into):
    first, before = observations(written_bars(tmp_path / "a.csv", prices), window)
    changed = prices.copy()
    t = first + into  # the last bar that stays: its close is prices[t + 1]
    changed[t + 2 :] *= np.linspace(1.5, 3, BARS - 1 - t)
    _, after = observations(written_bars(tmp_path / "b.csv", changed), window)
    np.testing.assert_array_equal(after[: into + 1], before[: into + 1])
    assert (after[into + 1] != before[into + 1]).any(), "the change would have shown"


def test_what_comes_after_training_changes_nothing_in_training(tmp_path, prices):
    """Or the normalisation had seen it."""
    setup = build_market(market(env__market__data=str(written_bars(tmp_path / "a.csv", prices))))
    stop = setup.windows.train.stop
    changed = prices.copy()
    changed[stop + 1 :] *= 2
    _, before = observations(tmp_path / "a.csv", "train")
    _, after = observations(written_bars(tmp_path / "b.csv", changed), "train")
    np.testing.assert_array_equal(after, before)


def test_an_observation_is_features_position_return_and_age(tmp_path, prices):
    path = written_bars(tmp_path / "a.csv", prices)
    setup = build_market(market(env__market__data=str(path)))
    lane = setup.environment.over(setup.windows.test, "walk")
    space = Workspace(HostDevice())
    Runner(reset_program(lane), space).step()
    walk = Runner(walk_program(lane), space)
    f = lane.observation_width - 3
    features = setup.environment.features
    start = lane.first
    for k, action in enumerate((2, 2, 1)):  # long, long, flat
        space.write("walk_action", np.array([action], np.int32))
        walk.step()
        obs = space.read("walk_obs_t")[0]
        np.testing.assert_array_equal(obs[:f], features[start + k + 1])
        rules, bars = lane.rules, setup.bars
        paid = 1 - (rules.commission + rules.slippage)
        gain = math.log(paid * bars.close[start + k + 1] / bars.open[start + 1])
        held = k + 1
        wanted = (1, gain, held / (held + 10)) if action == 2 else (0, 0, 0)
        np.testing.assert_allclose(obs[f : f + 3], wanted, rtol=1e-6, atol=1e-9)
        assert (obs[f + 3 :] == 0).all()
