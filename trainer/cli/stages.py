"""``onegraph stages``: look at the stages and at what they do to the programs."""

from __future__ import annotations

import difflib
from collections import defaultdict
from typing import Annotated

import typer

from onegraph.kernels.device import HostDevice
from onegraph.stages.flags import parse_stages
from onegraph.stages.program import (
    LAUNCHING,
    GraphLaunch,
    Launch,
    LaunchGroup,
    Op,
    StepProgram,
    opened,
)
from onegraph.stages.registry import STAGES, StageSet
from onegraph.trainer.bench import SIZES, BenchSubject, named_size
from onegraph.trainer.cli.bench import open_named
from onegraph.trainer.cli.console import notes, results, table
from onegraph.trainer.cli.errors import reported
from onegraph.trainer.cli.train import ConfigOption, DeviceOption, SetOption, read_config
from onegraph.trainer.config import Config, parse_override
from onegraph.trainer.envs.base import Environment, reset_program, walk_program
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.fusing import candidates, obstacle
from onegraph.trainer.hindsight import relabelling
from onegraph.trainer.network import QNetwork
from onegraph.trainer.offline import offline_run
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.staged import staged
from onegraph.trainer.tuning import NONE, FusionChooser, choose

app = typer.Typer(
    help="Look at the stages, and at what they do to the programs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ProgramOption = Annotated[
    str,
    typer.Option(
        "--program",
        help="learn, collect, epoch (at stage 8), reset, evaluate, baseline; all: the first three.",
        show_default=True,
    ),
]


def programs_at(config: Config, stages: StageSet) -> dict[str, StepProgram]:
    """The programs with `stages` applied, as the host device has them."""
    config, offline = offline_run(config)
    environment, market = build_environment(config, offline)
    network = QNetwork.of(config, environment)
    shapes = Shapes(config, network, config.replay.capacity)
    fusion = FusionChooser(shapes, environment, HostDevice())
    programs = DqnPrograms(shapes, environment, fusion)
    found = {p.name: p for p in staged(programs, stages).all}
    if offline is None:
        found["reset"] = reset_program(environment)
    if market is not None:
        lane = market.environment.over(market.windows.validation, "validation")
        found["evaluate"] = programs.evaluate(lane)
        found["baseline"] = walk_program(lane)
    return found


def _chosen(config: Config, stages: str, program: str) -> list[StepProgram]:
    found = programs_at(config, parse_stages(stages))
    if program == "all":
        return [found[name] for name in ("learn", "collect", "epoch") if name in found]
    if program not in found:
        raise typer.BadParameter(
            f"{program!r} is none of {', '.join(found)}, all", param_hint="--program"
        )
    return [found[program]]


@app.command("list")
@reported
def list_stages() -> None:
    """The stages: number, name, what they need, and what the step is once they are on."""
    rows = table(None, "", "stage", "needs", "the step once it is on", left=4)
    for stage in STAGES:
        rows.add_row(
            str(stage.number), stage.name, ", ".join(map(str, stage.requires)), stage.summary
        )
    results().print(rows)


@app.command()
@reported
def show(
    stages: Annotated[str, typer.Argument(help="A number, a list, all or none.")],
    program: ProgramOption = "learn",
    buffers: Annotated[bool, typer.Option("--buffers", help="List the buffers too.")] = False,
    config: ConfigOption = "demo",
    overrides: SetOption = None,
) -> None:
    """Print the program as it is with these stages on."""
    for chosen in _chosen(read_config(config, overrides, None), stages, program):
        print(chosen.describe(buffers=buffers))


