"""The page as one HTML document that loads nothing."""

from __future__ import annotations

from pathlib import Path

from onegraph.stages.registry import format_set
from onegraph.trainer.page import sections
from onegraph.trainer.page.facts import Facts, Missing
from onegraph.trainer.page.markup import paragraph, text

STYLE = Path(__file__).with_name("style.css")

#: In the order of the page: the id of each section, its name in the navigation, its builder.
SECTIONS = (
    ("stages", "Step time", sections.step_time),
    ("phases", "Phases", sections.phases),
    ("calls", "Calls", sections.calls),
    ("learning", "Learning", sections.learning),
    ("policy", "Policy", sections.policy),
    ("graph", "Graph", sections.graph),
    ("config", "Configuration", sections.config),
    ("commands", "Commands", sections.commands),
)

#: The browser itself refuses whatever the page would load.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(facts: Facts) -> str:
    """The page.

    Raises:
        PlotUnavailableError: matplotlib is not installed.
    """
    title = f"onegraph: {facts.run.path.resolve().name}"
    links = "".join(f'<a href="#{name}">{text(label)}</a>' for name, label, _ in SECTIONS)
    body = "".join(build(facts) for _, _, build in SECTIONS)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{text(title)}</title>'
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body>"
        f"{_header(facts)}<nav><div>{links}</div></nav><main>{body}</main>{_footer(facts)}"
        "</body></html>\n"
    )


def _header(facts: Facts) -> str:
    run, last = facts.run, facts.run.epochs[-1]
    where = last.device or f"{run.config.device} (which one was not recorded)"
    about = (
        f"DQN on {run.config.env.kind}, stages {format_set(facts.stages)}, device {where}, seed"
        f" {run.config.seed}"
    )
    note = f"Measured for this page on {facts.device}: {facts.note}." if facts.note else ""
    tiles = "".join(
        f"<div><dt>{text(what)}</dt><dd>{text(value)}<small>{text(more)}</small></dd></div>"
        for what, value, more in _tiles(facts)
    )
    return (
        f'<header><h1>{text(run.path.resolve().name)}</h1><p class="sub">{text(about)}</p>'
        f'{paragraph(note, "missing") if note else ""}<dl class="tiles">{tiles}</dl></header>'
    )


def _tiles(facts: Facts) -> list[tuple[str, str, str]]:
    """The figures that one would ask for first."""
    epochs = facts.run.epochs
    last = epochs[-1]
    tiles = [
        ("learning steps", f"{last.learn_steps:,}", f"{len(epochs)} epochs"),
        ("step_ms", sections.number(last.step_ms, ".3f"), "last epoch, one step alone"),
    ]
    if not isinstance(facts.times, Missing):
        row = facts.times.entries[-1]
        tiles.append(
            ("speed-up", f"{row.speed_up.median:.2f}×", f"stages {row.stages} over stage 0")
        )
    if not isinstance(facts.calls, Missing):
        row_of = {c.label: c for c in facts.calls}
        if (own := row_of.get(format_set(facts.stages))) is not None:
            first = sum(facts.calls[0].calls.values())
            tiles.append(("device calls a step", str(sum(own.calls.values())), f"stage 0: {first}"))
    if not isinstance(facts.clusters, Missing):
        nodes = sum(len(c.nodes) for c in facts.clusters)
        tiles.append(("work nodes a step", str(nodes), f"in {len(facts.clusters)} clusters"))
    scores = [e.score for e in epochs if e.score is not None]
    if scores:
        tiles.append(("best score", f"{max(scores):.4g}", "over the epochs"))
    return tiles


def _footer(facts: Facts) -> str:
    return (
        "<footer>Made by <code>onegraph report</code> from"
        f" <code>{text(facts.run.path)}</code>. The page loads nothing.</footer>"
    )
