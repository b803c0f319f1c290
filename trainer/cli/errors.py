"""How what a user can get wrong reaches the user: one line, and an exit code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from onegraph.kernels.device import DeviceError, DeviceUnavailableError
from onegraph.stages.bench import BenchError
from onegraph.stages.page.charts import PlotUnavailableError
from onegraph.stages.program import ProgramError
from onegraph.stages.registry import StageSetError
from onegraph.trainer.checkpoint import CheckpointError
from onegraph.trainer.config import ConfigError, MismatchError
from onegraph.trainer.envs.gym.errors import GymnasiumError
from onegraph.trainer.event_log import TensorBoardUnavailableError
from onegraph.trainer.loop import InterruptedRunError
from onegraph.trainer.market import MarketDataError
from onegraph.trainer.offline.errors import TransitionsError
from onegraph.trainer.page.run_folder import RunError
from onegraph.trainer.policy.errors import ExportError
from onegraph.trainer.run_directory import RunBusyError
from onegraph.trainer.stage_times import StageTimesError
from onegraph.trainer.trainer import TrainerError
from onegraph.trainer.walkforward.errors import WalkforwardError

P = ParamSpec("P")

#: Errors whose message is all that the user needs.
EXPECTED = (
    BenchError,
    CheckpointError,
    ConfigError,
    DeviceError,
    DeviceUnavailableError,
    ExportError,
    GymnasiumError,
    MarketDataError,
    MismatchError,
    PlotUnavailableError,
    ProgramError,
    RunBusyError,
    RunError,
    StageSetError,
    StageTimesError,
    TensorBoardUnavailableError,
    TrainerError,
    TransitionsError,
    WalkforwardError,
    OSError,
)


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """`command` with its expected errors printed as one line: exit 1, or 130 after Ctrl-C."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except InterruptedRunError as stop:
            _leave(str(stop), 130, stop)
        except KeyboardInterrupt as stop:
            _leave("interrupted; checkpoints are as they were last saved", 130, stop)
        except MemoryError as error:
            remedy = "lower replay.capacity, or set replay.memory_cap_mb"
            _leave(f"error: out of host memory ({error}); {remedy}", 1, error)
        except EXPECTED as error:
            _leave(f"error: {' '.join(str(error).split())}", 1, error)

    return run


def _leave(line: str, code: int, cause: BaseException) -> None:
    print(f"onegraph: {line}", file=sys.stderr)
    raise typer.Exit(code) from cause
