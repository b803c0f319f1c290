"""How a learning step's phases are done together: chosen by measuring, once a machine.

On a GPU each way in which stage 7 can do the step (`onegraph.trainer.fusing.candidates`) is timed
beside the step as its phases are, over a small random replay, and the fastest is taken. The times
are kept beside the compiled kernels, so that a later run of the same sizes on the same machine
takes the same way, and gives the same bits. Processes measure in turn, and those that want the same
times measure once. On the host device there is nothing to measure: the first of the fused kernels
are taken, if there are any for the step.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from onegraph.kernels import compile as compiler
from onegraph.kernels.device.base import Device, DeviceError
from onegraph.kernels.device.ledger import Ledger
from onegraph.stages.bench import interleave
from onegraph.stages.registry import ALL, apply
from onegraph.stages.runner import Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.config import Config
from onegraph.trainer.envs.base import Environment
from onegraph.trainer.file_lock import turn
from onegraph.trainer.fusing import FusionError, candidates, fused_steps, obstacle
from onegraph.trainer.hindsight import relabelling
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.random_replay import random_replay
from onegraph.trainer.regrouping import StepForm
from onegraph.trainer.shapes import Shapes

#: In the config's `fusion`: measure and take the fastest; leave the phases as they are.
AUTO, NONE = "auto", "none"

#: Rows of the replay that is measured over, at most.
SCRATCH_ROWS = 65_536

#: Samples of each way, and seconds that a sample lasts: 27 ms a way, beside its capture.
ROUNDS, SAMPLE_S = 9, 3e-3

FORMAT = "onegraph-fusion-1"

Say = Callable[[str], None]


@dataclass(frozen=True)
class FusionTimes:
    """What was measured.

    Attributes:
        median_us: microseconds a step by name; `NONE` is the step as its phases are.
        refused: what the device would not launch, and why.
    """

    median_us: Mapping[str, float]
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def fastest(self) -> str:
        """The name of the fastest; `NONE` where nothing is faster than that."""
        return min(self.median_us, key=lambda name: (self.median_us[name], name != NONE))


@dataclass(frozen=True)
class FusionChoice:
    """The way in which a learning step is done.

    Attributes:
        step: it; ``None``: the phases stay as they are.
        source: who chose, in words.
        times: what the choice rests on, if it was measured.
    """

    step: StepForm | None
    source: str
    times: FusionTimes | None = None

    @property
    def name(self) -> str:
        """As the config's `fusion` would ask for it."""
        return self.step.name if self.step is not None else NONE

    def __str__(self) -> str:
        return f"{self.name} ({self.source})"


#: Measures some ways of doing a step, as `measure` does.
Measure = Callable[[Shapes, Environment, Device, tuple[StepForm, ...]], FusionTimes]

#: What this process measured, by cache entry: all there is where the cache can't be written.
_measured: dict[Path, FusionTimes] = {}


class FusionChooser:
    """Chooses when it is first asked, so that nothing is measured for stages that do not ask.

    Attributes:
        chosen: the choice; ``None`` before it is asked.
    """

    def __init__(
        self, shapes: Shapes, environment: Environment, device: Device, say: Say = lambda _: None
    ) -> None:
        self._arguments = shapes, environment, device, say
        self.chosen: FusionChoice | None = None

    def __call__(self) -> StepForm | None:
        """The way in which the step is done, or none.

        Raises:
            FusionError: the config asks for one that there is not for this step.
        """
        if self.chosen is None:
            shapes, environment, device, say = self._arguments
            self.chosen = choose(shapes, environment, device, say=say)
        return self.chosen.step


