"""Features of bars, each from the bars up to its own, and their normalisation.

T bars, F features.

Sums over a window are taken in one stated order, oldest bar first, one element-wise addition at a
time: no running sums, whose rounding would depend on where they started, and no reduction whose
order NumPy may choose by shape. So a feature at bar t has the same bits whatever comes after t, and
the same bits when the bars end at t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onegraph.trainer.market.bars import DAY_NS, F64, Bars
from onegraph.trainer.market.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Standard deviation below which a feature counts as constant over the training window.
STD_FLOOR: Final = 1e-8

#: Normalised features are clipped to [-CLIP, CLIP].
CLIP: Final = 10.0


@dataclass(frozen=True)
class FeatureList:
    """Which features to compute.

    Attributes:
        returns: horizons in bars of log returns, each >= 1.
        volatility: windows in bars of realised volatility, each >= 2.
        volume_mean: window in bars of the mean of the log volume, >= 1; None: no volume feature.
        bar_shape: high-low range over close, and close's place in the bar.
        clock: time of day and day of week, for intraday bars.
    """

    returns: tuple[int, ...] = (1, 2, 5, 10, 20)
    volatility: tuple[int, ...] = (10, 20)
    volume_mean: int | None = 20
    bar_shape: bool = True
    clock: bool = True

    def __post_init__(self) -> None:
        for name, values, least in (
            ("returns", self.returns, 1),
            ("volatility", self.volatility, 2),
            ("volume_mean", () if self.volume_mean is None else (self.volume_mean,), 1),
        ):
            for value in values:
                if value < least:
                    problem = f"{value} bars for {name}"
                    raise fault(problem, f"Use {least} or more.", "feature list")
            for value in values:
                if values.count(value) > 1:
                    problem = f"{value} bars for {name} twice"
                    raise fault(problem, "Ask for each once.", "feature list")


@dataclass(frozen=True, eq=False)
class Features:
    """Raw features of bars.

    Attributes:
        names: F names.
        values: float64 [T, F], row t from bars <= t. Rows before `first_valid` lack history in some
            feature and are NaN throughout, so that a use of them shows.
        first_valid: the first row with every feature.
    """

    names: tuple[str, ...]
    values: F64
    first_valid: int


def compute_features(bars: Bars, which: FeatureList | None = None) -> Features:
    """The features of `bars`; the position's own are the environment's to add.

    By name, for bar t with open, high, low, close and volume O, H, L, C and V:

    - ``log_return_n``: log(C_t / C_{t-n})
    - ``volatility_n``: standard deviation (ddof 1) of the last n one-bar log returns, per bar
    - ``range``: (H - L) / C
    - ``close_place``: (C - L) / (H - L), 0 at the low, 1 at the high; 0.5 where H = L; clipped to
      [0, 1] for a close outside its bar
    - ``log_volume``: log(1 + V_t) less its mean over the last n bars, t's included. A bar without
      volume counts as log(1 + 0) = 0
    - ``time_of_day_sin``, ``..._cos``: of 2 pi x the part of the UTC day gone at the bar's end;
      intraday bars only
    - ``day_of_week_sin``, ``..._cos``: of 2 pi x weekday / 7, Monday 0, UTC; intraday bars only

    Args:
        bars: T bars.
        which: the features wanted; default: all of them with the horizons of `FeatureList`.

    Raises:
        MarketDataError: fewer bars than the longest history needs, or an empty feature list.
    """
    which = which or FeatureList()
    one = _log_returns(bars.close, 1)
    columns = [(f"log_return_{n}", _log_returns(bars.close, n)) for n in which.returns]
    columns += [(f"volatility_{n}", _rolling_std(one, n)) for n in which.volatility]
    if which.bar_shape:
        columns.append(("range", (bars.high - bars.low) / bars.close))
        columns.append(("close_place", _close_place(bars)))
    if which.volume_mean is not None:
        volume = np.log1p(bars.volume)
        columns.append(("log_volume", volume - _rolling_mean(volume, which.volume_mean)))
    if which.clock and bars.intraday:
        day = 2 * np.pi * ((bars.time % DAY_NS) / DAY_NS)
        # 1970-01-01 was a Thursday.
        week = 2 * np.pi * (((bars.time // DAY_NS + 3) % 7) / 7)
        for name, angle in (("time_of_day", day), ("day_of_week", week)):
            columns.append((f"{name}_sin", np.sin(angle)))
            columns.append((f"{name}_cos", np.cos(angle)))
    if not columns:
        problem = "the feature list is empty"
        raise fault(problem, "Ask for at least one feature.", bars.symbol)
    longest = max(0, *which.returns, *which.volatility, (which.volume_mean or 1) - 1)
    if len(bars) <= longest:
        problem = f"{len(bars)} bars, the features look back {longest}"
        raise fault(problem, f"Give at least {longest + 1} bars.", bars.symbol)
    values = np.stack([column for _, column in columns], axis=1)
    values[:longest] = np.nan
    return Features(tuple(name for name, _ in columns), values, longest)


@dataclass(frozen=True, eq=False)
class Normaliser:
    """(x - mean) / std with the statistics of the training window alone.

    Attributes:
        names: F names.
        mean: float64 [F].
        std: float64 [F], ddof 0; 0 marks a feature that is constant over the training window (std
            at most `STD_FLOOR`), which is 0 wherever it is applied.
        clip: bound of the result's magnitude.
    """

    names: tuple[str, ...]
    mean: F64
    std: F64
    clip: float = CLIP

    @classmethod
    def fit(cls, features: Features, train: slice, *, clip: float = CLIP) -> Normaliser:
        """The statistics of the rows in `train`; nothing else of `features` is read.

        Raises:
            MarketDataError: the window is empty, leaves the features, has a step, or reaches back
                before `first_valid`; a clip bound not above 0.
        """
        start, stop = train.start, train.stop
        rows = len(features.values)
        if train.step not in (None, 1) or start is None or stop is None:
            problem = f"{train} is no plain range"
            raise fault(problem, "Use slice(start, stop).", "training window")
        if not 0 <= start < stop <= rows:
            problem = f"[{start}, {stop}) is empty or not within the {rows} bars"
            raise fault(problem, "Take it from split or walk_forward.", "training window")
        if start < features.first_valid:
            problem = f"[{start}, {stop}) starts before {features.first_valid}, the first full row"
            remedy = "Pass first_valid=features.first_valid to split or walk_forward."
            raise fault(problem, remedy, "training window")
        if not clip > 0:
            problem = f"{clip!r} is not above 0"
            raise fault(problem, "Use 10.", "clip")
        window = features.values[start:stop]
        mean = np.mean(window, axis=0)
        std = np.std(window, axis=0)
        std[std <= STD_FLOOR] = 0.0
        return cls(features.names, mean, std, clip)

    def apply(self, features: Features) -> NDArray[np.float32]:
        """Normalised features, float32 [T, F], clipped; rows before `first_valid` stay NaN.

        Raises:
            MarketDataError: the features' names differ from those fitted.
        """
        if features.names != self.names:
            problem = f"fitted on {list(self.names)}, applied to {list(features.names)}"
            raise fault(problem, "Compute the same features as in training.", "normaliser")
        constant = self.std == 0
        scaled = (features.values - self.mean) / np.where(constant, 1.0, self.std)
        scaled[:, constant] = scaled[:, constant] * 0.0 + 0.0  # NaN stays, -0.0 does not
        return np.clip(scaled, -self.clip, self.clip).astype(np.float32)


def _log_returns(close: F64, n: int) -> F64:
    out = np.full(len(close), np.nan)
    out[n:] = np.log(close[n:] / close[:-n])
    return out


def _windows(x: F64, n: int) -> Sequence[F64]:
    # n arrays, the oldest bar of each window first.
    return list(sliding_window_view(x, n).T)


def _rolling_mean(x: F64, n: int) -> F64:
    out = np.full(len(x), np.nan)
    if len(x) < n:
        return out
    total = np.zeros(len(x) - n + 1)
    for bar in _windows(x, n):
        total = total + bar
    out[n - 1 :] = total / n
    return out


def _rolling_std(x: F64, n: int) -> F64:
    mean = _rolling_mean(x, n)
    out = np.full(len(x), np.nan)
    if len(x) < n:
        return out
    squares = np.zeros(len(x) - n + 1)
    for bar in _windows(x, n):
        deviation = bar - mean[n - 1 :]
        squares = squares + deviation * deviation
    out[n - 1 :] = np.sqrt(squares / (n - 1))
    return out


def _close_place(bars: Bars) -> F64:
    height = bars.high - bars.low
    flat = height == 0
    place = (bars.close - bars.low) / np.where(flat, 1.0, height)
    return np.where(flat, 0.5, np.clip(place, 0.0, 1.0))
