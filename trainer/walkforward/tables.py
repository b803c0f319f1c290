"""The walk-forward's tables as rows of text, for the terminal and the page alike."""

from __future__ import annotations

from typing import Final

from onegraph.trainer.market import Metrics
from onegraph.trainer.market.bars import stamp_text
from onegraph.trainer.walkforward.plan import Plan
from onegraph.trainer.walkforward.summary import Judged, Summary

#: Figures of `Metrics`, their headings and forms.
FIGURES: Final = (
    ("total_return", "return", "+.2%"),
    ("sharpe", "Sharpe", ".2f"),
    ("sortino", "Sortino", ".2f"),
    ("max_drawdown", "max drawdown", ".2%"),
    ("turnover", "turnover", ".4f"),
    ("hit_rate_bar", "hit rate (bars)", ".1%"),
    ("hit_rate_trade", "hit rate (trades)", ".1%"),
    ("closed_trades", "trades", ".1f"),
)
HEADINGS: Final = tuple(heading for _, heading, _ in FIGURES)


def _of(metrics: Metrics) -> list[str]:
    return [
        str(metrics.closed_trades)
        if name == "closed_trades"
        else f"{getattr(metrics, name):{form}}"
        for name, _, form in FIGURES
    ]


def _spread(judged: Judged) -> list[list[str]]:
    """Rows of the mean and the spread over the seeds; one seed has its own row alone."""
    seeds = len(judged.policies)
    if seeds == 1:
        return [["policy", *_of(next(iter(judged.policies.values())))]]
    found = [(judged.over_seeds(name), form) for name, _, form in FIGURES]
    return [
        [f"policy, mean of {seeds} seeds", *(f"{s.mean:{form}}" for s, form in found)],
        ["policy, min", *(f"{s.low:{form}}" for s, form in found)],
        ["policy, max", *(f"{s.high:{form}}" for s, form in found)],
        ["policy, std", *(f"{s.std:{form.lstrip('+')}}" for s, form in found)],
    ]


def _baselines(judged: Judged) -> list[list[str]]:
    return [[name, *_of(metrics)] for name, metrics in judged.baselines.items()]


def window_rows(summary: Summary, number: int) -> list[list[str]]:
    """A window's rows over its whole test: policy over the seeds, flat, buy and hold."""
    judged = summary.windows[number]
    return [*_spread(judged), *_baselines(judged)]


def pooled_rows(summary: Summary) -> list[list[str]]:
    """Rows of the chained tests: each seed, mean and spread over them, the baselines."""
    judged = summary.pooled
    seeds = [[f"policy, seed {seed}", *_of(m)] for seed, m in judged.policies.items()]
    together = _spread(judged) if len(seeds) > 1 else []
    return [*seeds, *together, *_baselines(judged)]


def test_label(plan: Plan, number: int) -> str:
    """A window's test: first bar, last bar."""
    test, time = plan.windows[number].test, plan.bars.time
    return f"{stamp_text(int(time[test.start]))} to {stamp_text(int(time[test.stop - 1]))}"


def plan_rows(plan: Plan) -> list[list[str]]:
    """A row a window: its number, and first bar, last bar and bars of each part."""
    rows = []
    for number, windows in enumerate(plan.windows):
        row = [str(number)]
        for part in (windows.train, windows.validation, windows.test):
            first, last = (stamp_text(int(plan.bars.time[i])) for i in (part.start, part.stop - 1))
            row += [f"{first} to {last}", f"{part.stop - part.start:,}"]
        rows.append(row)
    return rows


PLAN_HEADINGS: Final = ("window", "train", "bars", "validation", "bars", "test", "bars")
