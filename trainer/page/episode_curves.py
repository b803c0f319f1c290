"""Returns and lengths of episodes over the run, for environments that the host steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onegraph.stages.page.charts import Chart, Series
from onegraph.stages.page.markup import figure
from onegraph.trainer.page.run_folder import EpochRecord

#: The figures of an epoch that each chart shows, by their names in ``metrics.jsonl``.
RETURNS = {"episode_return": "collected", "validation_return": "greedy"}
LENGTHS = {"episode_length": "collected", "validation_length": "greedy"}


def episode_curves(epochs: Sequence[EpochRecord]) -> list[str]:
    """Charts of what the epochs have of this; none where they have nothing."""
    found = []
    for name, title, y_label, fields in (
        ("returns", "Episode return", "return", RETURNS),
        ("lengths", "Episode length", "steps", LENGTHS),
    ):
        x = np.array([e.env_steps for e in epochs])
        series = [Series(label, x, _values(epochs, field)) for field, label in fields.items()]
        if drawn := [s for s in series if np.isfinite(s.y).any()]:
            svg = Chart(name, title, "env steps", y_label).lines(drawn).svg()
            what = "Mean of the episodes that ended in an epoch, and of its greedy ones."
            found.append(figure(f"figure-{name}", title, svg, what))
    return found


def _values(epochs: Sequence[EpochRecord], field: str) -> NDArray[np.float64]:
    values = [e.extra.get(field) for e in epochs]
    return np.array([np.nan if v is None else v for v in values], np.float64)
