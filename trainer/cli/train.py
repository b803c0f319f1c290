"""``onegraph train``, ``evaluate`` and ``config``."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import numpy as np
import typer

from onegraph.kernels.device import open_device
from onegraph.kernels.learner.categorical import support
from onegraph.stages.flags import StageChoice, choose_stages
from onegraph.stages.phase_report import PhaseReport
from onegraph.stages.registry import ALL, stage_names
from onegraph.trainer.action_values import q_error, q_table
from onegraph.trainer.checkpoint import CHECKPOINTS, Checkpoint, load_checkpoint
from onegraph.trainer.cli.console import notes, results, table
from onegraph.trainer.config import (
    Config,
    config_reference,
    load_config,
    override_config,
    parse_override,
    shipped_configs,
)
from onegraph.trainer.envs.bit_flip import BitFlipEnvironment
from onegraph.trainer.envs.coin import OUTCOMES, CoinEnvironment
from onegraph.trainer.envs.gym.environment import GymnasiumEnvironment
from onegraph.trainer.envs.tabular import TabularEnvironment
from onegraph.trainer.episodes import MOST_STEPS, EpisodeEvaluator
from onegraph.trainer.evaluation import GoalEvaluator, WindowEvaluator
from onegraph.trainer.loop import Loop
from onegraph.trainer.market import Metrics, comparison_rows
from onegraph.trainer.market.calendar import summary
from onegraph.trainer.offline import RecordedEnvironment, held_out_figures
from onegraph.trainer.progress import ProgressDisplay
from onegraph.trainer.run_directory import RunDirectory
from onegraph.trainer.trainer import Trainer, TrainerError

#: Shown below ``onegraph train --help``: every field that a config file or ``--set`` can give.
FIELDS_EPILOG = "\n\n".join(
    ["Config fields (in the TOML file, or with --set field=value):"]
    + [f"{f.name} ({f.type}, default {f.default}): {f.description}" for f in config_reference()]
)

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        help=f"A TOML file, or the name of a shipped config: {', '.join(shipped_configs())}.",
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override a config field: --set learn.gamma=0.9")
]
StagesOption = Annotated[
    str | None,
    typer.Option(
        "--stages",
        help="Stages that are on: all, none, n for 0 to n, or a list (all,-phase-events). Goes"
        " before ONEGRAPH_STAGES and the config.",
    ),
]
TransitionsOption = Annotated[
    str | None,
    typer.Option(
        "--transitions",
        help="Learn from the transitions in this .npz or .parquet file, without stepping an"
        " environment (offline.transitions; docs/offline.md).",
    ),
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="auto, cuda or host; default: the config's")
]


EnvOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="ID",
        help="An environment of gymnasium (CartPole-v1, module:Name-v0); without --config the"
        " shipped config gymnasium is what it starts from.",
    ),
]


def read_config(
    name: str | None, overrides: list[str] | None, device: str | None, env: str | None = None
) -> Config:
    """The config from a file and the command line."""
    values = _given(overrides, device)
    if env is None:
        return load_config(name, values)
    chosen: dict[str, object] = {"env.kind": "gymnasium", "env.id": env}
    return load_config("gymnasium" if name is None else name, chosen | values)


def _given(overrides: list[str] | None, device: str | None) -> dict[str, object]:
    values: dict[str, object] = dict(parse_override(text) for text in overrides or ())
    if device is not None:
        values["device"] = device
    return values


def train(
    config: ConfigOption = None,
    env: EnvOption = None,
    overrides: SetOption = None,
    stages: StagesOption = None,
    device: DeviceOption = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", help="Folder of the run; default: the config's.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="A run folder or checkpoint to go on from, with its config."),
    ] = None,
    transitions: TransitionsOption = None,
    tensorboard: Annotated[
        bool | None,
        typer.Option(
            "--tensorboard/--no-tensorboard",
            help="Write event files into the run's folder; default: the config's.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train. Ctrl-C saves the state and exits with 130; --resume goes on from it."""
    if transitions is not None:
        named = any(given is not None for given in (config, env, resume))
        overrides = _with_transitions(transitions, overrides or [], environment_named=named)
    if tensorboard is not None:
        overrides = [*(overrides or ()), f"loop.tensorboard={str(tensorboard).lower()}"]
    if resume is not None:
        if env is not None:
            raise TrainerError(
                f"--env {env} with --resume {resume}: a resumed run goes on in its own environment;"
                " leave --env out"
            )
        if config is not None:
            raise TrainerError(
                f"--config {config} with --resume {resume}: a resumed run has its own config; leave"
                " --config out, and change single fields with --set"
            )
        if resume.is_dir():
            RunDirectory(resume).refuse_if_busy()
        checkpoint = load_checkpoint(resume)
        settings = resumed_config(checkpoint, overrides, device)
        folder = run_folder_of(checkpoint, run_dir, Path(settings.run_dir))
    else:
        checkpoint = None
        settings = read_config(config, overrides, device, env)
        folder = run_dir or Path(settings.run_dir)
        refuse_used_folder(folder)
    run_training(settings, choose_stages(stages, settings.stages), folder, checkpoint)


