"""An epoch's figures as TensorBoard's scalars, over the env steps."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: What an epoch's summary says of where and how it ran: no curve.
NOT_CURVES = {"epoch", "env_steps"}

#: Sections of a summary that have a group of their own, under another name.
GROUPS = {"extra": "episode", "validation": "validation", "parts": "parts"}

#: What is a time.
TIMES = {"seconds", "step_ms"}

#: Of a phase report.
PHASE_FIGURES = ("step_ms", "wall_ms", "phases_ms", "busy_share")


class TensorBoardUnavailableError(RuntimeError):
    """tensorboardX is not installed."""


def require_tensorboard() -> Any:
    """The package that writes event files.

    Raises:
        TensorBoardUnavailableError: it is not installed.
    """
    try:
        return importlib.import_module("tensorboardX")
    except ImportError as error:
        raise TensorBoardUnavailableError(
            f"event files need tensorboardX ({error}); run pip install 'onegraph[tensorboard]', or"
            " leave --tensorboard (loop.tensorboard) off"
        ) from None


class EventLog:
    """Writes event files to a folder, from one state of a run on.

    Args:
        folder: made if it is not there; older files stay.
        env_steps: of the state, or its learn steps where nothing is collected: what older files
            have past it is hidden by TensorBoard.

    Raises:
        TensorBoardUnavailableError: tensorboardX is not installed.
    """

    def __init__(self, folder: Path, env_steps: int) -> None:
        # Of two files that are begun in the same second, one would be written over the other; and
        # TensorBoard reads them by the order of their names.
        suffix = f".{time.time_ns()}.{os.getpid()}"
        self._writer = require_tensorboard().SummaryWriter(
            str(folder), purge_step=env_steps + 1, filename_suffix=suffix
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    def write(self, env_steps: int, summary: Mapping[str, Any]) -> None:
        """Write one epoch's figures, and flush them to the file.

        Args:
            env_steps: at the epoch's end, or learn steps where nothing is collected; the step of
                every scalar.
            summary: `EpochSummary` as a dict. A figure that is ``None`` or no number has no point.
        """
        for tag, value in scalars(summary):
            self._writer.add_scalar(tag, value, env_steps)
        self._writer.flush()


def scalars(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The curves that an epoch adds a point to: tag and value.

    ``train/loss``, ``score``, ``time/step_ms``, ``phase/forward`` (mean ms of the timed steps),
    ``validation/sharpe``, ``episode/success_rate``, ``parts/aux_losses/denoise``.
    """
    for name, value in summary.items():
        if name == "phases":
            yield from _phases(value)
        elif name in GROUPS:
            yield from _numbers(GROUPS[name], value)
        elif name == "score":
            yield from _numbers(name, value)
        elif name not in NOT_CURVES:
            yield from _numbers(f"{'time' if name in TIMES else 'train'}/{name}", value)


def _phases(report: Mapping[str, Any] | None) -> Iterator[tuple[str, float]]:
    if report is None:
        return
    yield from _numbers("phase", report["mean"])
    for name in PHASE_FIGURES:
        yield from _numbers(f"time/timed/{name}", report.get(name))


def _numbers(tag: str, value: object) -> Iterator[tuple[str, float]]:
    match value:
        case bool():
            return
        case int() | float():
            yield tag, float(value)
        case Mapping():
            for name, item in value.items():
                yield from _numbers(f"{tag}/{name}", item)