def choose(
    shapes: Shapes,
    environment: Environment,
    device: Device,
    *,
    say: Say = lambda _: None,
    measure: Measure | None = None,
) -> FusionChoice:
    """The way that the config asks for, or the fastest.

    Args:
        shapes: sizes of the step, and the config with its `fusion`.
        environment: whose transitions the step learns from.
        device: where it runs.
        say: told when it measures, or waits for another process that does.
        measure: takes the times; default: `measure` of this module.

    Raises:
        FusionError: the config asks for one that there is not for this step.
    """
    asked = shapes.config.fusion
    known = candidates(shapes, device, relabelling(shapes.config, environment))
    if asked == NONE:
        return FusionChoice(None, "by the config")
    if asked != AUTO:
        for step in known:
            if step.name == asked:
                return FusionChoice(step, "by the config")
        raise FusionError(_unknown(asked, shapes, device, known))
    if not device.runs_later:
        # Ops run one after another there in any case: regrouped, they would gain nothing.
        if fused := fused_steps(shapes, device):
            return FusionChoice(fused[0], f"the first; the {device.kind} device measures nothing")
        return FusionChoice(None, obstacle(shapes, device))
    entry, key = cache_entry(shapes, device)
    forms = {NONE, *(step.name for step in known)}
    take = partial(measure or measure_forms, shapes, environment, device, known)
    try:
        times, source = _kept(entry, key, forms) or _in_turn(entry, key, forms, device, say, take)
    except DeviceError as error:
        if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
            raise
        return FusionChoice(None, f"no memory to measure stage 7 in: {error.detail}")
    best = times.fastest
    return FusionChoice(next((s for s in known if s.name == best), None), source, times)


def _unknown(asked: str, shapes: Shapes, device: Device, known: tuple[StepForm, ...]) -> str:
    names = ", ".join((AUTO, NONE, *(step.name for step in known)))
    why = ""
    if not fused_steps(shapes, device):
        why = f"; there are no others, because {obstacle(shapes, device)}"
    return f"fusion = {asked!r} is none of the ways to do this step; choose from {names}{why}"


# ---------------------------------------------------------------- one process at a time


def timing_lock(entry: Path, device: Device) -> Path:
    """The file that is locked while times are taken for `entry`.

    GPUs of one name share it: a run on another of them may want the same times.
    """
    name = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")
    return entry.with_name(f"timing-{name}.lock")


def _in_turn(
    entry: Path,
    key: dict[str, Any],
    forms: set[str],
    device: Device,
    say: Say,
    take: Callable[[], FusionTimes],
) -> tuple[FusionTimes, str]:
    """The times that another process took meanwhile, or else those of `take`, and where from."""
    lock = timing_lock(entry, device)
    wait = f"choosing kernels: waiting for another process that times its own on {device.name}"
    with turn(lock, lambda: say(f"{wait} (it holds {lock})")) as trouble:
        if kept := _kept(entry, key, forms):
            return kept
        say(f"choosing kernels: timing {len(forms)} forms of the learning step on {device.name}")
        times = take()
        _keep(entry, key, times)
        if trouble is not None and entry.exists():  # if it is not, a warning has said more
            say(
                f"choosing kernels: {lock} can't be locked ({trouble.strerror}); runs that started"
                " at the same time may choose others"
            )
        return times, "measured now"


# ---------------------------------------------------------------- the cache


def cache_entry(shapes: Shapes, device: Device) -> tuple[Path, dict[str, Any]]:
    """Where times are kept, and what they depend on: machine, kernels, and sizes of the step."""
    key = {
        "device": device.name,
        "platform": device.platform,
        "kernels": compiler.sources_digest(),
        "sizes": _sizes(shapes),
    }
    plain: dict[str, Any] = json.loads(json.dumps(key))
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:40]
    return compiler.cache_dir() / f"fusion-{digest}.json", plain


def _sizes(shapes: Shapes) -> dict[str, object]:
    learn, replay = shapes.config.learn, shapes.config.replay
    return {
        "network": shapes.config.network.model_dump(mode="json"),
        "width": shapes.width,
        "actions": shapes.network.actions,
        "batch": shapes.batch,
        "aux": shapes.config.aux.model_dump(mode="json"),
        "vaccine": learn.vaccine,
        "budget": learn.budget.on,
        "hindsight": shapes.config.hindsight.strategy,
        "loss": learn.loss,
        "target": learn.target,
        "rows": _scratch_rows(shapes),
        "lanes": shapes.lanes,
        "n_step": replay.n_step,
        "stratified": replay.stratified,
    }


def _kept(entry: Path, key: dict[str, Any], forms: set[str]) -> tuple[FusionTimes, str] | None:
    """Times that there are already, and where from."""
    if (times := read_times(entry, key, forms)) is not None:
        return times, f"measured before, {entry}"
    if entry in _measured and not entry.exists():
        return _measured[entry], "measured before by this process"
    return None