def _with_transitions(path: str, overrides: list[str], *, environment_named: bool) -> list[str]:
    """The overrides of a run that learns from a file; without an environment, none is there."""
    if not environment_named and not any(o.strip().startswith("env.") for o in overrides):
        overrides = [*overrides, "env.kind=recorded"]
    return [*overrides, f"offline.transitions={json.dumps(path)}"]


def resumed_config(
    checkpoint: Checkpoint, overrides: list[str] | None, device: str | None
) -> Config:
    """The checkpoint's config with what the command line changes."""
    return override_config(checkpoint.config, _given(overrides, device), str(checkpoint.path))


def run_folder_of(checkpoint: Checkpoint, asked: Path | None, otherwise: Path) -> Path:
    """Where a run goes on: in the folder that was asked for, or the one that it was in.

    Args:
        checkpoint: of the run.
        asked: for a folder; ``None`` for the checkpoint's own.
        otherwise: for a file that was moved out of a run folder.

    Raises:
        TrainerError: a folder that is not the run's own holds a run.
        RunBusyError: a process trains in the folder.
    """
    parent = checkpoint.path.parent if checkpoint.path.parent.name else Path.cwd()
    own = parent.parent if parent.name == CHECKPOINTS else None
    folder = asked or own or otherwise
    if own is not None and folder.resolve() == own.resolve():
        RunDirectory(folder).refuse_if_busy()
    else:
        refuse_used_folder(folder)
    return folder


def refuse_used_folder(folder: Path) -> None:
    """A new run does not write over another's files.

    What a run left that was killed before its first checkpoint is no hindrance: there is nothing
    to go on from. The loop moves its metrics aside.

    Raises:
        TrainerError: the folder holds a run.
        RunBusyError: a process trains in the folder.
    """
    run = RunDirectory(folder)
    run.refuse_if_busy()
    if there := run.checkpoints:
        how = folder if run.last in there else there[0]
        raise TrainerError(
            f"{folder} holds a run already; go on with it (--resume {how}), or name another"
            " folder (--run-dir)"
        )
    if run.metrics.exists() and not run.lock.exists():
        raise TrainerError(
            f"{folder} holds the metrics of another run; remove them, or name another folder"
            " (--run-dir)"
        )


def run_training(
    config: Config, choice: StageChoice, folder: Path, checkpoint: Checkpoint | None
) -> Trainer:
    """Train to the end, with the summary that a user sees; gives the trainer back."""
    console = notes()
    device = open_device(config.device)
    trainer = Trainer(config, device, choice.stages, say=console.print, optional=choice.optional)
    if checkpoint is not None:
        trainer.restore(checkpoint.state, checkpoint.progress)
        if checkpoint.note:
            console.print(f"{checkpoint.path} {checkpoint.note}", markup=False)
    where = f"from {checkpoint.path}, " if checkpoint is not None else ""
    console.print(
        f"{where}device {device.kind} ({device.name}), stages {stage_names(trainer.stages)}"
        f" (by {choice.source}), run folder {folder}"
    )
    if trainer.market is not None:
        console.print(f"bars {summary(trainer.market.bars)}", markup=False)
        for note in trainer.market.bars.notes:
            console.print(f"note: {note}", markup=False)
    if trainer.fusion is not None:
        console.print(f"stage 7: {trainer.fusion}", markup=False)
    with stop_on_signal() as asked:
        loop = Loop(trainer, folder, stop=asked)
        epochs = loop.run()
    if epochs and epochs[-1].phases is not None:
        print_phases(epochs[-1].phases)
    print_result(trainer)
    results().print(f"checkpoints: {loop.last_checkpoint} and {loop.best_checkpoint.name}")
    return trainer


