"""All runs of a walk-forward together: each window over the seeds, and the chained tests."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from onegraph.trainer.market import Metrics
from onegraph.trainer.market.bars import stamp_text
from onegraph.trainer.walkforward.chain import Chain, chain, figures, hold, segments
from onegraph.trainer.walkforward.files import write_json
from onegraph.trainer.walkforward.plan import Plan, RunId, extents
from onegraph.trainer.walkforward.result import BASELINES, POLICY, RunResult, as_figures

FORMAT: Final = "onegraph-walkforward-summary-1"
SUMMARY: Final = "summary.json"


@dataclass(frozen=True)
class SeedSpread:
    """One figure over the seeds.

    Attributes:
        std: ddof 1; ``None`` for one seed, which has no spread.
    """

    mean: float
    low: float
    high: float
    std: float | None


@dataclass(frozen=True)
class Judged:
    """Figures over one stretch of bars, of every seed's policy and of the baselines."""

    policies: dict[int, Metrics]
    baselines: dict[str, Metrics]

    def over_seeds(self, figure: str) -> SeedSpread:
        """Mean and spread of a figure of `Metrics`."""
        return spread([float(getattr(m, figure)) for m in self.policies.values()])


@dataclass(frozen=True, eq=False)
class Summary:
    """What the tables and the page say.

    Attributes:
        windows: figures over each window's whole test.
        pooled: figures of the chained tests.
        chains: by seed.
        baseline_chains: by name.
        results: by run.
    """

    plan: Plan
    windows: tuple[Judged, ...]
    pooled: Judged
    chains: dict[int, Chain]
    baseline_chains: dict[str, Chain]
    results: dict[RunId, RunResult]


def spread(values: Sequence[float]) -> SeedSpread:
    """Mean, least, most, and standard deviation (ddof 1)."""
    std = statistics.stdev(values) if len(values) > 1 else None
    return SeedSpread(statistics.fmean(values), min(values), max(values), std)


def summarise(plan: Plan, results: Mapping[RunId, RunResult]) -> Summary:
    """Put the runs of a finished walk-forward together.

    Args:
        plan: the walk-forward's.
        results: of each of `plan.runs`.
    """
    numbers = range(len(plan.windows))
    windows = []
    for number in numbers:
        by_seed = {s: results[RunId(number, s)].record.figures() for s in plan.seeds}
        first = by_seed[plan.seeds[0]]
        windows.append(
            Judged(
                {seed: found[POLICY] for seed, found in by_seed.items()},
                {name: first[name] for name in BASELINES},
            )
        )
    parts, market = segments(plan.windows), plan.config.env.market
    chains = {
        seed: chain(
            [results[RunId(n, seed)].curves[POLICY] for n in numbers], parts, plan.bars, market
        )
        for seed in plan.seeds
    }
    baselines = {
        name: hold(parts, plan.bars, market, position)
        for name, position in zip(BASELINES, (0.0, 1.0), strict=True)
    }
    pooled = Judged(
        {seed: figures(found, plan.bars) for seed, found in chains.items()},
        {name: figures(found, plan.bars) for name, found in baselines.items()},
    )
    return Summary(plan, tuple(windows), pooled, chains, baselines, dict(results))


def pooling_words(summary: Summary) -> list[str]:
    """How the pooled figures were made, a sentence each."""
    plan, parts = summary.plan, segments(summary.plan.windows)
    bars = plan.bars
    time, number = bars.time, len(parts)
    first, last = stamp_text(int(time[parts[0].first])), stamp_text(int(time[parts[-1].last - 1]))
    periods = next(iter(summary.pooled.policies.values())).periods_per_year
    tests = "test" if number == 1 else "tests"
    said = [
        f"Pooled: the {number} {tests} from {first} to {last}, chained in time into one return"
        " series, each bar counted once; the ratios are of that series, not means of the windows'.",
        f"P = {periods:.1f} bars a year, by the calendar of the {len(bars):,} bars from"
        f" {stamp_text(int(time[0]))} to {stamp_text(int(time[-1]))}.",
    ]
    if number > 1:
        said.append(
            "Each window's policy starts flat; what it holds when the next one takes over is closed"
            " on the next bar at the same costs. Buying and holding goes on through."
        )
    if plan.overlap():
        said.append(
            "Tests overlap: a bar that several have counts for the newest window whose test has"
            " begun. The windows' own rows are over whole tests."
        )
    if gap := plan.gap_bars():
        said.append(
            f"{gap:,} bars between tests are not counted; all positions are closed over them."
        )
    lost = {f"seed {s}": c.lost for s, c in summary.chains.items() if c.lost is not None}
    lost |= {n: c.lost for n, c in summary.baseline_chains.items() if c.lost is not None}
    said += [f"{who} lost the account in window {at}, where its series ends." for who, at in
             lost.items()]  # fmt: skip
    if len(plan.seeds) == 1:
        said.append("One seed has no spread: it does not tell skill from luck.")
    return said


def write_summary(summary: Summary, root: Path) -> Path:
    """``summary.json``: the same figures for programs."""

    def judged(found: Judged) -> dict[str, Any]:
        names = list(asdict(next(iter(found.policies.values()))))
        return {
            "policy": as_figures({str(seed): m for seed, m in found.policies.items()}),
            "over_seeds": {name: asdict(found.over_seeds(name)) for name in names},
            "baselines": as_figures(found.baselines),
        }

    plan = summary.plan
    content = {
        "format": FORMAT,
        "seeds": list(plan.seeds),
        "pooled": judged(summary.pooled),
        "pooling": pooling_words(summary),
        "windows": [
            {"windows": extents(windows, plan.bars), **judged(found)}
            for windows, found in zip(plan.windows, summary.windows, strict=True)
        ],
    }
    write_json(root / SUMMARY, content)
    return root / SUMMARY