def _keep(entry: Path, key: dict[str, Any], times: FusionTimes) -> None:
    _measured[entry] = times
    content = {
        "format": FORMAT,
        "key": key,
        "median_us": dict(times.median_us),
        "refused": dict(times.refused),
    }
    text = json.dumps(content, indent=1) + "\n"
    compiler.store(entry, text.encode(), "fused kernels are chosen anew in each run")


def read_times(entry: Path, key: dict[str, Any], forms: set[str]) -> FusionTimes | None:
    """The times in `entry`; ``None`` if it is absent, damaged, or of something else.

    Args:
        entry: the file.
        key: what its times must depend on.
        forms: names that it must have a time or a refusal of.
    """
    try:
        content = json.loads(entry.read_bytes())
        times, refused = dict(content["median_us"]), dict(content["refused"])
        whole = content["format"] == FORMAT and content["key"] == key
    except (OSError, ValueError, KeyError, TypeError):
        return None
    sound = all(
        isinstance(us, float | int) and math.isfinite(us) and us > 0 for us in times.values()
    )
    complete = NONE in times and {*times, *refused} == forms and not {*times} & {*refused}
    return FusionTimes(times, refused) if whole and sound and complete else None


# ---------------------------------------------------------------- measuring


class _Form:
    """One way of doing the step, as a candidate of a benchmark."""

    quantum = 1

    def __init__(self, label: str, runner: Runner) -> None:
        self.label, self._runner = label, runner

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._runner.step()

    def wait(self) -> None:
        self._runner.device.synchronize()

    def calls(self) -> Mapping[str, int]:
        return {}

    def nodes(self) -> int:
        return sum(self._runner.graph_nodes().values())


def measure_forms(
    shapes: Shapes, environment: Environment, device: Device, known: tuple[StepForm, ...]
) -> FusionTimes:
    """Time the step as its phases are and by each of `known`, interleaved.

    All share the arrays of one scratch workspace. What is done for it counts in no ledger.

    Raises:
        DeviceError: the step as its phases are does not run, or memory is short.
    """
    small = scratch_shapes(shapes)
    programs = {}
    for step in (None, *known):
        moved = step.over(small) if step is not None else None
        parts = DqnPrograms(small, environment, partial(_given, moved))
        programs[step.name if step is not None else NONE] = apply(parts.learn(), ALL, parts)
    ledger, device.ledger = device.ledger, Ledger()
    workspace = Workspace(device)
    try:
        for program in programs.values():
            workspace.ensure(program.buffers)
        for name, values in random_replay(small).items():
            workspace.write(name, values)
        refused: dict[str, str] = {}
        forms = []
        for name, program in programs.items():
            try:
                form = _Form(name, Runner(program, workspace, timed_sets=1))
                form.run(1)
                form.wait()
            except DeviceError as error:
                if name == NONE or error.name == "CUDA_ERROR_OUT_OF_MEMORY":
                    raise
                refused[name] = str(error)
            else:
                forms.append(form)
        entries = interleave(forms, rounds=ROUNDS, min_sample_s=SAMPLE_S)
    finally:
        workspace.close()
        device.ledger = ledger
    return FusionTimes({e.label: round(e.time.median, 3) for e in entries}, refused)


def _given(step: StepForm | None) -> StepForm | None:
    return step


def _scratch_rows(shapes: Shapes) -> int:
    slots = max(min(shapes.capacity, SCRATCH_ROWS) // shapes.lanes, shapes.config.replay.n_step)
    return min(slots, shapes.slots) * shapes.lanes


def scratch_shapes(shapes: Shapes) -> Shapes:
    """The step over a small replay, at a learning rate of zero: its parameters stay what they are.

    So thousands of steps over random rewards make no number that is not finite, which would skip
    the work that is to be timed.
    """
    return Shapes(_standing(shapes.config), shapes.network, _scratch_rows(shapes))


def _standing(config: Config) -> Config:
    rate = config.learn.lr.model_copy(update={"kind": "constant", "start": 0.0, "end": 0.0})
    return config.model_copy(update={"learn": config.learn.model_copy(update={"lr": rate})})
