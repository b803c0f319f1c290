"""``onegraph bench``: the learning step's time at each stage, side by side, and its peers'."""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, cast

import numpy as np
import typer
from rich.table import Table

from onegraph.kernels.device import Device, open_device
from onegraph.stages.bench import (
    BenchResult,
    Candidate,
    PhaseProfile,
    bench,
    profile_phases,
)
from onegraph.stages.bench_table import figures, times_table
from onegraph.stages.flags import parse_stages
from onegraph.stages.peaks import measured_peaks
from onegraph.stages.registry import ALL, STAGES, StageSet, up_to
from onegraph.stages.roofline_table import roofline_notes, roofline_table
from onegraph.trainer.bench import SIZES, BenchSubject, named_size, tensor_core_steps
from onegraph.trainer.bench_epoch import EpochResult, bench_epochs, epoch_subject, rounds_of
from onegraph.trainer.cli.console import notes, results, table
from onegraph.trainer.cli.train import DeviceOption, SetOption
from onegraph.trainer.config import parse_override
from onegraph.trainer.roofline import roofline_of
from onegraph.trainer.trainer import TrainerError

#: Where a checkout keeps the peers; they are no part of the package, which knows no framework.
PEERS = Path(__file__).resolve().parents[2] / "tests" / "bench" / "peers" / "__init__.py"

Kind = Annotated[
    list[str] | None,
    typer.Option("--size", help=f"{', '.join(SIZES)}; may be repeated. Default: S."),
]


