"""The page about a walk-forward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onegraph.stages.page.charts import Chart, Series
from onegraph.stages.page.document import PageSection, Tile, document
from onegraph.stages.page.markup import command, figure, grid, paragraph, section, table, text
from onegraph.trainer.config import config_to_toml
from onegraph.trainer.market import Metrics
from onegraph.trainer.walkforward.plan import Plan, RunId
from onegraph.trainer.walkforward.result import BASELINES, POLICY
from onegraph.trainer.walkforward.summary import Judged, Summary, pooling_words
from onegraph.trainer.walkforward.tables import (
    HEADINGS,
    PLAN_HEADINGS,
    plan_rows,
    pooled_rows,
    test_label,
    window_rows,
)

#: Seeds that the equity chart draws; of more, the least, the middle and the most.
MOST_LINES = 7

#: Ratio of the highest to the lowest equity from which the chart has a logarithmic scale.
WIDE = 4.0


def render(summary: Summary, root: Path) -> str:
    """The page of a finished walk-forward, one HTML document that loads nothing.

    Raises:
        PlotUnavailableError: matplotlib is not installed.
    """
    plan = summary.plan
    seeds = ", ".join(str(seed) for seed in plan.seeds)
    market = plan.config.env.market
    return document(
        title=root.resolve().name,
        about=(
            f"Walk-forward over {plan.bars.symbol}: {len(plan.windows)} windows, seeds {seeds},"
            f" commission {market.commission:g} and slippage {market.slippage:g} a side"
        ),
        note="One seed has no spread, and does not tell skill from luck."
        if len(plan.seeds) == 1
        else "",
        tiles=_tiles(summary),
        sections=[
            PageSection("pooled", "All tests", _pooled(summary, root)),
            PageSection("spread", "Spread over seeds", _spread(summary)),
            PageSection("windows", "Windows", _windows(summary)),
            PageSection("runs", "Runs", _runs(summary)),
            PageSection("config", "Configuration", _config(plan, root)),
            PageSection("commands", "Commands", _commands(plan, root)),
        ],
        footer=f"Made by <code>onegraph walkforward</code> from <code>{text(root)}</code>.",
    )


def _tiles(summary: Summary) -> list[Tile]:
    judged = summary.pooled
    hold = judged.baselines["buy and hold"]
    ahead = sum(m.sharpe > hold.sharpe for m in judged.policies.values())
    tiles = []
    for name, label, form in (
        ("total_return", "return", "+.1%"),
        ("sharpe", "Sharpe", ".2f"),
        ("max_drawdown", "max drawdown", ".1%"),
    ):
        found = judged.over_seeds(name)
        more = f"{found.low:{form}} to {found.high:{form}}"
        tiles.append(Tile(f"{label}, mean of seeds", f"{found.mean:{form}}", more))
    held = f"{hold.total_return:+.1%}"
    more = f"Sharpe {hold.sharpe:.2f}, drawdown {hold.max_drawdown:.1%}"
    tiles.append(Tile("return, buy and hold", held, more))
    words = "seeds with a higher Sharpe ratio than buying and holding"
    tiles.append(Tile("ahead", f"{ahead} of {len(judged.policies)}", words))
    return tiles


def drawn_seeds(summary: Summary) -> list[int]:
    """The seeds whose chained equity is drawn."""
    seeds = list(summary.plan.seeds)
    if len(seeds) <= MOST_LINES:
        return seeds
    policies = summary.pooled.policies
    ranked = sorted(seeds, key=lambda seed: (policies[seed].total_return, seed))
    return [ranked[0], ranked[len(ranked) // 2], ranked[-1]]


def _pooled(summary: Summary, root: Path) -> str:
    drawn = drawn_seeds(summary)
    chains = {f"seed {seed}": summary.chains[seed] for seed in drawn} | summary.baseline_chains
    # The first point has no bar behind it, so each line starts at its first step's end.
    series = [
        Series(name, c.curve.time.astype("datetime64[ns]"), c.curve.equity[1:])
        for name, c in chains.items()
    ]
    # What is compounded over years shows its rate on a logarithmic scale alone.
    least = min(float(s.y.min()) for s in series)
    log = 0 < WIDE * least < max(float(s.y.max()) for s in series)
    chart = Chart("equity", "Equity", "end of bar (UTC)", "equity").lines(series, log=log)
    some = " Logarithmic scale." if log else ""
    if len(drawn) < len(summary.plan.seeds):
        some += f" Of {len(summary.plan.seeds)} seeds: the least, the middle and the most return."
    return section(
        "pooled",
        "All tests, chained",
        *(paragraph(line) for line in pooling_words(summary)),
        figure(
            "figure-equity",
            "Equity over the chained tests",
            chart.svg(),
            "Each policy was chosen on validation; the test chose nothing."
            f" Flat and buying and holding pay the same costs.{some} From",
            str(root),
        ),
        table(("", *HEADINGS), pooled_rows(summary)),
    )


def _spread(summary: Summary) -> str:
    labels = [f"window {number}" for number in range(len(summary.windows))]

    def chart(
        field: str, title: str, axis: str, scale: float, stretches: Mapping[str, Judged]
    ) -> str:
        def of(metrics: Metrics) -> float:
            return scale * float(getattr(metrics, field))

        points = [[of(m) for m in judged.policies.values()] for judged in stretches.values()]
        marks = [
            (name, [of(judged.baselines[name]) for judged in stretches.values()])
            for name in BASELINES
        ]
        name = field.replace("_", "-")
        drawn = Chart(name, title, axis, "", rows=len(stretches) + 2).spreads(
            list(stretches), points, marks, name="seed"
        )
        words = "A point a seed, from the least to the most; the upright stroke is their mean."
        return figure(f"figure-{name}", title, drawn.svg(), words)

    windows = dict(zip(labels, summary.windows, strict=True))
    # The return of all the tests together would leave no room for those of the windows.
    charts = (
        chart(
            "sharpe", "Sharpe ratio by window", "Sharpe ratio", 1.0,
            {**windows, "all, chained": summary.pooled},
        ),
        chart("total_return", "Return by window", "return, %", 100.0, windows),
    )  # fmt: skip
    return section(
        "spread",
        "Spread over the seeds",
        paragraph(
            "What differs within a row is luck: the seeds differ in initial weights, exploration"
            " and sampling, and in nothing else."
        ),
        grid(*charts),
    )


def _windows(summary: Summary) -> str:
    plan = summary.plan
    market = plan.config.env.market
    body = [
        paragraph(
            f"Purge {market.purge_bars} bars, embargo {market.embargo_bars}. Features are"
            " normalised by each window's training bars alone."
        ),
        table(PLAN_HEADINGS, plan_rows(plan)),
    ]
    for number in range(len(plan.windows)):
        body.append(f"<h3>Window {number}, test {text(test_label(plan, number))}</h3>")
        body.append(table(("", *HEADINGS), window_rows(summary, number)))
    return section("windows", "Windows", *body)


def _runs(summary: Summary) -> str:
    rows = []
    for run, result in summary.results.items():
        r = result.record
        validation, test = (r.figures(part)[POLICY] for part in ("validation", "test"))
        rows.append(
            (
                run,
                f"{r.checkpoint.epoch} of {r.epochs}",
                f"{r.checkpoint.learn_steps:,}",
                f"{validation.sharpe:.2f}",
                f"{test.sharpe:.2f}",
                f"{r.seconds:.1f}",
                r.checkpoint.digest[:12],
                r.device,
                r.fusion or "-",
            )
        )
    columns = (
        "run", "best epoch", "learn steps", "Sharpe, validation", "Sharpe, test", "seconds",
        "checkpoint", "device", "stage 7",
    )  # fmt: skip
    return section(
        "runs",
        "Runs",
        paragraph(
            "The checkpoint with the best Sharpe ratio on validation is the one that is tested."
            " Its digest is over its arrays: runs that agree bit for bit have the same."
        ),
        table(columns, rows),
    )


def _config(plan: Plan, root: Path) -> str:
    where = root / "config.toml"
    return section(
        "config",
        "Configuration",
        paragraph(f"As it was resolved, {where}. A run's own has its seed and its four dates."),
        f"<pre>{text(config_to_toml(plan.config))}</pre>",
    )


def _commands(plan: Plan, root: Path) -> str:
    first = RunId(0, plan.seeds[0]).folder(root)
    again = ("--config", root / "config.toml", "--run-dir", f"{root}-again")
    rows = [
        ("all of it (a new folder)", command("onegraph", "walkforward", *again)),
        ("this page and the tables", command("onegraph", "walkforward", "--resume", root)),
        ("a run's page", command("onegraph", "report", first)),
        (
            "a run's test",
            command("onegraph", "evaluate", first / "checkpoints" / "best.safetensors"),
        ),
    ]
    listed = "".join(
        f'<h3>{text(what)}</h3><pre class="command">{text(line)}</pre>' for what, line in rows
    )
    return section("commands", "Commands", listed)
