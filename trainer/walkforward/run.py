"""One run of a walk-forward: train on train, select on validation, report on the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from onegraph.kernels.device import open_device
from onegraph.stages.flags import choose_stages
from onegraph.stages.registry import format_set
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.evaluation import EquityCurve, WindowEvaluator
from onegraph.trainer.loop import Loop
from onegraph.trainer.market import Metrics
from onegraph.trainer.page.run_folder import METRICS, read_run
from onegraph.trainer.trainer import Trainer
from onegraph.trainer.walkforward.errors import WalkforwardError
from onegraph.trainer.walkforward.plan import Plan, RunId, extents
from onegraph.trainer.walkforward.result import (
    CURVES,
    FORMAT,
    CheckpointRecord,
    ResultRecord,
    as_figures,
    digest_of,
    digest_of_curves,
    write_result,
)

#: Told how much of a run is done, from 0 to 1, and a few words.
Tell = Callable[[float, str], None]


class RunDisplay:
    """A run's own progress, passed on to the one bar of the walk-forward."""

    def __init__(self, total: int, tell: Tell) -> None:
        self.total, self.tell = total, tell

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def update(self, done: float, note: str = "") -> None:
        """Tell the share that is done."""
        self.tell(min(done / self.total, 1.0), note)

    def say(self, line: str) -> None:
        """Nothing: an epoch's line stands in the run's own metrics.jsonl."""


def train_run(
    plan: Plan,
    run: RunId,
    root: Path,
    *,
    stop: Callable[[], bool] = lambda: False,
    tell: Tell = lambda _done, _note: None,
) -> ResultRecord:
    """Train a run to its end, or go on with it, and write its result.

    Args:
        plan: the walk-forward's.
        run: which window and seed.
        root: the walk-forward's folder.
        stop: asked between steps; when it says yes the state is saved.
        tell: hears how far the run is.

    Raises:
        InterruptedRunError: after saving, when `stop` said so.
        CheckpointError, DeviceUnavailableError, MarketDataError, TrainerError: the run can't be
            done.
    """
    folder = run.folder(root)
    config = plan.run_config(run, root)
    chosen = choose_stages(config=config.stages, environment={})
    device = open_device(config.device)
    trainer = Trainer(
        config,
        device,
        chosen.stages,
        say=lambda line: tell(0.0, line),
        optional=chosen.optional,
    )
    try:
        market = trainer.market
        if market is None or market.windows != plan.windows[run.window]:
            raise WalkforwardError(f"{run}: {config.env.market.data} changed while this ran")
        last = folder / "checkpoints" / "last.safetensors"
        if last.exists():
            saved = load_checkpoint(last)
            trainer.restore(saved.state, saved.progress)
        else:
            # A run that was killed before its first whole checkpoint leaves what would mislead.
            (folder / METRICS).unlink(missing_ok=True)
            (folder / "checkpoints" / "best.safetensors").unlink(missing_ok=True)
        loop = Loop(
            trainer,
            folder,
            stop=stop,
            display=lambda total, _: RunDisplay(total, tell),
        )
        loop.run()
        ended = trainer.progress
        env_steps = trainer.env_steps
        tell(1.0, "testing")
        best = load_checkpoint(loop.best_checkpoint)
        trainer.restore(best.state, best.progress)
        validation, _ = _judge(trainer, "validation")
        test, curves = _judge(trainer, "test")
        epochs = read_run(folder).epochs
        record = ResultRecord(
            format=FORMAT,
            window=run.window,
            seed=run.seed,
            bars_digest=plan.bars_digest,
            windows=extents(market.windows, market.bars),
            test=as_figures(test),
            validation=as_figures(validation),
            learn_steps=ended.learns,
            env_steps=env_steps,
            epochs=ended.epoch,
            seconds=sum(epoch.seconds or 0.0 for epoch in epochs),
            checkpoint=CheckpointRecord(
                file=str(loop.best_checkpoint.relative_to(folder)),
                digest=digest_of(best.state),
                learn_steps=best.progress.learns,
                epoch=best.progress.epoch,
                score=best.progress.best_score,
            ),
            curves_file=CURVES,
            curves_digest=digest_of_curves(curves),
            stages=format_set(trainer.stages),
            device=f"{device.kind} ({device.name})",
            fusion=trainer.fusion.name if trainer.fusion is not None else None,
        )
        write_result(folder, record, curves)
        return record
    finally:
        trainer.close()
        device.close()


def _judge(trainer: Trainer, name: str) -> tuple[dict[str, Metrics], dict[str, EquityCurve]]:
    """Figures and curves of the policy and the baselines over one window."""
    assert trainer.market is not None
    window = getattr(trainer.market.windows, name)
    evaluator = WindowEvaluator(
        trainer.programs, trainer.workspace, trainer.market, window, f"judged_{name}"
    )
    curves = {"policy": evaluator.curve(), **evaluator.baseline_curves()}
    return {label: evaluator.figures(curve) for label, curve in curves.items()}, curves