def run_bench(
    size: Kind = None,
    stages: Annotated[
        list[str] | None,
        typer.Option(
            "--stages",
            help="A set of stages to time; may be repeated, the first is what ratios are to."
            " Default: 0, 0 to 1, … up to all.",
        ),
    ] = None,
    device: DeviceOption = "auto",
    rounds: Annotated[int, typer.Option("--rounds", help="Samples of each.", min=1)] = 20,
    peers: Annotated[
        bool,
        typer.Option("--peers/--no-peers", help="Time the step in other libraries too."),
    ] = False,
    phases: Annotated[
        bool,
        typer.Option("--phases", help="Profile the phases with every stage on instead."),
    ] = False,
    epoch: Annotated[
        bool,
        typer.Option(
            "--epoch",
            help="Time whole epochs instead, the environment and the host's share included: 1,000"
            " learning steps and 250 steps of 64 lanes. Default size: M; stages: 0 to 6, and all.",
        ),
    ] = False,
    roofline: Annotated[
        bool,
        typer.Option(
            "--roofline",
            help="Show what bounds the step beside its time instead: memory, arithmetic, and nodes"
            " in a row. Default stages: all.",
        ),
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every sample to this file.")
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Time the learning step at sets of stages, interleaved in rounds, over a full replay.

    The sizes' fields can be overridden with --set; states=N sets the width of a state.
    """
    if json_file is not None and not json_file.resolve().parent.is_dir():
        raise TrainerError(f"--json {json_file}: there is no such folder; make it first")
    given = dict(parse_override(text) for text in overrides or ())
    asked = {"--epoch": epoch, "--phases": phases, "--roofline": roofline}
    if len(several := [name for name, on in asked.items() if on]) > 1:
        raise TrainerError(f"{' and '.join(several)} are two benchmarks; leave one out")
    if roofline and peers:
        raise TrainerError("--roofline has no programs of --peers to count; leave one out")
    if epoch:
        chosen = [parse_stages(text) for text in stages or ("6", "all")]
        epochs = [epoch_subject(name, given) for name in size or ["M"]]
        run_epochs(epochs, chosen, device or "auto", rounds, peers=peers, json_file=json_file)
        return
    say = notes().print
    subjects = [BenchSubject(named_size(name), given, say=say) for name in size or ["S"]]
    for subject in subjects:  # what is wrong is said before anything is measured
        _ = subject.shapes
    sets = [parse_stages(text) for text in stages] if stages else cumulative_sets()
    opened = open_named(device or "auto")
    if roofline:
        run_rooflines(subjects, sets if stages else [ALL], opened, rounds, json_file)
        return
    found: dict[str, Any] = {"machine": machine(opened.name), "results": [], "phases": []}
    for subject in subjects:
        if phases:
            profile = profile_at_all(subject, opened, rounds)
            results().print(phase_table(subject.name, profile))
            results().print(phase_words(profile))
            found["phases"].append({"subject": subject.name, **profile.to_json()})
        else:
            result = measure(subject, sets, opened, rounds=rounds, peers=peers)
            results().print(times_table(result))
            for label, why in result.skipped.items():
                notes().print(f"skipped: {label}: {why}")
            found["results"].append(result.to_json())
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def run_epochs(
    subjects: list[BenchSubject],
    sets: list[StageSet],
    device: str,
    rounds: int,
    *,
    peers: bool,
    json_file: Path | None,
) -> None:
    """Time epochs of each subject, print a table of each, and write all of it to `json_file`."""
    for subject in subjects:
        _ = subject.shapes
    opened = open_named(device)
    found: dict[str, Any] = {"machine": machine(opened.name), "epochs": []}
    for subject in subjects:
        others: list[Any] = []
        skipped: dict[str, str] = {}
        if peers:
            others, skipped = load_peers().epoch_candidates(
                subject, opened.kind, rounds_of(subject), say=notes().print
            )
        try:
            result = bench_epochs(
                subject, sets, opened, rounds=rounds, peers=others, skipped=skipped
            )
        finally:
            for other in others:
                other.close()
        results().print(epoch_table(result))
        for label, why in result.skipped.items():
            notes().print(f"skipped: {label}: {why}")
        found["epochs"].append(result.to_json())
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def run_rooflines(
    subjects: list[BenchSubject],
    sets: list[StageSet],
    device: Device,
    rounds: int,
    json_file: Path | None,
) -> None:
    """Print each subject's floors and times, and write all of it to `json_file`."""
    found: list[dict[str, Any]] = []
    peaks = measured_peaks(device)
    for subject in subjects:
        result = roofline_of(subject, sets, device, peaks, rounds=rounds)
        results().print(roofline_table(result))
        for note in roofline_notes(result):
            notes().print(note)
        found.append(result.to_json())
    if json_file is not None:
        content = {"machine": machine(device.name), "rooflines": found}
        json_file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def epoch_table(result: EpochResult) -> Table:
    """A line a candidate: seconds, ratio to the first, and how busy the host was."""
    title = (
        f"Epoch of {result.learn_steps:,} learning steps and {result.vector_steps:,} steps of"
        f" {result.lanes} lanes; {result.subject}; {result.device}"
    )
    columns = ("median s", "spread", "speed-up", "spread", "host", "spread")
    rows = table(title, "epoch", *columns)
    base = result.entries[0]
    for entry in result.entries:
        ratio = figures(entry.speed_up(base), 2)
        host = entry.host_share
        rows.add_row(
            entry.label,
            *figures(entry.time, 4),
            f"{ratio[0]}x",
            ratio[1],
            f"{host.median:.1%}",
            f"{host.low:.1%}-{host.high:.1%}",
        )
    return rows


def open_named(kind: str) -> Device:
    """The device of that kind.

    Raises:
        TrainerError: there is no such kind.
        DeviceUnavailableError: it can't be had.
    """
    if kind not in ("auto", "cuda", "host"):
        raise TrainerError(f"--device {kind!r}: choose auto, cuda or host")
    return open_device(cast(Literal["auto", "cuda", "host"], kind))


def cumulative_sets() -> list[StageSet]:
    """Stage 0, 0 to 1, … up to all."""
    return [up_to(stage.number) for stage in STAGES]


def machine(device: str) -> dict[str, str]:
    """What the times were taken on."""
    return {
        "device": device,
        "processor": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def measure(
    subject: BenchSubject, sets: list[StageSet], device: Device, *, rounds: int, peers: bool
) -> BenchResult:
    """The sets' times, and the peers' if asked for, in one interleaved run."""
    own = list(tensor_core_steps(subject, device).values())
    if not peers:
        try:
            return bench(subject, sets, device, rounds=rounds, peers=own)
        finally:
            for candidate in own:
                candidate.close()
    found, skipped = load_peers().candidates(subject, device.kind, say=notes().print)
    others: list[Any] = [*own, *found]
    candidates: list[Candidate] = list(others)
    try:
        return bench(subject, sets, device, rounds=rounds, peers=candidates, skipped=skipped)
    finally:
        for other in others:
            other.close()


def load_peers() -> ModuleType:
    """The package of the peers.

    Raises:
        TrainerError: this is no checkout.
    """
    name = "onegraph_bench_peers"
    if name in sys.modules:
        return sys.modules[name]
    spec = None
    if PEERS.is_file():
        spec = spec_from_file_location(name, PEERS, submodule_search_locations=[str(PEERS.parent)])
    if spec is None or spec.loader is None:
        raise TrainerError(
            f"--peers: {PEERS} is not there; the peers come with the repository and not with the"
            " package, so run this from a checkout, or leave --peers out"
        )
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def profile_at_all(subject: BenchSubject, device: Device, rounds: int) -> PhaseProfile:
    """The phases with every stage on."""
    run = subject.at(ALL, device)
    try:
        return profile_phases(run, "learn", rounds=rounds)
    finally:
        run.close()


# ---------------------------------------------------------------- tables


def phase_table(title: str, profile: PhaseProfile) -> Table:
    """A line a phase: its time, its nodes, and what those run."""
    rows = table(title, "phase", "median us", "spread", "nodes", "of which")
    for name, time in profile.phases_us.items():
        ops = profile.ops[name]
        kinds = ", ".join(f"{n} {op}" if n > 1 else op for op, n in Counter(ops).items())
        rows.add_row(name, *figures(time, 1), str(len(ops)), kinds)
    return rows


def phase_words(profile: PhaseProfile) -> str:
    """The sum of the phases beside a plain step."""
    nodes = sum(map(len, profile.ops.values()))
    return (
        f"{nodes} nodes; the phases sum to {profile.total_us:,.1f} us, events included; a plain"
        f" step takes {profile.plain_us.median:,.1f} us by the host's clock"
    )
