"""The results of the proofs as a table, as JSON and as pictures."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from onegraph.trainer.proofs.outcome import Outcome, as_json
from onegraph.trainer.proofs.plot import draw_curves
from onegraph.trainer.proofs.proof import Proof

RESULTS = "results.json"


def results_table(proofs: Sequence[Proof], outcomes: Sequence[Outcome]) -> Table:
    """A row for each target of each run."""
    rows = Table(title="Learning proofs")
    for name in ("proof", "seed", "measured"):
        rows.add_column(name, overflow="fold")
    for name in ("reached", "target", "verdict", "env steps", "learn steps", "seconds"):
        rows.add_column(name, justify="right")
    for proof in proofs:
        for outcome in (o for o in outcomes if o.proof == proof.name):
            _add(rows, proof, outcome)
    return rows


def _add(rows: Table, proof: Proof, outcome: Outcome) -> None:
    spent = (
        f"{outcome.env_steps:,}",
        f"{outcome.learn_steps:,}",
        f"{outcome.seconds:.1f}",
    )
    for i, target in enumerate(proof.targets):
        reached = outcome.figures.get(target.figure)
        if outcome.trouble or reached is None:
            verdict, shown = outcome.verdict, "-"
        else:
            verdict, shown = "passed" if target.met(reached) else "failed", f"{reached:.5g}"
        head = (proof.name, str(outcome.seed)) if i == 0 else ("", "")
        tail = spent if i == 0 else ("", "", "")
        rows.add_row(*head, target.figure, shown, target.text(), verdict, *tail)


def different_kernels(proofs: Sequence[Proof], outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each proof whose seeds stage 7 did in different ways, which round differently."""
    lines = []
    for proof in proofs:
        seeds: dict[str, list[str]] = {}
        for o in outcomes:
            if o.proof == proof.name and o.fusion is not None:
                seeds.setdefault(o.fusion, []).append(str(o.seed))
        if len(seeds) > 1:
            ways = "; ".join(f"{name} (seed {', '.join(of)})" for name, of in seeds.items())
            lines.append(
                f"{proof.name}: seeds ran by different kernels: {ways}; to have the same for all,"
                " name one: --set fusion=NAME"
            )
    return lines


def write_results(
    proofs: Sequence[Proof],
    outcomes: Sequence[Outcome],
    folder: Path,
    *,
    device: str,
    stages: str,
    more: Mapping[str, object],
) -> Path:
    """Write ``results.json`` into `folder`."""
    found = {
        "machine": {
            "device": device,
            "system": platform.platform(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "stages": stages,
        "overrides": dict(more),
        "proofs": [
            as_json(proof, tuple(o for o in outcomes if o.proof == proof.name)) for proof in proofs
        ],
    }
    path = folder / RESULTS
    path.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path


def draw_all(proofs: Sequence[Proof], outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Every proof's learning curve."""
    paths: list[Path] = []
    for proof in proofs:
        paths += draw_curves(proof, [o for o in outcomes if o.proof == proof.name], folder)
    return paths
