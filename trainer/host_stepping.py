"""Lanes that the host steps, between the device's collecting steps.

The order of a run is a definition, the same in every stage and on every device, whatever takes how
long. Collecting step k:

1. the host does the actions that collecting step k - 1 chose, and writes what came of them to
   pinned memory;
2. the device takes that in, inserts it, advances its counters, and chooses the next actions;
3. the host reads those: one copy, for which it waits.

Learning steps that follow are launched, and the host goes on to 1 of the next collecting step while
the device is at them. So a round of learning draws from what collecting step k inserted, the last
of which are the transitions of the actions before those that stand in 3; and those were chosen
before the round. Nothing reads the pinned memory between 2 and the next 1: the copy in 3 waits for
the kernel that did.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onegraph.guards.markers import cold_path, hot_path
from onegraph.kernels.device.ledger import KINDS, StepCounts
from onegraph.stages.budget import Budget, Limit
from onegraph.stages.program import StepProgram
from onegraph.stages.runner import Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.envs.base import Environment, HostArrays, HostLanes
from onegraph.trainer.program import DqnPrograms

#: What seeds are for; the streams of one run must not meet.
TRAINING, EVALUATION = 0, 1

#: The handover of the actions, in every set of stages: one copy, and the wait that is in it.
ACTIONS_BUDGET = Budget(
    tuple(
        Limit(kind, 1, 1, stage="handover") if kind in ("dtoh", "sync") else Limit(kind, 0)
        for kind in KINDS
    )
)


def lane_seeds(seed: int, purpose: int, lanes: int, point: int = 0) -> NDArray[np.int64]:
    """A seed below 2^31 for each lane's reset, a function of the run's seed alone.

    Args:
        seed: of the run.
        purpose: `TRAINING` or `EVALUATION`.
        lanes: how many.
        point: vector steps done so far, of a run that is resumed by a reset.
    """
    words = np.random.SeedSequence([seed, purpose, point]).generate_state(lanes, np.uint32)
    return (words >> np.uint32(1)).astype(np.int64)


class LaneSession:
    """A set of lanes of the host at a device: shows, and reads the actions."""

    def __init__(
        self, environment: Environment, lanes: HostLanes, workspace: Workspace, actions: StepProgram
    ) -> None:
        self.names, self.lanes, self.workspace = environment.names, lanes, workspace
        self.reading = Runner(actions, workspace)
        workspace.ensure(environment.buffers())

    @property
    def arrays(self) -> HostArrays:
        """The pinned memory; to be written only after `read`."""
        host, names = self.workspace.host, self.names
        return HostArrays(
            host[names.host_obs],
            host[names.host_final],
            host[names.host_reward],
            host[names.host_flags],
            host[names.host_episode],
        )

    @property
    def actions(self) -> NDArray[np.int32]:
        """The actions [E] that were read last."""
        return self.workspace.host[self.names.host_action]

    @hot_path
    def advance(self) -> int:
        """Do the actions; gives the number of lanes that did a step of an episode."""
        return self.lanes.step(self.actions, self.arrays)

    @hot_path
    def read(self) -> StepCounts:
        """Read the actions that the device chose."""
        return self.reading.step()


class HostStepping(LaneSession):
    """The lanes of training.

    Attributes:
        counts: device calls of the last reading of the actions.
    """

    counts: StepCounts

    def __init__(
        self,
        environment: Environment,
        lanes: HostLanes,
        workspace: Workspace,
        actions: StepProgram,
        seed: int,
    ) -> None:
        super().__init__(environment, lanes, workspace, actions)
        self.seed = seed

    @cold_path("before the first step, and where a run goes on from a reset")
    def begin(self, programs: DqnPrograms, point: int = 0) -> None:
        """Reset the lanes, show what they show, and choose the first actions."""
        ledger = self.workspace.device.ledger
        with ledger.within("epoch"):
            self.workspace.device.synchronize()  # a kernel may still read what is about to change
        seeds = lane_seeds(self.seed, TRAINING, len(self.arrays.reward), point)
        self.lanes.reset(seeds, self.arrays)
        Runner(programs.begin(), self.workspace).step()
        self.counts = self.read()

    @cold_path("where a run goes on")
    def go_on(self) -> None:
        """The actions that a saved run had chosen are those to do next."""
        self.counts = self.read()
