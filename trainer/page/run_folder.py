"""A run folder, read: its config, what each epoch said, and which checkpoints it holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from onegraph.trainer.config import Config, load_config

METRICS, CONFIG, BENCH = "metrics.jsonl", "config.toml", "bench.json"


class RunError(ValueError):
    """A run folder that can't be read; the message names the file, the line and the remedy."""


class _Record(BaseModel):
    """Fields of a later version are passed over; ``null`` stands for a figure not finite."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PhaseRecord(_Record):
    """A phase report as an epoch wrote it (`onegraph.stages.phase_report.PhaseReport`)."""

    last: dict[str, float | None]
    mean: dict[str, float | None]
    timed_steps: int
    diagnosis: str
    host: dict[str, float | None] = {}
    step_ms: float | None = None
    wall_ms: float | None = None
    phases_ms: float | None = None
    busy_share: float | None = None


class PartRecord(_Record):
    """What the learner's parts said (`onegraph.trainer.part_figures.PartFigures`)."""

    gradient_norms: dict[str, float | None] = {}
    gradient_scales: dict[str, float | None] = {}
    quantile_loss: float | None = None
    quantile_weight: float | None = None
    spectral_norms: dict[str, float | None] = {}
    vaccine_removed: float | None = None
    aux_losses: dict[str, float | None] = {}


class EpochRecord(_Record):
    """A line of ``metrics.jsonl`` (`onegraph.trainer.loop.EpochSummary`)."""

    epoch: int
    learn_steps: int
    env_steps: int
    seconds: float | None
    step_ms: float | None
    loss: float | None
    grad_norm: float | None
    td_mean: float | None
    q_mean: float | None
    learning_rate: float | None
    epsilon: float | None
    skipped: int = 0
    nonfinite_td: int = 0
    invalid_rows: int = 0
    phases: PhaseRecord | None = None
    score: float | None = None
    extra: dict[str, float | None] = {}
    parts: PartRecord | None = None
    stages: str = ""
    device: str = ""


@dataclass(frozen=True)
class RunFolder:
    """A run as its folder tells it.

    Attributes:
        epochs: one record an epoch, in order.
        repeated: epochs that stand in the file more than once, as after going on from an older
            checkpoint; the latest line of each is kept.
    """

    path: Path
    config: Config
    epochs: tuple[EpochRecord, ...]
    repeated: int

    @property
    def config_path(self) -> Path:
        return self.path / CONFIG

    @property
    def checkpoint(self) -> Path | None:
        """The best checkpoint, else the last; ``None`` without either."""
        for name in ("best", "last"):
            if (found := self.path / "checkpoints" / f"{name}.safetensors").is_file():
                return found
        return None


def read_run(path: Path) -> RunFolder:
    """Read a run folder.

    Raises:
        RunError: no such folder, no config or metrics in it, or a damaged line, by its number.
        ConfigError: the config can't be used.
    """
    if not path.is_dir():
        raise RunError(f"{path}: there is no such run folder; name one that `onegraph train` made")
    for name in (CONFIG, METRICS):
        if not (path / name).is_file():
            raise RunError(
                f"{path} holds no {name}; name a run folder, in which `onegraph train` has ended"
                " an epoch at least"
            )
    config = load_config(path / CONFIG)
    lines = _records(path / METRICS)
    if not lines:
        raise RunError(f"{path / METRICS} is empty: no epoch has ended yet; train on, then report")
    latest = {record.epoch: record for record in lines}
    epochs = tuple(latest[number] for number in sorted(latest))
    return RunFolder(path, config, epochs, len(lines) - len(latest))


def _records(path: Path) -> list[EpochRecord]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        broken = error.object[: error.start].count(b"\n") + 1
        raise RunError(f"{path}, line {broken}: not UTF-8 text; remove the line") from None
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(EpochRecord.model_validate_json(line))
        except ValidationError as error:
            raise RunError(
                f"{path}, line {number}: {_problem(error)}; remove the line, which was cut short or"
                " is of another program"
            ) from None
    return found


def _problem(error: ValidationError) -> str:
    """What is wrong, the field and value first."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "json_invalid":
        return first["msg"]
    if first["type"] == "missing":
        return f"no field {field}"
    return f"{field} = {str(first['input'])[:60]!r}: {first['msg']}"
