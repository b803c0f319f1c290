"""float64 functions against libm, within the 4 units in the last place that they promise."""

import math

import numpy as np
import pytest

from onegraph.kernels.common.detmath import cospi64, exp64, log64, pow64


def ulps(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.max(np.abs(ours - theirs) / np.spacing(np.abs(theirs))))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_log(rng: np.random.Generator) -> None:
    wide = np.exp(rng.uniform(-700, 700, 100_000))
    assert ulps(log64(wide), np.log(wide)) <= 4
    near_one = rng.uniform(0.5, 2.0, 100_000)
    assert ulps(log64(near_one), np.log(near_one)) <= 4


def test_exp(rng: np.random.Generator) -> None:
    x = rng.uniform(-700, 700, 100_000)
    assert ulps(exp64(x), np.exp(x)) <= 4


@pytest.mark.parametrize("power", [0.6, 0.4, -0.4, -0.73, 2.0])
def test_pow_of_priorities(rng: np.random.Generator, power: float) -> None:
    x = np.exp(rng.uniform(-20, 20, 100_000))
    # y log x has an error of some ulp of itself, which exp turns into a relative one.
    bound = 4 * (1 + abs(power) * 20) * 2.0**-52
    assert np.max(np.abs(pow64(x, power) / np.power(x, power) - 1)) <= bound


def test_cos_pi(rng: np.random.Generator) -> None:
    x = rng.uniform(0, 1, 100_000)
    assert np.max(np.abs(cospi64(x) - np.cos(np.pi * x))) <= 4 * 2.0**-52
    assert cospi64([0.0, 0.5, 1.0]).tolist() == [1, 0, -1]


@pytest.mark.parametrize(
    ("x", "y", "value"),
    [
        (0.0, 0.0, 1.0),
        (7.3, 0.0, 1.0),
        (7.3, 1.0, 7.3),
        (4.0, 0.5, 2.0),
        (2.0, 0.5, math.sqrt(2.0)),
        (3.0, -1.0, 1 / 3),
        (0.0, 0.6, 0.0),
        (0.0, -0.4, math.inf),
        (math.inf, 0.6, math.inf),
        (math.inf, -0.6, 0.0),
        (1.0, 0.37, 1.0),
    ],
)
def test_exact_powers(x: float, y: float, value: float) -> None:
    assert pow64(x, y) == value


@pytest.mark.parametrize("function", [log64, exp64])
def test_nan_goes_through(function) -> None:
    assert np.isnan(function(np.nan))


def test_ends() -> None:
    assert log64([0.0, np.inf, 1.0]).tolist() == [-np.inf, np.inf, 0.0]
    assert np.isnan(log64(-1.0))
    assert log64(5e-324) == pytest.approx(math.log(5e-324), rel=1e-15)
    assert exp64([-800.0, 0.0, 800.0]).tolist() == [0, 1, np.inf]
    assert exp64(-744.0) == pytest.approx(5e-324 * round(math.exp(-744.0) / 5e-324))
