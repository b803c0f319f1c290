"""The learning curve of a proof as a picture: a line for each seed, the target across."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onegraph.stages.page.charts import require_plots
from onegraph.trainer.proofs.outcome import Outcome
from onegraph.trainer.proofs.proof import Proof

#: Inches.
SIZE = (6.4, 3.8)


def draw_curves(proof: Proof, outcomes: Sequence[Outcome], folder: Path) -> tuple[Path, ...]:
    """Write ``NAME.png`` and ``NAME.svg`` into `folder`; gives their paths, none without a curve.

    Raises:
        PlotUnavailableError: matplotlib is not installed.
    """
    require_plots()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawn = [o for o in outcomes if o.curve]
    if not drawn:
        return ()
    main = proof.main
    with mpl.rc_context({"svg.hashsalt": "onegraph", "text.parse_math": False, "font.size": 9.0}):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        for outcome in drawn:
            steps, values = np.array(outcome.curve, np.float64).T
            label = f"seed {outcome.seed}: {values[-1]:.4g}, {outcome.verdict}"
            axes.plot(steps, values, marker="o" if len(steps) <= 24 else "", ms=3, label=label)
        axes.axhline(main.value, color="black", linestyle="--", lw=1, label=f"target {main.text()}")
        if main.tolerance:
            low, high = main.value - main.tolerance, main.value + main.tolerance
            axes.axhspan(low, high, color="black", alpha=0.12, lw=0)
        points = [value for o in drawn for _, value in o.curve]
        if main.sense == "at most" and max(points) > 100 * min(points) > 0:
            axes.set_yscale("log")
        axes.set_xlabel("env steps")
        axes.set_ylabel(main.figure)
        axes.set_title(proof.title)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8.0)
        paths = tuple(folder / f"{proof.name}.{kind}" for kind in ("png", "svg"))
        for path in paths:
            about = {"Software": None} if path.suffix == ".png" else {"Date": None}
            figure.savefig(path, dpi=150, metadata=about)
    return paths
