"""The trainer: programs, stages, device and environment put together, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onegraph.guards.markers import cold_path, hot_path
from onegraph.kernels.device.base import Device, DeviceError
from onegraph.kernels.device.ledger import StepCounts
from onegraph.kernels.learner.publish import PublishedRecord, RecordField, read_record
from onegraph.kernels.replay import tree
from onegraph.stages.budget import Budget
from onegraph.stages.program import StepProgram
from onegraph.stages.registry import StageSet, apply, budget
from onegraph.stages.runner import PhaseTimes, Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.config import Config
from onegraph.trainer.envs.base import Environment, reset_program
from onegraph.trainer.envs.build import MarketSetup, build_environment
from onegraph.trainer.network import QNetwork
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.shapes import Shapes

Say = Callable[[str], None]

#: Host mirrors that the stages before `gpu-counters` keep of device state.
MIRRORS = {"counters": "h_counters", "schedule": "h_schedule", "skip": "h_skip"}


class TrainerError(RuntimeError):
    """The trainer can't do what was asked; the message says why and what would help."""


@dataclass
class Progress:
    """What the host knows of the run without asking the device.

    Attributes:
        collects: vector steps so far.
        learns: learning steps so far.
        epoch: epochs finished.
        best_score: the best validation score so far; ``None`` before the first.
        epochs_without_gain: epochs since that one.
    """

    collects: int = 0
    learns: int = 0
    epoch: int = 0
    best_score: float | None = None
    epochs_without_gain: int = 0


