"""Charts of what the learner's optional parts said, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onegraph.stages.page.charts import Chart, Series
from onegraph.stages.page.markup import figure
from onegraph.trainer.page.run_folder import EpochRecord, PartRecord

Figures = Mapping[str, float | None]

#: Id, title, axis, caption, and what is drawn, by the name of its line.
CURVES: Sequence[tuple[str, str, str, str, Callable[[PartRecord], Figures]]] = (
    (
        "gradient-norms",
        "Gradient by component",
        "2-norm",
        "Before the budget, in the last step of each epoch.",
        lambda p: p.gradient_norms,
    ),
    (
        "gradient-scales",
        "Gradient budget",
        "scale",
        "What the budget scaled each component by, in the last step of each epoch.",
        lambda p: p.gradient_scales,
    ),
    (
        "readiness",
        "Readiness of the quantile head",
        "loss, weight",
        "The average of its loss, and its weight in the action values, at each epoch's end.",
        lambda p: {"average loss": p.quantile_loss, "weight": p.quantile_weight},
    ),
    (
        "spectral-norms",
        "Spectral norms",
        "largest singular value",
        "Of the online network's matrices before the cap, in the last step of each epoch.",
        lambda p: p.spectral_norms,
    ),
    (
        "vaccine",
        "Vaccine",
        "factor",
        "Of the vaccine gradient, projected out in the last step of each epoch; 0: no conflict.",
        lambda p: {"removed": p.vaccine_removed},
    ),
    (
        "aux-losses",
        "Auxiliary losses",
        "loss",
        "Mean over the batch, in the last step of each epoch.",
        lambda p: p.aux_losses,
    ),
)


def part_curves(epochs: Sequence[EpochRecord]) -> list[str]:
    """A chart for each part that said something finite; none for a part that was off."""
    x = np.array([e.learn_steps for e in epochs])
    drawn = []
    for name, title, axis, caption, figures_of in CURVES:
        found = [figures_of(e.parts) if e.parts is not None else {} for e in epochs]
        lines = dict.fromkeys(line for figures in found for line in figures)
        series = [
            Series(line, x, np.array([_or_nan(figures.get(line)) for figures in found], np.float64))
            for line in lines
        ]
        series = [s for s in series if np.isfinite(s.y).any()]
        if series:
            svg = Chart(name, title, "learning steps", axis).lines(series).svg()
            drawn.append(figure(f"figure-{name}", title, svg, caption))
    return drawn


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
