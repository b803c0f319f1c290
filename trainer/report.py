"""What an epoch looked like: where a step's time went, and what that means."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from onegraph.stages.registry import STAGES, StageSet
from onegraph.stages.runner import PhaseTimes
from onegraph.trainer.trainer import Trainer

#: Below this share of the wall time, the phases leave the device idle for long.
BUSY_SHARE = 0.5

#: The columns of the calls table, and the ledger kinds that each sums.
CALL_COLUMNS = {
    "launches": ("launch", "matmul"),
    "graph launches": ("graph_launch",),
    "HtoD": ("htod",),
    "DtoH": ("dtoh",),
    "DtoD": ("dtod",),
    "memsets": ("memset", "memset_sync"),
    "allocs, frees": ("alloc", "free"),
    "syncs": ("sync",),
    "host ops": ("host",),
}


@dataclass(frozen=True)
class PhaseReport:
    """Phase times of an epoch.

    Attributes:
        last, mean: milliseconds by phase, of the last timed step and over all timed steps.
        timed_steps: how many those were.
        diagnosis: one sentence on what bounds the step.
    """

    last: dict[str, float]
    mean: dict[str, float]
    timed_steps: int
    diagnosis: str


def phase_report(times: PhaseTimes, step_ms: float) -> PhaseReport | None:
    """Read an epoch's event times against the wall time of a step; ``None`` without any."""
    if not times.steps:
        return None
    last = {name: values[-1] for name, values in times.phases.items()}
    mean = {name: float(np.mean(values)) for name, values in times.phases.items()}
    total = sum(mean.values())
    slowest = max(mean, key=lambda name: mean[name])
    if total < BUSY_SHARE * step_ms:
        diagnosis = (
            f"the phases take {total:.3f} ms of a {step_ms:.3f} ms step: the device waits on the"
            " host (pipeline stall, launch-bound)"
        )
    else:
        share = mean[slowest] / total if total else 0.0
        diagnosis = f"the slowest phase is {slowest}: {mean[slowest]:.3f} ms, {share:.0%} of them"
    return PhaseReport(last, mean, len(times.steps), diagnosis)


def call_rows(counts: Counter[str]) -> list[int]:
    """A step's calls in the columns of `CALL_COLUMNS`."""
    return [sum(counts[kind] for kind in kinds) for kinds in CALL_COLUMNS.values()]


def program_calls(trainer: Trainer) -> dict[str, list[int]]:
    """Device calls of a steady step by program, as the programs state them."""
    rows = {}
    for program in (trainer.learn_program, trainer.collect_program):
        total: Counter[str] = Counter()
        for (_, kind), n in program.calls().items():
            total[kind] += n
        rows[program.name] = call_rows(total)
    return rows


def stage_names(stages: StageSet) -> str:
    """The names of the stages that are on, for a line of the log."""
    return ", ".join(f"{s.number} {s.name}" for s in STAGES if s.number in stages) or "0 legacy"
