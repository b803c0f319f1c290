"""The step's time at each stage: read from a benchmark's JSON, or measured briefly here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onegraph.kernels.device.base import Device
from onegraph.stages.registry import format_set
from onegraph.trainer.config import Config
from onegraph.trainer.subject import TrainerRun, TrainerSubject

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]

#: The stages take turns this often, for that many steps each: seconds on a small config.
ROUNDS, STEPS, WARM_UP = 7, 12, 3


class StageTimesError(ValueError):
    """A benchmark's JSON that can't be read; the message names the file, field and value."""


class StageRow(BaseModel):
    """One set of stages.

    Attributes:
        stages: the set, as `format_set` writes it.
        median_us, low_us, high_us: microseconds a learning step, median, 10th and 90th percentile.
        ratio: how many times as fast as the first row.
        calls: device calls of a step by ledger kind.
        nodes: work nodes of the step's graphs.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    stages: Annotated[str, Field(min_length=1)]
    median_us: Positive
    low_us: Positive
    high_us: Positive
    ratio: Positive
    calls: dict[str, Count]
    nodes: Count


class StageTimes(BaseModel):
    """Step times by stage on one device at one size."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    size: str
    device: str
    rows: Annotated[tuple[StageRow, ...], Field(min_length=1)]


def read_stage_times(path: Path) -> StageTimes:
    """Read what ``onegraph bench --json`` wrote.

    Raises:
        StageTimesError: not such a file, with the first field that is wrong.
    """
    try:
        return StageTimes.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        value = "" if first["type"] in ("json_invalid", "missing") else f" = {first['input']!r:.60}"
        raise StageTimesError(
            f"{path}: {field}{value}{': ' if field else ''}{first['msg']}; remove the file, or"
            " write it anew"
        ) from None


def measure_stages(config: Config, device: Device) -> StageTimes:
    """Time the learning step at stages 0, 0 to 1, … in turn, so that drift favours none.

    The replay is filled no further than learning needs, and stays at the config's capacity.
    """
    loop = config.loop.model_copy(
        update={"start_steps": max(config.learn.batch_size, config.env.lanes), "timed_steps": 0}
    )
    subject = TrainerSubject(config.model_copy(update={"loop": loop}))
    runs: list[tuple[str, TrainerRun]] = []
    try:
        for stage in subject.known:
            stages = frozenset(range(1, stage.number + 1))
            runs.append((format_set(stages), subject.at(stages, device)))
        samples = _interleaved([run for _, run in runs])
        medians = [float(np.median(s)) for s in samples]
        rows = tuple(
            StageRow(
                stages=label,
                median_us=median,
                low_us=float(np.percentile(sample, 10)),
                high_us=float(np.percentile(sample, 90)),
                ratio=medians[0] / median,
                calls=dict(run.trainer.learn().by_kind()),
                nodes=sum(run.trainer.graph_nodes().values()),
            )
            for (label, run), sample, median in zip(runs, samples, medians, strict=True)
        )
    finally:
        for _, run in runs:
            run.close()
    return StageTimes(size=size_text(config), device=f"{device.kind} ({device.name})", rows=rows)


def _interleaved(runs: list[TrainerRun]) -> list[list[float]]:
    """Microseconds a step of each run, one sample a round."""
    for run in runs:
        for _ in range(WARM_UP):
            run.trainer.learn()
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, sample in zip(runs, samples, strict=True):
            run.trainer.wait()
            before = time.perf_counter()
            for _ in range(STEPS):
                run.trainer.learn()
            run.trainer.wait()
            sample.append((time.perf_counter() - before) / STEPS * 1e6)
    return samples


def size_text(config: Config) -> str:
    """The sizes that a step's time depends on, in words."""
    hidden = "-".join(map(str, config.network.hidden)) or "none"
    return (
        f"batch {config.learn.batch_size:,}, hidden {hidden},"
        f" capacity {config.replay.capacity:,}, {config.env.kind}"
    )
