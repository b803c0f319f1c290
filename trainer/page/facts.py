"""Everything that the page says, gathered before a line of it is written.

What can't be had (the bars moved away, no checkpoint, no GPU here) is a `Missing` with the reason,
which the page prints in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from onegraph.kernels.device import Device, DeviceError, DeviceUnavailableError, open_device
from onegraph.stages.call_columns import calls_by_kind
from onegraph.stages.flags import parse_stages
from onegraph.stages.page.graph_drawing import (
    DotError,
    DriverGraph,
    driver_graph,
)
from onegraph.stages.page.markup import Missing
from onegraph.stages.program import GraphLaunch, ProgramError, StepProgram
from onegraph.stages.registry import StageSet, apply, format_set, step_stages, up_to
from onegraph.trainer.checkpoint import CheckpointError
from onegraph.trainer.config import Config
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.envs.gym.errors import GymnasiumError
from onegraph.trainer.market import MarketDataError
from onegraph.trainer.network import QNetwork
from onegraph.trainer.offline import TransitionsError, offline_run
from onegraph.trainer.page.policy import Policy, evaluate_policy
from onegraph.trainer.page.run_folder import BENCH, RunFolder
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.stage_times import StageTimes, measure_stages, read_stage_times
from onegraph.trainer.subject import TrainerSubject
from onegraph.trainer.trainer import TrainerError
from onegraph.trainer.tuning import FusionChooser

T = TypeVar("T")

DeviceKind = Literal["auto", "cuda", "host"]

#: What may keep a piece of the page from being there; anything else is a fault of ours.
_CAUSES = (
    CheckpointError,
    DeviceError,
    DeviceUnavailableError,
    DotError,
    GymnasiumError,
    MarketDataError,
    ProgramError,
    TrainerError,
    TransitionsError,
    OSError,
)


@dataclass(frozen=True)
class StageCalls:
    """A learning step at stages 0 to n, as its program states it."""

    label: str
    name: str
    calls: Counter[str]
    nodes: int


@dataclass(frozen=True)
class Facts:
    """All that the page is made from.

    Attributes:
        stages: those of the run's last epoch.
        device: where the pieces that are measured now are measured.
        note: why that is another device than the run's; empty if it is not.
        times_from: the benchmark's file, or ``None`` when measured for the page.
    """

    run: RunFolder
    stages: StageSet
    device: str
    note: str
    times: StageTimes | Missing
    times_from: Path | None
    calls: tuple[StageCalls, ...] | Missing
    program: StepProgram | Missing
    driver: DriverGraph | Missing
    policy: Policy | Missing


def gather(run: RunFolder, device: DeviceKind | None, *, measure: bool) -> Facts:
    """Read, evaluate and measure what the page shows.

    Args:
        run: as `read_run` gives it.
        device: ``auto``, ``cuda`` or ``host``; ``None`` for the run's own, or the host where that
            is not to be had.
        measure: time the stages where the run folder has no benchmark.

    Raises:
        StageTimesError: the run folder's benchmark is damaged.
        DeviceUnavailableError: `device` was named and is not there.
    """
    stages = parse_stages(run.epochs[-1].stages or run.config.stages)
    opened, note = _open(run, device)
    config = run.config
    bench = run.path / BENCH
    times: StageTimes | Missing
    if bench.is_file():
        times = read_stage_times(bench)
    elif measure:
        times = _try(lambda: measure_stages(config, opened))
    else:
        times = Missing(f"{bench} does not exist, and measuring was switched off")
    made = _try(lambda: learn_programs(config, stages, opened))
    policy: Policy | Missing = Missing(f"{run.path / 'checkpoints'} holds no checkpoint")
    if (checkpoint := run.checkpoint) is not None:
        policy = _try(lambda: evaluate_policy(checkpoint, opened))
    return Facts(
        run=run,
        stages=stages,
        device=f"{opened.kind} ({opened.name})",
        note=note,
        times=times,
        times_from=bench if bench.is_file() else None,
        calls=made if isinstance(made, Missing) else made[0],
        program=made if isinstance(made, Missing) else made[1],
        driver=_try(lambda: captured_graph(config, opened, stages)),
        policy=policy,
    )


def _try(make: Callable[[], T]) -> T | Missing:
    try:
        return make()
    except _CAUSES as error:
        return Missing(" ".join(str(error).split()))


def _open(run: RunFolder, wanted: DeviceKind | None) -> tuple[Device, str]:
    if wanted is not None:
        return open_device(wanted), ""
    was = recorded_kind(run)
    try:
        return open_device(was), ""
    except DeviceUnavailableError as error:
        reason = " ".join(str(error).split())
        return open_device("host"), f"the run's device, {was}, is not to be had here ({reason})"


def recorded_kind(run: RunFolder) -> DeviceKind:
    """The kind of device of the last epoch, or, where it was not recorded, the config's."""
    kinds: dict[str, DeviceKind] = {"cuda": "cuda", "host": "host"}
    return kinds.get(run.epochs[-1].device.partition(" ")[0], run.config.device)


def learn_programs(
    config: Config, stages: StageSet, device: Device
) -> tuple[tuple[StageCalls, ...], StepProgram]:
    """The learning step at 0, 0 to 1, …, and the program at `stages`, as `device` has it."""
    config, offline = offline_run(config)
    environment, _ = build_environment(config, offline)
    network = QNetwork.of(config, environment)
    shapes = Shapes(config, network, config.replay.capacity)
    parts = DqnPrograms(shapes, environment, FusionChooser(shapes, environment, device))
    rows = []
    for stage in step_stages():
        on = up_to(stage.number)
        program = apply(parts.learn(), on, parts)
        nodes = sum(op.nodes() for _, op in program.ops() if isinstance(op, GraphLaunch))
        rows.append(StageCalls(format_set(on), stage.name, calls_by_kind(program), nodes))
    return tuple(rows), apply(parts.learn(), stages, parts)


def captured_graph(config: Config, device: Device, stages: StageSet) -> DriverGraph | Missing:
    """Capture one step, and read how the driver draws its graph."""
    run = TrainerSubject(config).at(stages, device)
    try:
        run.trainer.learn()
        return driver_graph(run.runners["learn"])
    finally:
        run.close()