class Trainer:
    """A DQN learner on a device, at a set of stages.

    Args:
        config: the run's config.
        device: where it runs.
        stages: which stages are on.
        say: where notes go that the user should read (memory halving).
        environment: lanes to use instead of those that the config describes.

    Raises:
        TrainerError: the replay does not fit the device even at the smallest useful size.
        MarketDataError: the bars can't be used.
    """

    def __init__(
        self,
        config: Config,
        device: Device,
        stages: StageSet,
        *,
        say: Say = lambda _: None,
        environment: Environment | None = None,
    ) -> None:
        self.config, self.device, self.stages, self.say = config, device, stages, say
        self.environment: Environment
        self.market: MarketSetup | None
        self.environment, self.market = (
            build_environment(config) if environment is None else (environment, None)
        )
        self.network = QNetwork(
            self.environment.observation_width,
            config.network.hidden,
            self.environment.actions,
            config.network.dueling,
        )
        self.progress = Progress()
        self._build()

    # ---------------------------------------------------------------- construction

    def _build(self) -> None:
        """Allocate; halve the replay while it exceeds the cap or the device is short of memory."""
        capacity = self._capped(self.config.replay.capacity)
        while True:
            self.shapes = Shapes(self.config, self.network, capacity)
            self.programs = DqnPrograms(self.shapes, self.environment)
            self.workspace = Workspace(self.device)
            learn, collect = self.programs.learn(), self.programs.collect()
            self.budgets = {p.name: budget(p, self.stages) for p in (learn, collect)}
            self.learn_program = apply(learn, self.stages, self.programs)
            self.collect_program = apply(collect, self.stages, self.programs)
            try:
                self.workspace.ensure(self.learn_program.buffers)
                self.workspace.ensure(self.collect_program.buffers)
            except DeviceError as error:
                self.workspace.close()
                if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                    raise
                capacity = self._halved(capacity, f"device memory is short ({error.detail})")
                continue
            break
        timed = max(self.config.loop.timed_steps, 1)
        self._learn = Runner(self.learn_program, self.workspace, timed_sets=timed)
        self._collect = Runner(self.collect_program, self.workspace, timed_sets=1)
        Runner(reset_program(self.environment), self.workspace).step()

    def _row_bytes(self) -> int:
        """Device bytes of a replay row: two states, its other columns, its leaf and tree share."""
        return 2 * 4 * self.network.inputs + 4 + 4 + 1 + 8 + 4 + 4 + 4 + 1

    def _floor(self) -> int:
        """Rows below which training could not begin."""
        config = self.config
        return max(
            config.loop.start_steps,
            config.learn.batch_size,
            config.env.lanes * config.replay.n_step,
        )

    def _capped(self, capacity: int) -> int:
        cap = self.config.replay.memory_cap_mb * 2**20
        while cap and capacity * self._row_bytes() > cap:
            capacity = self._halved(
                capacity, f"the memory cap is {self.config.replay.memory_cap_mb} MiB"
            )
        return capacity

    def _halved(self, capacity: int, why: str) -> int:
        lanes = self.config.env.lanes
        half = capacity // 2 // lanes * lanes
        if half < self._floor():
            raise TrainerError(
                f"replay.capacity: {capacity:,} rows of {self._row_bytes()} bytes do not fit"
                f" ({why}), and {half:,} rows are fewer than the {self._floor():,} that"
                " loop.start_steps, learn.batch_size and replay.n_step need; lower those, or raise"
                " the memory"
            )
        self.say(f"replay: {capacity:,} rows do not fit ({why}); using {half:,}")
        return half

    # ---------------------------------------------------------------- stepping

    @property
    def rows(self) -> int:
        """Rows in the replay."""
        return min(self.progress.collects * self.shapes.lanes, self.shapes.capacity)

    @property
    def env_steps(self) -> int:
        """Steps of single environments so far."""
        return self.progress.collects * self.shapes.lanes

    @hot_path
    def collect(self, *, timed: bool = False) -> StepCounts:
        """One step of every lane, inserted into the replay."""
        counts = self._collect.step(timed=timed)
        self.progress.collects += 1
        return counts

    @hot_path
    def learn(self, *, timed: bool = False) -> StepCounts:
        """One learning step.

        Raises:
            TrainerError: the replay holds fewer rows than a batch.
        """
        if self.rows < self.shapes.batch:
            raise TrainerError(
                f"a batch of {self.shapes.batch} can't be drawn from a replay that holds"
                f" {self.rows} rows; collect {self.shapes.batch - self.rows} more first"
            )
        counts = self._learn.step(timed=timed)
        self.progress.learns += 1
        return counts

    @hot_path
    def latest(self, after: int = 0) -> PublishedRecord | None:
        """The newest published statistics, without waiting; ``None`` if torn or not newer."""
        return read_record(self.workspace.host["record"], after=after)

    # ---------------------------------------------------------------- reading, in the epoch scope

    @cold_path("in the epoch scope, when no step runs")
    def history(self, steps: int) -> dict[str, NDArray[np.float64]]:
        """The last `steps` learning steps' statistics, oldest first, by field name."""
        steps = min(steps, self.shapes.ring, self.progress.learns)
        with self.device.ledger.within("epoch"):
            ring = self.workspace.read("history")
        rows = ring[
            np.arange(self.progress.learns - steps, self.progress.learns) % self.shapes.ring
        ]
        return {field.name.lower(): rows[:, field] for field in RecordField}

    @cold_path("in the epoch scope, when no step runs")
    def timings(self) -> PhaseTimes:
        """Phase times of the timed steps since the last call."""
        with self.device.ledger.within("epoch"):
            return self._learn.timings()

    @cold_path("in the epoch scope, when no step runs")
    def parameters(self) -> NDArray[np.float32]:
        """The online network's parameters [size]."""
        with self.device.ledger.within("epoch"):
            return self.workspace.read("theta")

    @cold_path("in the epoch scope, when no step runs")
    def indices(self) -> NDArray[np.int32]:
        """The batch indices of the last learning step."""
        with self.device.ledger.within("epoch"):
            return self.workspace.read("index")

    @cold_path("in the epoch scope, when no step runs")
    def wait(self) -> None:
        """Wait for the device, in the epoch scope."""
        with self.device.ledger.within("epoch"):
            self.device.synchronize()

    @property
    def runners(self) -> dict[str, Runner]:
        """The programs' runners by program name."""
        return {"learn": self._learn, "collect": self._collect}

    def graph_nodes(self) -> dict[str, int]:
        """Nodes of the learning step's graphs, by graph."""
        return self._learn.graph_nodes()

    def budget(self, program: StepProgram) -> Budget:
        """What a step of `program` may do at these stages."""
        return self.budgets[program.name]

    # ---------------------------------------------------------------- state

    @cold_path("reads a whole state for a checkpoint")
    def state(self) -> dict[str, NDArray[np.generic]]:
        """Every persistent buffer by name: all that a resumed run continues from."""
        names = {
            b.name
            for program in (self.learn_program, self.collect_program)
            for b in program.buffers
            if b.persistent
        }
        with self.device.ledger.within("io"):
            return {name: self.workspace.read(name) for name in sorted(names)}

    @cold_path("writes a whole state, before the run goes on")
    def restore(self, state: dict[str, NDArray[np.generic]], progress: Progress) -> None:
        """Continue from a saved state, whichever stages and device wrote it.

        Raises:
            TrainerError: a buffer is missing or of another shape.
        """
        own = self.state()
        for name, current in own.items():
            if name not in state:
                raise TrainerError(f"the checkpoint has no {name!r}; it is of another kind of run")
            if state[name].shape != current.shape:
                raise TrainerError(
                    f"the checkpoint's {name} is {list(state[name].shape)}, this network and replay"
                    f" need {list(current.shape)}; use the config that it was trained with"
                )
        with self.device.ledger.within("io"):
            for name in own:
                self._put(name, state[name])
                if (mirror := MIRRORS.get(name)) in self.workspace.host:
                    self.workspace.host[mirror][...] = state[name]
            nodes = np.zeros(self.shapes.nodes)
            tree.rebuild(np.asarray(state["replay_leaves"], np.float32), nodes)
            self._put("replay_nodes", nodes)
        self.progress = progress

    def _put(self, name: str, values: NDArray[np.generic]) -> None:
        self.workspace.write(name, np.ascontiguousarray(values))

    def close(self) -> None:
        """Free everything on the device."""
        self.workspace.close()
