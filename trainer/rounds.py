"""Rounds of collecting and learning that the device takes by itself, and how the host attends."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onegraph.guards.markers import cold_path, hot_path
from onegraph.kernels.common.layout import (
    LOOP_ORDER,
    LOOP_REPORT,
    LoopEnding,
    LoopOrder,
    LoopReport,
)
from onegraph.kernels.device.base import DeviceError
from onegraph.kernels.device.ledger import StepCounts
from onegraph.stages.program import Buffer, Fragment, Launch, Ref
from onegraph.stages.runner import Runner
from onegraph.trainer.pace import Pace


def loop_control() -> Fragment:
    """The launch that decides on another round, and what the host and it tell each other by."""
    return Fragment(
        (
            Launch(
                "loop_control",
                {
                    "counters": Ref("counters"),
                    "skip": Ref("skip"),
                    "order": Ref("loop_order"),
                    "report": Ref("loop_report"),
                    "go": Ref("loop_go"),
                    "condition": 0,
                },
            ),
        ),
        (
            Buffer("loop_order", (LOOP_ORDER,), "i64", "pinned"),
            Buffer("loop_report", (LOOP_REPORT,), "i64", "pinned"),
            Buffer("loop_go", (1,), "i32"),
        ),
    )


@dataclass(frozen=True)
class RoundsTaken:
    """How a stretch of rounds ended.

    Attributes:
        learns, collects: steps of the run so far, as the device counted them.
        calls: what the host asked the device for.
    """

    ending: LoopEnding
    learns: int
    collects: int
    calls: StepCounts


class Rounds:
    """Launches the program of a round, and tells its control how far to go.

    Args:
        runner: of the program, whose graph takes turns.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._pace = Pace()

    @property
    def _order(self) -> NDArray[np.int64]:
        return self.runner.workspace.host["loop_order"]

    @property
    def _report(self) -> NDArray[np.int64]:
        return self.runner.workspace.host["loop_report"]

    @property
    def learns(self) -> int:
        """Learning steps of the run, as the device last told; read without waiting."""
        return int(self._report[LoopReport.LEARNS])

    @property
    def collects(self) -> int:
        """Vector steps of the run, as the device last told; read without waiting."""
        return int(self._report[LoopReport.COLLECTS])

    @hot_path
    def stop(self) -> None:
        """Have the device end after the round that it is in."""
        self._order[LoopOrder.STOP] = 1

    @hot_path
    def launch(self, until: int, *, limit: int = 0, begun: int = 0) -> StepCounts:
        """Ask for rounds up to learning step `until` of the run. Does not wait for the device.

        The one before must have ended: what it was asked is overwritten.

        Args:
            until: reached at the end of a round.
            limit: skipped steps in a row that end the loop; 0: none do.
            begun: the learning step up to which skipped ones do not count.
        """
        self._order[:] = (until, 0, limit, begun)
        return self.runner.step()

    @hot_path
    def run(
        self,
        progress: tuple[int, int],
        until: int,
        *,
        limit: int = 0,
        begun: int = 0,
        look: Callable[[], None],
    ) -> RoundsTaken:
        """`launch`, wait for the end, and call `look` now and then meanwhile.

        If anything is raised meanwhile, the loop is stopped and waited for: `learns` and `collects`
        then say how far it came.

        Args:
            progress: learning and vector steps of the run so far.
            until: the learning step to go up to.
            limit: skipped steps in a row that end the loop; 0: none do.
            begun: the learning step up to which skipped ones do not count.
            look: may call `stop`; what it raises ends the loop.
        """
        first, pace, report = progress[0], self._pace, self._report
        report[: LoopReport.ENDING] = progress
        pace.begin(until - first)

        def meanwhile() -> float:
            look()
            return pace.left(int(report[LoopReport.LEARNS]) - first, time.perf_counter())

        try:
            with self.runner.device.attended(meanwhile):
                counts = self.launch(until, limit=limit, begun=begun)
        except BaseException:
            self._end()
            raise
        pace.end(self.learns - first)
        ending = LoopEnding(int(self._report[LoopReport.ENDING]))
        return RoundsTaken(ending, self.learns, self.collects, counts)

    @cold_path("ends a loop that failed")
    def _end(self) -> None:
        self.stop()
        device = self.runner.device
        with suppress(DeviceError), device.ledger.within("epoch"):
            device.synchronize()
