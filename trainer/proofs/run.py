"""One run of a proof: train, measure at each epoch's end, judge."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from onegraph.kernels.device import open_device
from onegraph.stages.registry import ALL, StageSet
from onegraph.trainer.loop import EpochSummary, Loop
from onegraph.trainer.proofs.outcome import Outcome, judged
from onegraph.trainer.proofs.proof import Proof
from onegraph.trainer.trainer import Trainer

#: What is told of a run while it goes: its env steps so far.
Tell = Callable[[int], None]


@dataclass(frozen=True)
class Task:
    """A proof to run with one seed.

    Attributes:
        folder: the run's own, which is made anew.
        optional: those of the stages that are left out where they can't be on.
        more: overrides over the proof's.
    """

    proof: Proof
    seed: int
    device: str
    folder: Path
    stages: StageSet = ALL
    more: Mapping[str, object] = field(default_factory=dict)
    optional: StageSet = ALL

    @property
    def label(self) -> str:
        return f"{self.proof.name}, seed {self.seed}"

    @property
    def steps(self) -> int:
        """Env steps of the whole run."""
        return self.proof.settings(self.seed, self.device, self.more).loop.total_env_steps


def run_task(task: Task, tell: Tell = lambda _: None) -> Outcome:
    """Train to the end and measure; what the run prints goes to ``log.txt`` in its folder.

    An error of the run is an outcome too, with its first line as `trouble`; the whole of it is in
    the log.
    """
    if missing := task.proof.missing():
        words = " and ".join(f"{m.package}: pip install 'onegraph[{m.extra}]'" for m in missing)
        return Outcome(task.proof.name, task.seed, "not run", trouble=f"it needs {words}")
    _empty(task.folder)
    started = time.perf_counter()
    log = task.folder / "log.txt"
    with log.open("w", encoding="utf-8") as out, redirect_stdout(out), redirect_stderr(out):
        try:
            return _trained(task, tell, started)
        except Exception as error:  # noqa: BLE001  the other proofs still have to be run
            import traceback

            traceback.print_exc()
            line = next(iter(str(error).splitlines()), "") or type(error).__name__
            return Outcome(
                task.proof.name,
                task.seed,
                "broke off",
                trouble=f"{type(error).__name__}: {line} ({log})",
                seconds=time.perf_counter() - started,
            )


def _empty(folder: Path) -> None:
    """Remove the last run of the same name, and nothing else that may lie there."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for name in ("metrics.jsonl", "config.toml", "log.txt"):
        (folder / name).unlink(missing_ok=True)


def _trained(task: Task, tell: Tell, started: float) -> Outcome:
    proof = task.proof
    config = proof.settings(task.seed, task.device, task.more)
    with (
        open_device(config.device) as device,
        closing(Trainer(config, device, task.stages, say=print, optional=task.optional)) as trainer,
    ):
        return _measured(task, trainer, tell, started)


def _measured(task: Task, trainer: Trainer, tell: Tell, started: float) -> Outcome:
    proof = task.proof
    curve: list[tuple[int, float]] = []

    def after_epoch(summary: EpochSummary) -> None:
        point = proof.point(trainer, summary)
        if point is None:
            point = proof.measure(trainer)[proof.main.figure]
        curve.append((summary.env_steps, point))
        tell(summary.env_steps)

    Loop(trainer, task.folder, after_epoch=after_epoch).run()
    figures = proof.measure(trainer)
    curve = [p for p in curve if p[0] < trainer.env_steps]
    curve.append((trainer.env_steps, figures[proof.main.figure]))
    fusion = trainer.fusion
    return Outcome(
        proof=proof.name,
        seed=task.seed,
        figures=figures,
        verdict=judged(proof, figures),
        env_steps=trainer.env_steps,
        learn_steps=trainer.progress.learns,
        seconds=time.perf_counter() - started,
        curve=tuple(curve),
        fusion=fusion.name if fusion is not None else None,
        fusion_source=fusion.source if fusion is not None else None,
    )