@app.command()
@reported
def diff(
    first: Annotated[str, typer.Argument(help="Stages on the left.")],
    second: Annotated[str, typer.Argument(help="Stages on the right.")],
    program: ProgramOption = "learn",
    config: ConfigOption = "demo",
    overrides: SetOption = None,
) -> None:
    """Print what changes in the program from one set of stages to another."""
    settings = read_config(config, overrides, None)
    sides = [
        {p.name: p.describe().splitlines() for p in _chosen(settings, text, program)}
        for text in (first, second)
    ]
    for name in dict.fromkeys(name for side in sides for name in side):
        left, right = (side.get(name, []) for side in sides)
        titles = f"{name} at {first}", f"{name} at {second}"
        if lines := list(difflib.unified_diff(left, right, *titles, lineterm="")):
            print("\n".join(lines))


def _launched(op: Op) -> str:
    """The kernel that an op launches; of products that is the device's choice."""
    if isinstance(op, LaunchGroup):
        return op.launched
    return op.kernel if isinstance(op, Launch) else "matmul"


def audit_rows(programs: dict[str, StepProgram]) -> list[tuple[str, str, str]]:
    """Every kernel with its module and the places it is launched from."""
    places: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)

    def visit(op: Op, place: str, graph: str) -> None:
        if isinstance(op, GraphLaunch):
            for inner in opened(op.body):
                visit(inner, place, f"graph {op.name}")
        elif isinstance(op, LAUNCHING):
            kernel = _launched(op)
            places[kernel, op.module][f"{place} ({graph or 'no graph'})"] = None

    for name, program in programs.items():
        for phase, op in program.ops():
            visit(op, f"{name}.{phase}", "")
    return [
        (kernel, module, ", ".join(where)) for (kernel, module), where in sorted(places.items())
    ]


@app.command()
@reported
def audit(
    stages: Annotated[str, typer.Argument(help="A number, a list, all or none.")] = "all",
    config: ConfigOption = "demo",
    overrides: SetOption = None,
) -> None:
    """List every kernel, the module it comes from, and where it is launched from."""
    found = audit_rows(programs_at(read_config(config, overrides, None), parse_stages(stages)))
    rows = table(None, "kernel", "module", "launched from", left=3)
    for row in found:
        rows.add_row(*row)
    results().print(rows)
    if any(module == "shared" for _, module, _ in found):
        print("shared: these stages keep one module; gpu-counters splits it")


@app.command()
@reported
def fusions(
    size: Annotated[
        str | None,
        typer.Option("--size", help=f"A size of the benchmark: {', '.join(SIZES)}."),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    device: DeviceOption = None,
) -> None:
    """List the ways in which stage 7 can do a learning step, and which it takes.

    On a GPU each is timed beside the step as its phases are; the times are kept for later runs.
    """
    if size is not None and config is not None:
        raise typer.BadParameter("a size is a config of its own; give one", param_hint="--size")
    shapes: Shapes
    environment: Environment
    if size is not None:
        given = dict(parse_override(text) for text in overrides or ())
        subject = BenchSubject(named_size(size), given)
        shapes, environment = subject.shapes, subject.environment
        kind = device or "auto"
    else:
        settings = read_config(config or "demo", overrides, device)
        environment, _ = build_environment(settings)
        network = QNetwork.of(settings, environment)
        shapes = Shapes(settings, network, settings.replay.capacity)
        kind = settings.device
    with open_named(kind) as opened:
        choice = choose(shapes, environment, opened, say=notes().print)
        known = candidates(shapes, opened, relabelling(shapes.config, environment))
        where, why_not = opened.name, obstacle(shapes, opened)
    times = choice.times.median_us if choice.times is not None else {}
    refused = choice.times.refused if choice.times is not None else {}
    rows = table(f"Learning step on {where}", "way", "shared memory, bytes", "us a step")
    for name, shared in [(NONE, 0), *((s.name, s.shared_bytes) for s in known)]:
        us = f"{times[name]:.1f}" if name in times else "refused" if name in refused else "-"
        rows.add_row(name, f"{shared:,}" if shared else "", us)
    results().print(rows)
    for name, why in refused.items():
        print(f"{name}: {why}")
    if why_not:
        print(why_not)
    print(f"stage 7 takes {choice}")
