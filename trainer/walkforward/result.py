"""What a finished run of a walk-forward leaves: ``result.json``, and its test curves beside it."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from onegraph.trainer.evaluation import EquityCurve
from onegraph.trainer.market import Metrics
from onegraph.trainer.walkforward.errors import WalkforwardError
from onegraph.trainer.walkforward.files import write_json, write_whole
from onegraph.trainer.walkforward.plan import RunId

FORMAT: Final = "onegraph-walkforward-result-1"
RESULT: Final = "result.json"
CURVES: Final = "test-curves.npz"

#: Who is judged, in the order of every table.
POLICY: Final = "policy"
BASELINES: Final = ("flat", "buy and hold")
NAMES: Final = (POLICY, *BASELINES)

_FIELDS: Final = ("time", "equity", "position", "reward")


class CheckpointRecord(BaseModel):
    """The checkpoint that was judged: the best by validation."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    file: str
    digest: str
    learn_steps: int
    epoch: int
    score: float | None


class ResultRecord(BaseModel):
    """``result.json``.

    Attributes:
        windows: first and last bar of each window (`onegraph.trainer.walkforward.plan.extents`).
        test, validation: figures by name: policy, flat, buy and hold.
        learn_steps, env_steps: of the whole run.
        seconds: wall seconds of its epochs.
        curves_digest: SHA-256 over the curves' arrays.
        fusion: the way in which stage 7 did the learning step; ``None`` if no stage asked for one,
            or the record is older than this field.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: str
    window: int
    seed: int
    bars_digest: str
    windows: dict[str, dict[str, Any]]
    test: dict[str, dict[str, float]]
    validation: dict[str, dict[str, float]]
    learn_steps: int
    env_steps: int
    epochs: int
    seconds: float
    checkpoint: CheckpointRecord
    curves_file: str
    curves_digest: str
    stages: str
    device: str
    fusion: str | None = None

    def figures(self, part: str = "test") -> dict[str, Metrics]:
        """The figures of a window by name."""
        found: dict[str, dict[str, float]] = getattr(self, part)
        return {name: _metrics(found[name]) for name in NAMES}


@dataclass(frozen=True)
class RunResult:
    """A finished run, read back.

    Attributes:
        record: ``result.json``.
        curves: over the test window by name.
    """

    run: RunId
    folder: Path
    record: ResultRecord
    curves: dict[str, EquityCurve]


def _metrics(figures: dict[str, float]) -> Metrics:
    whole = {name: int(figures[name]) for name in ("bars", "closed_trades")}
    return Metrics(**{**figures, **whole})  # type: ignore[arg-type]


def write_result(folder: Path, record: ResultRecord, curves: dict[str, EquityCurve]) -> None:
    """Write the curves, then the record, which says that the run is finished."""
    arrays = {
        f"{name.replace(' ', '_')}_{field}": getattr(curve, field)
        for name, curve in curves.items()
        for field in _FIELDS
    }
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    write_whole(folder / CURVES, packed.getvalue())
    write_json(folder / RESULT, record.model_dump())


def read_result(root: Path, run: RunId, bars_digest: str) -> RunResult | None:
    """What a run left; ``None`` if it has not finished.

    Raises:
        WalkforwardError: a file that is damaged, or of another run or other bars.
    """
    folder = run.folder(root)
    path = folder / RESULT
    remedy = f"remove {path} and go on (--resume {root}), which does the run again"
    try:
        record = ResultRecord.model_validate_json(path.read_text(encoding="utf-8"))
        if record.format != FORMAT:
            raise WalkforwardError(f"{path}: its format is {record.format!r}; {remedy}")
        if (record.window, record.seed, record.bars_digest) != (run.window, run.seed, bars_digest):
            found = RunId(record.window, record.seed)
            raise WalkforwardError(
                f"{path}: it is of {found} over bars {record.bars_digest[:12]}, not of {run} over"
                f" {bars_digest[:12]}; {remedy}"
            )
        record.figures("test"), record.figures("validation")
        curves = _read_curves(folder / record.curves_file)
    except FileNotFoundError as error:
        if error.filename == str(path):
            return None
        raise WalkforwardError(f"{error.filename}: the file is not there; {remedy}") from None
    except (ValidationError, UnicodeDecodeError, KeyError, TypeError) as error:
        words = " ".join(str(error).split())[:200]
        raise WalkforwardError(f"{path}: this is no whole result ({words}); {remedy}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise WalkforwardError(
            f"{folder / CURVES}: these are no whole curves ({error}); {remedy}"
        ) from None
    if digest_of_curves(curves) != record.curves_digest:
        raise WalkforwardError(
            f"{folder / CURVES}: the curves are not those that {path} was written with; {remedy}"
        )
    return RunResult(run, folder, record, curves)


def _read_curves(path: Path) -> dict[str, EquityCurve]:
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
        return {
            name: EquityCurve(*(arrays[f"{name.replace(' ', '_')}_{field}"] for field in _FIELDS))
            for name in NAMES
        }


def digest_of_curves(curves: dict[str, EquityCurve]) -> str:
    """SHA-256 over the names and arrays."""
    return digest_of(
        {f"{name}/{field}": getattr(c, field) for name, c in curves.items() for field in _FIELDS}
    )


def digest_of(arrays: dict[str, NDArray[Any]]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of the names.

    A checkpoint file has paths in it; its arrays have not, so that equal runs in two folders have
    equal digests.
    """
    found = hashlib.sha256()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        found.update(values.tobytes())
    return found.hexdigest()


def as_figures(figures: dict[str, Metrics]) -> dict[str, dict[str, float]]:
    """Figures by name, for JSON."""
    return {name: asdict(m) for name, m in figures.items()}
