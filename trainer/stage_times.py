"""The step's time at each stage: read from ``onegraph bench --json``, or measured briefly here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onegraph.kernels.device.base import Device
from onegraph.stages.bench import BenchResult, bench
from onegraph.stages.registry import step_stages, up_to
from onegraph.trainer.config import Config
from onegraph.trainer.subject import TrainerSubject

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]

#: Samples of each set when the page measures for itself: seconds on a small config.
ROUNDS = 7


class StageTimesError(ValueError):
    """A benchmark's JSON that can't be read; the message names the file, field and value."""


class Read(BaseModel):
    """What is read of a benchmark's JSON; it holds more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Percentiles(Read):
    """The median of some samples, and their 10th and 90th percentiles."""

    median: Positive
    low: Positive
    high: Positive


class StageRow(Read):
    """One set of stages, or a peer.

    Attributes:
        label: the set as `format_set` writes it, and its last stage; or the peer's name.
        us: microseconds a learning step.
        speed_up: how many times as fast as the first row, by round.
        calls: device calls of a step by ledger kind.
        nodes: work nodes of the step's graphs.
    """

    label: Annotated[str, Field(min_length=1)]
    us: Percentiles
    speed_up: Percentiles
    calls: dict[str, Count]
    nodes: Count

    @property
    def stages(self) -> str:
        """The set in short form (``0-6``), where this is one."""
        return self.label.split()[0]


class StageTimes(Read):
    """Step times on one device at one size: one result of a benchmark."""

    subject: str
    device: str
    entries: Annotated[tuple[StageRow, ...], Field(min_length=1)]


class BenchFile(Read):
    """What ``onegraph bench --json`` writes."""

    results: Annotated[tuple[StageTimes, ...], Field(min_length=1)]


def read_stage_times(path: Path) -> StageTimes:
    """The first result of the file that ``onegraph bench --json`` wrote.

    Raises:
        StageTimesError: not such a file, with the first field that is wrong.
    """
    try:
        return BenchFile.model_validate_json(path.read_bytes()).results[0]
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
    sets = [up_to(stage.number) for stage in step_stages()]
    return from_bench(bench(subject, sets, device, rounds=ROUNDS), size_text(config))


def from_bench(result: BenchResult, size: str) -> StageTimes:
    """A benchmark's result as it is read back."""
    return StageTimes.model_validate({**result.to_json(), "subject": size})


def size_text(config: Config) -> str:
    """The sizes that a step's time depends on, in words."""
    hidden = "-".join(map(str, config.network.hidden)) or "none"
    return (
        f"batch {config.learn.batch_size:,}, hidden {hidden},"
        f" capacity {config.replay.capacity:,}, {config.env.kind}"
    )
