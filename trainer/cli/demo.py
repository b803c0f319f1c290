"""``onegraph demo``: train on the shipped bars, then show what each stage does to a step."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from onegraph.kernels.device import open_device
from onegraph.stages.call_columns import CALL_COLUMNS, call_rows
from onegraph.stages.flags import choose_stages
from onegraph.stages.registry import step_stages, up_to
from onegraph.trainer.checkpoint import load_checkpoint
from onegraph.trainer.cli.console import results, table
from onegraph.trainer.cli.train import (
    DeviceOption,
    print_result,
    read_config,
    refuse_used_folder,
    run_training,
)
from onegraph.trainer.config import Config, load_config
from onegraph.trainer.run_directory import RunDirectory
from onegraph.trainer.trainer import Trainer

#: The demo's own folder, which every demo starts anew.
RUN_DIR = Path("runs/demo")

#: Steps that the comparison of the stages runs at each stage.
COMPARED_STEPS = 12


def demo(
    device: DeviceOption = "host",
    run_dir: Annotated[
        Path,
        typer.Option("--run-dir", help="Folder of the run; in the default one the last demo goes."),
    ] = RUN_DIR,
) -> None:
    """Train on the shipped daily bars with all stages on, and compare the stages."""
    config = read_config("demo", None, device)
    open_device(config.device).close()  # before the last demo is thrown away
    if run_dir != RUN_DIR:
        refuse_used_folder(run_dir)
    RunDirectory(run_dir).refuse_if_busy()
    for old in (run_dir / "checkpoints").glob("*.safetensors"):
        old.unlink()
    (run_dir / "metrics.jsonl").unlink(missing_ok=True)
    trainer = run_training(config, choose_stages(None, config.stages), run_dir, None)
    best = load_checkpoint(run_dir / "checkpoints" / "best.safetensors")
    if best.progress.learns != trainer.progress.learns:
        trainer.restore(best.state, best.progress)
        results().print(f"the policy that was best on validation, of epoch {best.progress.epoch}:")
        print_result(trainer)
    print_stage_calls(config)


def comparison_config(config: Config) -> Config:
    """The same run, small enough to take a few steps of at every stage."""
    small = {"loop.start_steps": max(config.learn.batch_size, config.env.lanes)}
    values = {"loop.epoch_steps": COMPARED_STEPS, "loop.timed_steps": 1, "device": config.device}
    return load_config("demo", {**small, **values})


def print_stage_calls(config: Config) -> None:
    """Device calls of a learning step in steady state at each stage, as the ledger counted them."""
    small = comparison_config(config)
    rows = table(
        "Device calls of one learning step, counted as it ran",
        "stages",
        *CALL_COLUMNS,
        "parameters after",
    )
    for stage in step_stages():
        trainer = Trainer(small, open_device(config.device), up_to(stage.number))
        for _ in range(-(-small.loop.start_steps // small.env.lanes)):
            trainer.collect()
        for _ in range(COMPARED_STEPS):
            counts = trainer.learn()
            trainer.collect()
        digest = hashlib.sha256(trainer.parameters().tobytes()).hexdigest()[:12]
        label = f"0 to {stage.number} {stage.name}" if stage.number else f"0 {stage.name}"
        rows.add_row(label, *map(str, call_rows(counts.by_kind())), digest)
        trainer.close()
    results().print(rows)
