"""What came of one run of a proof."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from onegraph.trainer.proofs.proof import Figures, Proof

Verdict = Literal["passed", "failed", "not run", "broke off"]


@dataclass(frozen=True)
class Outcome:
    """One run: a proof with one seed.

    Attributes:
        proof: its name.
        figures: what was measured at the end; empty if it did not come to that.
        verdict: passed if every target was met, else failed; or it was not run, or broke off.
        trouble: why it was not run, or broke off; empty otherwise.
        curve: (env steps, the main figure) at each epoch's end, the final measurement last.
        seconds: wall seconds, measurements included.
        fusion: the way in which stage 7 did the learning step, by its name; ``None`` if no stage
            asked for one, or the run did not come to its end.
        fusion_source: who chose it, in words.
    """

    proof: str
    seed: int
    verdict: Verdict
    figures: Figures = field(default_factory=dict)
    trouble: str = ""
    env_steps: int = 0
    learn_steps: int = 0
    seconds: float = 0.0
    curve: tuple[tuple[int, float], ...] = ()
    fusion: str | None = None
    fusion_source: str | None = None


def judged(proof: Proof, figures: Figures) -> Verdict:
    """Whether the figures meet every target of the proof."""
    met = all(target.met(figures[target.figure]) for target in proof.targets)
    return "passed" if met else "failed"


def as_json(proof: Proof, outcomes: tuple[Outcome, ...]) -> dict[str, Any]:
    """A proof with its runs, for ``results.json``; what is not finite is ``null``."""
    targets = [{**asdict(target), "text": target.text()} for target in proof.targets]
    found: dict[str, Any] = _finite(
        {
            "name": proof.name,
            "title": proof.title,
            "config": proof.config,
            "overrides": dict(proof.overrides),
            "source": proof.source,
            "targets": targets,
            "runs": [asdict(outcome) for outcome in outcomes],
        }
    )
    return found


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(item) for name, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value
