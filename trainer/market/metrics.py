"""Figures of an equity curve. N returns, T steps.

Where a figure has nothing to divide by (no returns, one return, constant returns, no losing return,
no trade) it is 0.0, never infinite or NaN.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from onegraph.trainer.market.errors import fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from onegraph.trainer.market.bars import F64, I64

#: Nanoseconds in a mean Julian year, 365.25 days.
YEAR_NS: Final = 365.25 * 86_400e9

#: Spread of returns, against the larger of 1 and the largest return, up to which they are constant:
#: a return is a ratio of equities less 1 and carries the rounding of a number near 1.
CONSTANT: Final = 1e-14


@dataclass(frozen=True)
class Metrics:
    """Figures of one equity curve.

    Attributes:
        bars: steps of the curve.
        periods_per_year: P, which annualises the Sharpe and Sortino ratios.
        total_return: final / initial equity - 1.
        sharpe: annualised.
        sortino: annualised.
        max_drawdown: -0.25 for a fall of 25% from a peak; 0.0 for none.
        turnover: change of position a bar.
        hit_rate_bar: share of the bars in a trade that gained.
        hit_rate_trade: share of the closed trades that gained.
        closed_trades: how many those are.
    """

    bars: int
    periods_per_year: float
    total_return: float
    sharpe: float
    sortino: float
    max_drawdown: float
    turnover: float
    hit_rate_bar: float
    hit_rate_trade: float
    closed_trades: int

    def as_dict(self) -> dict[str, float | int]:
        """The figures by name, for JSON."""
        return asdict(self)


def periods_per_year(time: I64) -> float:
    """Bars a year, from the calendar that the bars keep: steps / years between first and last bar.

    Args:
        time: int64 [T], ns since 1970 UTC, increasing. Take a long stretch: minutes of one session
            alone would count as a market that never closes.

    Returns:
        P, about 251.5 for daily bars of US shares; 0.0 for fewer than two bars.
    """
    if len(time) < 2:
        return 0.0
    return (len(time) - 1) * YEAR_NS / float(int(time[-1]) - int(time[0]))


def sharpe(returns: ArrayLike, periods: float = 1.0) -> float:
    """Return mean / std (ddof 1) x sqrt(periods); 0.0 for fewer than two or constant returns.

    Args:
        returns: float64 [N], simple returns by bar, with no risk-free rate taken off.
        periods: bars a year; 1 gives the ratio per bar.
    """
    r = _vector("returns", returns)
    if len(r) < 2:
        return 0.0
    spread = float(np.std(r, ddof=1))
    if spread <= CONSTANT * max(1.0, float(np.max(np.abs(r)))):
        return 0.0
    return float(np.mean(r)) / spread * math.sqrt(periods)


def sortino(returns: ArrayLike, periods: float = 1.0) -> float:
    """Return mean / sqrt(mean of min(r, 0)^2 over all N) x sqrt(periods).

    It is 0.0 where no return is below 0.

    Args:
        returns: float64 [N], simple returns by bar.
        periods: bars a year; 1 gives the ratio per bar.
    """
    r = _vector("returns", returns)
    if len(r) == 0:
        return 0.0
    downside = math.sqrt(float(np.mean(np.minimum(r, 0.0) ** 2)))
    if downside <= CONSTANT:
        return 0.0
    return float(np.mean(r)) / downside * math.sqrt(periods)


def max_drawdown(equity: ArrayLike) -> float:
    """Largest fall from a peak so far, as a part of the peak: -0.25 for 25%; 0.0 for none.

    Args:
        equity: float64 [T + 1], the initial equity first, which is a peak too.

    Raises:
        MarketDataError: no equity, or an initial equity that is not above 0.
    """
    e = _vector("equity", equity)
    if len(e) == 0 or e[0] <= 0:
        problem = f"the curve starts with {e[:1].tolist()}"
        raise fault(problem, "Start it with an initial equity above 0.", "equity")
    peak = np.maximum.accumulate(e)
    return float(np.min(e / peak - 1.0))


def turnover(position: ArrayLike) -> float:
    """Sum of |change of position| / bars, starting flat; 0.0 for no bars.

    Args:
        position: float64 [T], position held over each step, in contracts or parts of equity.
    """
    p = _vector("position", position)
    if len(p) == 0:
        return 0.0
    return float(np.sum(np.abs(np.diff(p, prepend=0.0)))) / len(p)


def evaluate_curve(
    equity: ArrayLike, position: ArrayLike, time: I64, *, periods: float | None = None
) -> Metrics:
    """The figures of one equity curve.

    Step t takes `equity[t]` to `equity[t + 1]` with the position `position[t]`, its costs included.
    A trade is a run of positions of one sign, whatever their size, with the step that closes it to
    flat (where its exit is filled and paid); where a position turns to the other side at once, that
    step counts to the new trade. So each step belongs to one trade at most, and a trade's profit is
    that of its steps together. A trade that is open at the end is not counted as closed.

    Args:
        equity: float64 [T + 1], account currency, the initial equity first; above 0 except, where
            the account was lost, in the last place.
        position: float64 [T].
        time: int64 [T], the end of each step in ns since 1970 UTC.
        periods: bars a year; None: from `time`.

    Raises:
        MarketDataError: lengths that do not fit, values that are not finite, an equity at or below
            0 before the last place.
    """
    e = _vector("equity", equity)
    p = _vector("position", position)
    if len(e) != len(p) + 1 or len(time) != len(p):
        problem = f"{len(e)} equities, {len(p)} positions, {len(time)} times"
        remedy = "Give T positions, T times and T + 1 equities, the initial one first."
        raise fault(problem, remedy, "equity curve")
    for i in np.flatnonzero(e[:-1] <= 0)[:1]:
        problem = f"equity[{int(i)}] is {float(e[i])!r} and the curve goes on"
        raise fault(problem, "End the curve where the account is lost.", "equity curve")
    drawdown = max_drawdown(e)
    returns = e[1:] / e[:-1] - 1.0
    per_year = periods_per_year(time) if periods is None else float(periods)
    profits, in_trade = _trades(e, p)
    gained = int(np.count_nonzero(np.diff(e)[in_trade] > 0))
    return Metrics(
        bars=len(p),
        periods_per_year=per_year,
        total_return=float(e[-1] / e[0] - 1.0),
        sharpe=sharpe(returns, per_year),
        sortino=sortino(returns, per_year),
        max_drawdown=drawdown,
        turnover=turnover(p),
        hit_rate_bar=_share(gained, int(np.count_nonzero(in_trade))),
        hit_rate_trade=_share(sum(profit > 0 for profit in profits), len(profits)),
        closed_trades=len(profits),
    )


def comparison_rows(results: Mapping[str, Metrics]) -> list[list[str]]:
    """Rows of text for a table: a header, then one row for each result, in the order given.

    Args:
        results: figures by name, the baselines among them.
    """
    header = [
        "", "return", "Sharpe", "Sortino", "max drawdown", "turnover", "hit rate (bars)",
        "hit rate (trades)", "trades", "bars", "bars a year",
    ]  # fmt: skip
    rows = [header]
    for name, m in results.items():
        rows.append(
            [
                name,
                f"{m.total_return:+.2%}",
                f"{m.sharpe:.2f}",
                f"{m.sortino:.2f}",
                f"{m.max_drawdown:.2%}",
                f"{m.turnover:.4f}",
                f"{m.hit_rate_bar:.1%}",
                f"{m.hit_rate_trade:.1%}",
                str(m.closed_trades),
                str(m.bars),
                f"{m.periods_per_year:.1f}",
            ]
        )
    return rows


def _trades(equity: F64, position: F64) -> tuple[list[float], list[bool]]:
    """Profit of each closed trade, and whether each step belongs to a trade."""
    profits: list[float] = []
    in_trade: list[bool] = []
    before, entry = 0.0, 0.0
    for t, now in enumerate(np.sign(position).tolist()):
        in_trade.append(now != 0 or before != 0)
        if now != before:
            if before != 0:
                end = t + 1 if now == 0 else t
                profits.append(float(equity[end]) - entry)
            entry = float(equity[t])
        before = now
    return profits, in_trade


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _vector(name: str, values: ArrayLike) -> F64:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        problem = f"shape {array.shape}"
        raise fault(problem, "Give one dimension.", name)
    for i in np.flatnonzero(~np.isfinite(array))[:1]:
        problem = f"value {int(i)} is {float(array[i])!r}"
        raise fault(problem, "Find where it stopped being finite; figures would hide it.", name)
    return array
