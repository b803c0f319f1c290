"""The page about a run."""

from __future__ import annotations

from onegraph.stages.page.document import PageSection, Tile, document
from onegraph.stages.page.graph_drawing import from_program
from onegraph.stages.page.markup import Missing, number, text
from onegraph.stages.page.step_figures import work_nodes
from onegraph.stages.registry import format_set
from onegraph.trainer.page import sections
from onegraph.trainer.page.facts import Facts

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


def render(facts: Facts) -> str:
    """The page.

    Raises:
        PlotUnavailableError: matplotlib is not installed.
    """
    run, last = facts.run, facts.run.epochs[-1]
    env = run.config.env
    where = last.device or f"{run.config.device} (which one was not recorded)"
    return document(
        title=run.path.resolve().name,
        about=(
            f"DQN on {env.id or env.kind}, stages {format_set(facts.stages)}, device {where}, seed"
            f" {run.config.seed}"
        ),
        note=f"Measured for this page on {facts.device}: {facts.note}." if facts.note else "",
        tiles=_tiles(facts),
        sections=[PageSection(name, label, build(facts)) for name, label, build in SECTIONS],
        footer=f"Made by <code>onegraph report</code> from <code>{text(run.path)}</code>.",
    )


def _tiles(facts: Facts) -> list[Tile]:
    """The figures that one would ask for first."""
    epochs = facts.run.epochs
    last = epochs[-1]
    tiles = [
        Tile("learning steps", f"{last.learn_steps:,}", f"{len(epochs)} epochs"),
        Tile("step_ms", number(last.step_ms, ".3f"), "last epoch, one step alone"),
    ]
    if not isinstance(facts.times, Missing):
        row = facts.times.entries[-1]
        ratio = f"{row.speed_up.median:.2f}×"
        tiles.append(Tile("speed-up", ratio, f"stages {row.stages} over stage 0"))
    if not isinstance(facts.calls, Missing):
        row_of = {c.label: c for c in facts.calls}
        if (own := row_of.get(format_set(facts.stages))) is not None:
            first = sum(facts.calls[0].calls.values())
            tiles.append(
                Tile("device calls a step", str(sum(own.calls.values())), f"stage 0: {first}")
            )
    if not isinstance(facts.program, Missing):
        drawn = from_program(facts.program)
        nodes, clusters = work_nodes(drawn), len(drawn)
        tiles.append(Tile("work nodes a step", str(nodes), f"in {clusters} clusters"))
    scores = [e.score for e in epochs if e.score is not None]
    if scores:
        tiles.append(Tile("best score", f"{max(scores):.4g}", "over the epochs"))
    return tiles
