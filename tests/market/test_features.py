"""Features, against hand-computed bars, and their two promises about the future."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onegraph.trainer.market import (
    Bars,
    FeatureList,
    Features,
    MarketDataError,
    Normaliser,
    compute_features,
    load_sample,
)

DAY = 86_400_000_000_000
HOUR = DAY // 24


def make(close, *, high=None, low=None, volume=None, step=DAY, start=0, intraday=False):
    close = np.asarray(close, dtype=np.float64)
    return Bars(
        "X",
        start + np.arange(len(close), dtype=np.int64) * step,
        close,
        close if high is None else np.asarray(high, dtype=np.float64),
        close if low is None else np.asarray(low, dtype=np.float64),
        close,
        np.ones(len(close)) if volume is None else np.asarray(volume, dtype=np.float64),
        intraday=intraday,
    )


def column(features, name):
    return features.values[:, features.names.index(name)]


def test_three_bars_by_hand():
    bars = make(
        [100, 110, 99], high=[104, 110, 111], low=[96, 110, 91], volume=[0, 0, np.e - 1]
    )  # fmt: skip
    features = compute_features(bars, FeatureList(returns=(1, 2), volatility=(2,), volume_mean=2))
    assert features.first_valid == 2
    assert np.isnan(features.values[:2]).all()
    expected = {
        "log_return_1": -0.10536052,  # ln .9
        "log_return_2": -0.01005034,  # ln .99
        "volatility_2": 0.14189561,  # (ln 1.1 - ln .9) / sqrt 2
        "range": 20 / 99,
        "close_place": 0.4,
        "log_volume": 0.5,  # 1 less the mean of 0 and 1
    }
    assert features.names == tuple(expected)
    assert features.values[2] == pytest.approx(list(expected.values()), abs=1e-8)


def test_a_bar_without_height_closes_in_its_middle():
    features = compute_features(make([100.0] * 21))
    assert column(features, "close_place")[20] == 0.5
    assert column(features, "range")[20] == 0.0


@pytest.mark.parametrize(("close", "place"), [(90, 0.0), (110, 1.0), (120, 1.0), (95, 0.25)])
def test_close_place(close, place):
    bars = make([100, close], high=[110, 110], low=[90, 90])
    only = FeatureList(returns=(1,), volatility=(), volume_mean=None)
    assert column(compute_features(bars, only), "close_place")[1] == place


def test_no_volume_at_all_is_zero():
    features = compute_features(make([100.0] * 25, volume=[0.0] * 25))
    assert (column(features, "log_volume")[20:] == 0.0).all()


def test_default_list_and_history():
    features = compute_features(make(np.linspace(100, 120, 30)))
    assert features.names == (
        "log_return_1", "log_return_2", "log_return_5", "log_return_10", "log_return_20",
        "volatility_10", "volatility_20", "range", "close_place", "log_volume",
    )  # fmt: skip
    assert features.first_valid == 20
    assert np.isfinite(features.values[20:]).all()
    assert np.isnan(features.values[:20]).all()


def test_clock_of_intraday_bars():
    # 1970-01-05 was a Monday; bars end at 06:00, 12:00, 18:00 and, on Tuesday, 00:00.
    bars = make([100.0] * 4, start=4 * DAY + 6 * HOUR, step=6 * HOUR, intraday=True)
    features = compute_features(bars, FeatureList(returns=(1,), volatility=(), volume_mean=None))
    assert column(features, "time_of_day_sin")[1:] == pytest.approx([0, -1, 0], abs=1e-12)
    assert column(features, "time_of_day_cos")[1:] == pytest.approx([-1, 0, 1], abs=1e-12)
    assert column(features, "day_of_week_sin")[1:] == pytest.approx([0, 0, 0.7818315], abs=1e-7)
    assert column(features, "day_of_week_cos")[1:] == pytest.approx([1, 1, 0.6234898], abs=1e-7)


@pytest.mark.parametrize(
    ("bars", "which", "says"),
    [
        (20, None, ["20 bars", "look back 20", "at least 21"]),
        (2, FeatureList((), (), None, bar_shape=False), ["feature list is empty"]),
        (2, FeatureList((5,), (), None), ["look back 5"]),
    ],
)
def test_features_that_are_refused(bars, which, says):
    with pytest.raises(MarketDataError) as caught:
        compute_features(make([100.0] * bars), which)
    for part in says:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"returns": (0,)}, ["0 bars for returns", "1 or more"]),
        ({"volatility": (1,)}, ["1 bars for volatility", "2 or more"]),
        ({"volume_mean": 0}, ["0 bars for volume_mean"]),
    ],
)
def test_feature_lists_that_are_refused(options, says):
    with pytest.raises(MarketDataError) as caught:
        FeatureList(**options)
    for part in says:
        assert part in str(caught.value)


def random_bars(seed, count, *, intraday=False):
    rng = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(rng.normal(0, 0.02, count)))
    return make(
        close,
        high=close * (1 + rng.uniform(0, 0.03, count)),
        low=close * (1 - rng.uniform(0, 0.03, count)),
        volume=np.floor(rng.uniform(0, 5, count)) * 1e5,
        step=HOUR if intraday else DAY,
        intraday=intraday,
    )


def changed_after(bars, t, seed):
    """The same bars up to t, others after it, some of them extreme."""
    rng = np.random.default_rng(seed)
    count = len(bars) - t - 1
    scale = 10.0 ** rng.uniform(-100, 100, count)
    fresh = {
        "close": scale,
        "open": scale,
        "high": scale * rng.uniform(1, 9, count),
        "low": scale / rng.uniform(1, 9, count),
        "volume": rng.choice([0.0, 1.0, 1e300], count),
    }
    parts = {
        name: np.concatenate([getattr(bars, name)[: t + 1], tail]) for name, tail in fresh.items()
    }
    return replace(bars, **parts)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(22, 150),
    part=st.floats(0, 1),
    intraday=st.booleans(),
)
def test_no_bar_after_t_changes_a_bit_up_to_t(seed, count, part, intraday):
    bars = random_bars(seed, count, intraday=intraday)
    t = 20 + int(part * (count - 22))
    before = compute_features(bars)
    after = compute_features(changed_after(bars, t, seed))
    assert before.values[: t + 1].tobytes() == after.values[: t + 1].tobytes()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(22, 150), part=st.floats(0, 1))
def test_bars_that_end_at_t_have_the_same_bits(seed, count, part):
    bars = random_bars(seed, count)
    end = 21 + int(part * (count - 21))
    cut = {
        name: getattr(bars, name)[:end]
        for name in ("time", "open", "high", "low", "close", "volume")
    }
    live = compute_features(replace(bars, **cut))
    assert live.values.tobytes() == compute_features(bars).values[:end].tobytes()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(60, 150),
    part=st.floats(0, 1),
    beyond=st.floats(0, 1),
)
def test_no_bar_after_training_and_t_changes_a_normalised_bit(seed, count, part, beyond):
    bars = random_bars(seed, count)
    stop = 25 + int(part * (count - 30))
    t = stop - 1 + int(beyond * (count - 1 - stop))
    other = changed_after(bars, t, seed)
    train = slice(20, stop)
    one, two = compute_features(bars), compute_features(other)
    fitted, refitted = Normaliser.fit(one, train), Normaliser.fit(two, train)
    assert fitted.mean.tobytes() == refitted.mean.tobytes()
    assert fitted.std.tobytes() == refitted.std.tobytes()
    x, y = fitted.apply(one), refitted.apply(two)
    assert x[: t + 1].tobytes() == y[: t + 1].tobytes()


def table(rows, first_valid=0):
    values = np.array(rows, dtype=np.float64)
    return Features(tuple(f"f{i}" for i in range(values.shape[1])), values, first_valid)


def test_normaliser_by_hand():
    # Over the first two rows: f0 has mean 2 and std 1, f1 is constant.
    features = table([[1, 0.1], [3, 0.1], [7, 4.0], [99, -5.0]])
    normalised = Normaliser.fit(features, slice(0, 2), clip=6).apply(features)
    assert normalised.dtype == np.float32
    assert normalised.tolist() == [[-1, 0], [1, 0], [5, 0], [6, 0]]
    assert not np.signbit(normalised[:, 1]).any()


def test_normaliser_keeps_missing_history_missing():
    features = table([[np.nan, np.nan], [1, 5], [3, 5]], first_valid=1)
    normalised = Normaliser.fit(features, slice(1, 3)).apply(features)
    assert np.isnan(normalised[0]).all()
    assert normalised[1:].tolist() == [[-1, 0], [1, 0]]


def test_normalised_training_window_has_mean_0_and_std_1():
    features = compute_features(load_sample("IBM"))
    train = slice(20, 2000)
    normalised = Normaliser.fit(features, train, clip=1e9).apply(features)[train]
    assert normalised.mean(axis=0, dtype=np.float64) == pytest.approx(np.zeros(10), abs=1e-6)
    assert normalised.std(axis=0, dtype=np.float64) == pytest.approx(np.ones(10), abs=1e-6)


@pytest.mark.parametrize(
    ("window", "clip", "says"),
    [
        (slice(0, 3), 10, ["[0, 3)", "before 1", "first_valid"]),
        (slice(2, 2), 10, ["[2, 2)", "empty"]),
        (slice(1, 5), 10, ["[1, 5)", "4 bars"]),
        (slice(-2, 3), 10, ["[-2, 3)"]),
        (slice(None, 3), 10, ["slice(None, 3, None)", "slice(start, stop)"]),
        (slice(1, 3, 2), 10, ["plain range"]),
        (slice(1, 3), 0, ["clip", "0"]),
    ],
)
def test_fits_that_are_refused(window, clip, says):
    features = table([[np.nan], [1], [2], [3]], first_valid=1)
    with pytest.raises(MarketDataError) as caught:
        Normaliser.fit(features, window, clip=clip)
    for part in says:
        assert part in str(caught.value)


def test_other_features_are_refused():
    fitted = Normaliser.fit(table([[1], [2]]), slice(0, 2))
    with pytest.raises(MarketDataError, match="same features"):
        fitted.apply(table([[1, 2], [2, 3]]))