@contextmanager
def stop_on_signal() -> Iterator[Any]:
    """Gives a function that says whether Ctrl-C or SIGTERM came; the second Ctrl-C is immediate."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_phases(report: PhaseReport) -> None:
    """The phase table of the last epoch."""
    rows = table(
        "Learning step by phase (device time)",
        "phase",
        "last, ms",
        f"mean of {report.timed_steps}, ms",
    )
    for name, mean in report.mean.items():
        rows.add_row(name, f"{report.last[name]:.4f}", f"{mean:.4f}")
    results().print(rows)
    results().print(report.diagnosis)


def print_result(trainer: Trainer, window: str = "test") -> None:
    """What the environment measures a policy by.

    Test-window figures beside the baselines, the share of goals that are reached, the coin's
    returns, greedy episodes, or action values.
    """
    if trainer.market is not None:
        evaluator = WindowEvaluator(
            trainer.programs,
            trainer.workspace,
            trainer.market,
            getattr(trainer.market.windows, window),
            window,
        )
        print_metrics({"policy": evaluator.metrics(), **evaluator.baselines()}, window)
    elif isinstance(trainer.environment, BitFlipEnvironment):
        goals = GoalEvaluator(trainer.programs, trainer.workspace, trainer.environment)
        rate, episodes = goals.success_rate(), goals.episodes
        results().print(f"goals reached: {rate:.1%} of {episodes} greedy episodes")
    elif isinstance(trainer.environment, CoinEnvironment):
        print_returns(trainer)
    elif isinstance(trainer.environment, RecordedEnvironment):
        print_recorded(trainer)
    elif isinstance(trainer.environment, GymnasiumEnvironment):
        if trainer.environment.fresh is not None:
            print_episodes(trainer, trainer.environment)
    elif isinstance(trainer.environment, TabularEnvironment):
        exact = trainer.environment.optimal_q(trainer.config.learn.gamma)
        rows = table("Action values", "state", "learned", "exact")
        with np.printoptions(precision=5, suppress=True):
            for state, row in enumerate(q_table(trainer, trainer.environment)):
                rows.add_row(str(state), str(row), str(exact[state]))
        results().print(rows)
        results().print(f"largest error: {q_error(trainer, trainer.environment):.3g}")


def print_recorded(trainer: Trainer) -> None:
    """What recorded transitions alone can say: loss, mean Q, and the error on what is held out."""
    assert trainer.offline is not None
    if trainer.progress.learns:
        last = trainer.history(trainer.shapes.ring)
        results().print(
            f"mean Q {last['q_mean'].mean():.4g}, loss {last['loss'].mean():.4g}, over the last"
            f" {last['loss'].size:,} learning steps"
        )
    if trainer.offline.held_out is not None:
        found = held_out_figures(trainer, trainer.offline.held_out)
        results().print(
            f"held out: mean |TD error| {found['held_out_td']:.4g}, mean Q"
            f" {found['held_out_q']:.4g}, {trainer.offline.held_out.rows:,} rows"
        )
    results().print("no environment was named, so the policy was not evaluated (env.kind)")


def print_episodes(trainer: Trainer, environment: GymnasiumEnvironment) -> None:
    """Returns of greedy episodes in lanes seeded apart from training's."""
    episodes = trainer.config.env.evaluation_episodes
    with ProgressDisplay(episodes, "greedy episodes") as display:
        figures = EpisodeEvaluator(trainer, environment, episodes).run(display.update)
    results().print(f"{len(figures.returns)} greedy episodes of {environment.id}:")
    rows = table(None, "figure", "value")
    for name, value in figures.named("").items():
        rows.add_row(name.replace("_", " "), f"{value:.6g}")
    results().print(rows)
    if figures.cut:
        results().print(
            f"{figures.cut} episodes had not ended after {MOST_STEPS:,} steps and were cut; set"
            " env.max_episode_steps"
        )


def print_returns(trainer: Trainer) -> None:
    """The coin's returns as the network has them: their mean, and their distribution if any."""
    toss = np.ones((1, 1), np.float32)
    mean = trainer.q_values(toss)[0, 0]
    if trainer.network.iqn is not None:
        # Evenly spread levels: the few that acting draws may lie on one side.
        even = ((np.arange(64) + 0.5) / 64).astype(np.float32)
        mean = trainer.quantiles(toss, even)[0, 0].mean()
    results().print(f"mean return: {mean:.3f} (exact: 0.5)")
    if trainer.network.iqn is not None:
        levels = (np.arange(1, 16, 2) / 16).astype(np.float32)
        rows = table("Quantiles of the return", "level", "learned", "exact")
        for level, value in zip(levels, trainer.quantiles(toss, levels)[0, 0], strict=True):
            rows.add_row(f"{level:.4f}", f"{value:.3f}", f"{int(level > 0.5)}")
        results().print(rows)
    elif (head := trainer.network.c51) is not None:
        rows = table("Probabilities of the return", "return", "learned", "exact")
        places = support(head.atoms, head.v_min, head.v_max)
        for place, mass in zip(places, trainer.atom_masses(toss)[0, 0], strict=True):
            rows.add_row(f"{place:.3g}", f"{mass:.3f}", f"{0.5 * (place in OUTCOMES):.1f}")
        results().print(rows)


def print_metrics(figures: dict[str, Metrics], window: str) -> None:
    """The comparison table of a window."""
    header, *lines = comparison_rows(figures)
    rows = table(f"Greedy policy on the {window} window", *header)
    for line in lines:
        rows.add_row(*line)
    results().print(rows)


def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a checkpoint file.")],
    device: DeviceOption = None,
    window: Annotated[
        str, typer.Option("--window", help="train, validation or test (markets).")
    ] = "test",
    overrides: SetOption = None,
) -> None:
    """Run the greedy policy of a checkpoint and print its figures beside the baselines."""
    if window not in ("train", "validation", "test"):
        raise TrainerError(f"--window {window!r}: choose train, validation or test")
    loaded = load_checkpoint(checkpoint)
    config = resumed_config(loaded, overrides, device)
    trainer = Trainer(config, open_device(config.device), ALL, optional=ALL)
    trainer.restore(loaded.state, loaded.progress)
    if loaded.note:
        notes().print(f"{loaded.path} {loaded.note}", markup=False)
    notes().print(f"{loaded.path}: {loaded.progress.learns:,} learning steps")
    print_result(trainer, window)


def show_config(config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Print the config as it resolves, as TOML; every field with its value."""
    from onegraph.trainer.config import config_to_toml

    print(config_to_toml(read_config(config, overrides, None)))
