"""The tests of all windows as one return series, each bar counted once.

A window trades its test until the next window's test begins, so that where tests overlap the newest
policy has the bar, as it would have when trading. Each window starts flat. What it holds when the
next one takes over is closed on the next bar by the environment's own rules and costs
(`onegraph.kernels.env.env_market.trade_bar`), and that bar is a step of the series. Bars between
tests, where there are any, are not counted. Returns are compounded: each window goes on with what
the one before it left. An account that is lost stays lost.

Buying and holding is not sold and bought again where one test follows another: it has no policy to
change. Only bars between tests interrupt it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.env.env_market import Fill, Rules, Sizing, trade_bar
from onegraph.trainer.config import MarketConfig
from onegraph.trainer.evaluation import EquityCurve
from onegraph.trainer.market import Bars, Metrics, Windows, evaluate_curve, periods_per_year

F64 = NDArray[np.float64]

FILLS = {"next_open": Fill.NEXT_OPEN, "next_close": Fill.NEXT_CLOSE, "close": Fill.THIS_CLOSE}


@dataclass(frozen=True)
class Segment:
    """Bars [first, last) that one policy trades, and whether another takes over after them.

    Attributes:
        last: the bar on which what is held is closed, or, of the final segment, the end.
    """

    first: int
    last: int
    final: bool


@dataclass(frozen=True)
class Chain:
    """A chained series.

    Attributes:
        curve: equity from the config's initial equity on, position, and the end of each step.
        lost: number of the segment that lost the account; ``None`` if none did.
    """

    curve: EquityCurve
    lost: int | None


def segments(windows: Sequence[Windows]) -> list[Segment]:
    """What each window trades of its test: until the next one's test begins."""
    tests = [w.test for w in windows]
    found = []
    for i, test in enumerate(tests):
        final = i == len(tests) - 1
        last = test.stop if final else min(test.stop, tests[i + 1].start)
        found.append(Segment(test.start, last, final))
    return found


def joined(parts: Sequence[Segment]) -> list[Segment]:
    """The segments without the seams between those that follow one another."""
    found: list[Segment] = []
    for part in parts:
        if found and found[-1].last == part.first:
            found[-1] = Segment(found[-1].first, part.last, part.final)
        else:
            found.append(part)
    return found


def chain(
    curves: Sequence[EquityCurve], parts: Sequence[Segment], bars: Bars, market: MarketConfig
) -> Chain:
    """Chain a curve for each segment.

    Args:
        curves: of each window's whole test, from its first bar on.
        parts: as `segments` gives them, one for each curve.
        bars: those that the segments are indices of.
        market: the rules by which a position is closed.
    """
    ratios: list[F64] = []
    positions: list[F64] = []
    times: list[NDArray[np.int64]] = []
    lost = None
    for number, (curve, part) in enumerate(zip(curves, parts, strict=True)):
        if part.first == part.last:  # the next test begins at the same bar, and has it
            continue
        # A step takes a bar to the next: the first ends at the segment's second bar.
        steps = min(part.last - part.first - 1, len(curve.position))
        equity = curve.equity[: steps + 1]
        ratios.append(equity[1:] / equity[:-1])
        positions.append(curve.position[:steps])
        times.append(curve.time[:steps])
        if equity[-1] <= 0.0:
            lost = number
            break
        if part.final:
            continue
        held = float(curve.position[steps - 1]) if steps else 0.0
        after = close_out(float(equity[-1]), held, bars, part.last, market)
        ratios.append(np.array([after / equity[-1]]))
        positions.append(np.zeros(1))
        times.append(bars.time[part.last : part.last + 1])
        if after <= 0.0:
            lost = number
            break
    growth = np.concatenate([np.ones(1), np.concatenate(ratios)])
    equity = market.initial_equity * np.cumprod(growth)
    position = np.concatenate(positions)
    reward = np.zeros(len(position))
    return Chain(EquityCurve(np.concatenate(times), equity, position, reward), lost)


def close_out(equity: float, held: float, bars: Bars, bar: int, market: MarketConfig) -> float:
    """Equity at the close of `bar` where `held` was closed on it; 0.0 if that ruins it."""
    if held == 0.0:
        return equity
    return _step(equity, held, 0.0, bars, bar, market)


def hold(parts: Sequence[Segment], bars: Bars, market: MarketConfig, position: float) -> Chain:
    """One position through the segments: bought as each begins, closed as each ends."""
    parts = joined(parts)
    curves = []
    for part in parts:
        equity, held = [market.initial_equity], 0.0
        for bar in range(part.first + 1, part.last):
            equity.append(_step(equity[-1], held, position, bars, bar, market))
            held = position
            if equity[-1] <= 0.0:
                break
        steps = len(equity) - 1
        first = part.first + 1
        curves.append(
            EquityCurve(
                bars.time[first : first + steps],
                np.array(equity),
                np.full(steps, position),
                np.zeros(steps),
            )
        )
    return chain(curves, parts, bars, market)


def _step(
    equity: float, held: float, target: float, bars: Bars, bar: int, market: MarketConfig
) -> float:
    """Equity after the step that ends at the close of `bar`; 0.0 if it ruins the account."""
    here, there = bars.close[bar - 1], bars.close[bar]
    fill = FILLS[market.fill]
    price = {Fill.NEXT_OPEN: bars.open[bar], Fill.NEXT_CLOSE: there}.get(fill, here)
    rules = Rules(
        Sizing.CONTRACTS if market.sizing == "contracts" else Sizing.EQUITY,
        market.multiplier,
        market.tick_size,
        market.commission,
        market.slippage,
        market.borrow_rate,
    )
    after, _, ruined = trade_bar(
        np.array([equity]),
        np.array([held]),
        np.array([target]),
        np.array([here]),
        np.array([price]),
        np.array([there]),
        rules,
    )
    return 0.0 if ruined[0] else float(after[0])


def figures(chained: Chain, bars: Bars) -> Metrics:
    """Figures of a chained series, annualised by the calendar of all the bars."""
    curve = chained.curve
    periods = periods_per_year(bars.time)
    return evaluate_curve(curve.equity, curve.position, curve.time, periods=periods)
