"""The trainer: programs, stages, device and environment put together, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onegraph.guards.markers import cold_path, hot_path
from onegraph.kernels.common.layout import ADAM_GROUPS, Counter, Flag
from onegraph.kernels.device.base import Device, DeviceArray, DeviceError
from onegraph.kernels.device.ledger import StepCounts
from onegraph.kernels.learner.advance_counters import reschedule
from onegraph.kernels.learner.publish import PublishedRecord, RecordField, read_record
from onegraph.kernels.replay import tree
from onegraph.stages.budget import Budget
from onegraph.stages.program import Buffer, Host, StepProgram
from onegraph.stages.registry import NONE, StageSet, StageSetError, by_number
from onegraph.stages.runner import PhaseTimes, Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.changes import refused_change
from onegraph.trainer.config import Config
from onegraph.trainer.envs.base import (
    Environment,
    FinishedEpisodes,
    HostLanes,
    HostStepped,
    reset_program,
)
from onegraph.trainer.envs.build import MarketSetup, build_environment
from onegraph.trainer.envs.gym.snapshot import SnapshotError, decoded, encoded
from onegraph.trainer.hindsight import relabelling
from onegraph.trainer.host_stepping import ACTIONS_BUDGET, HostStepping
from onegraph.trainer.learner import GRADIENTS
from onegraph.trainer.network import QNetwork, padded_width
from onegraph.trainer.offline import OfflineData, Transitions, offline_run, ring_state
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.replay import ring_buffers
from onegraph.trainer.rounds import Rounds, RoundsTaken
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.staged import require_possible, staged
from onegraph.trainer.tuning import FusionChoice, FusionChooser

Say = Callable[[str], None]

#: Host mirrors that the stages before `gpu-counters` keep of device state.
MIRRORS = {"counters": "h_counters", "schedule": "h_schedule", "skip": "h_skip"}

#: What a learning step changes, unless it is skipped; a NaN in it never goes away by itself.
LEARNED = ("theta", "theta_target", "adam_m", "adam_v")

#: Lanes of the host in a checkpoint, uint8 [n].
HOST_LANES = "host_lanes"

#: Where the schedules' constants are, whichever of them the stages use.
SCHEDULE_PARAMS = ("schedule_params", "h_params")


class TrainerError(RuntimeError):
    """The trainer can't do what was asked; the message says why and what would help."""


@dataclass
class Progress:
    """What the host knows of the run without asking the device.

    Attributes:
        collects: vector steps so far.
        reset_rows: rows among those of the vector steps that only reset a lane of the host.
        learns: learning steps so far.
        epoch: epochs finished.
        invalid_rows: rows inserted by the end of the last epoch that were not finite.
        best_score: the best validation score so far; ``None`` before the first.
        epochs_without_gain: epochs since that one.
    """

    collects: int = 0
    learns: int = 0
    epoch: int = 0
    invalid_rows: int = 0
    best_score: float | None = None
    epochs_without_gain: int = 0
    reset_rows: int = 0


class Trainer:
    """A DQN learner on a device, at a set of stages.

    Args:
        config: the run's config.
        device: where it runs.
        stages: which stages are on.
        say: where notes go that the user should read (memory halving).
        environment: lanes to use instead of those that the config describes.
        optional: those of the stages that are left out, with a note, where they can't be on.
        transitions: rows to learn from instead of those of the file `offline.transitions`.

    Attributes:
        offline: the recorded transitions that the replay holds; ``None`` where it collects. The
            config then has their sizes, and the environment is there for evaluation alone.

    Raises:
        StageSetError: one of the other stages can't be on with this config.
        TrainerError: the replay does not fit the device even at the smallest useful size, or the
            environment has other lanes than the config.
        TransitionsError: the recorded transitions can't be used.
        MarketDataError: the bars can't be used.
        FusionError: the config asks for fused kernels that there are not for this learning step.
        MismatchError: hindsight for an environment without goals, or attention that does not
            divide its features.
    """

    def __init__(
        self,
        config: Config,
        device: Device,
        stages: StageSet,
        *,
        say: Say = lambda _: None,
        environment: Environment | None = None,
        optional: StageSet = NONE,
        transitions: Transitions | None = None,
    ) -> None:
        self.offline: OfflineData | None
        config, self.offline = offline_run(config, transitions)
        self.config, self.device, self.say = config, device, say
        self._asked, self._optional = stages, optional
        self._left_out: set[tuple[int, str]] = set()
        self.environment: Environment
        self.market: MarketSetup | None
        self.environment, self.market = (
            build_environment(config, self.offline) if environment is None else (environment, None)
        )
        if environment is not None and self.offline is not None:
            self.offline.check(environment, config.env.kind)
        if self.environment.lanes != config.env.lanes:
            raise TrainerError(
                f"the environment has {self.environment.lanes} lanes, env.lanes is"
                f" {config.env.lanes}; make them equal"
            )
        self.progress = Progress()
        self._host: HostStepping | None = None
        lanes: HostLanes | None = None
        if isinstance(self.environment, HostStepped) and self.offline is None:
            lanes = self.environment.open_lanes()
        try:
            self._build(lanes)
        except BaseException:
            if lanes is not None:
                lanes.close()
            raise

    # ---------------------------------------------------------------- construction

    def _emit(self, config: Config, capacity: int) -> None:
        """The programs of `config` at these stages, and the sizes that they are made from.

        Where one of them can't be made, the trainer is as it was.
        """
        network = QNetwork.of(config, self.environment)
        shapes = Shapes(config, network, capacity)
        fusion = FusionChooser(shapes, self.environment, self.device, self.say)
        programs = DqnPrograms(shapes, self.environment, fusion)
        found = staged(programs, self._asked)
        self._leave_out(found.refused)
        self.config, self.network, self.shapes = config, network, shapes
        self.programs, self._fusion = programs, fusion
        self.stages, self.budgets, self._programs = found.stages, dict(found.budgets), found.all
        if self._host is not None:
            self.budgets[self._host.reading.program.name] = ACTIONS_BUDGET
        self.learn_program, self.collect_program = found.learn, found.collect
        self.epoch_program = found.epoch

    def _leave_out(self, refused: Mapping[int, str]) -> None:
        require_possible(refused, self._optional)
        for number, reason in refused.items():
            if (number, reason) not in self._left_out:
                self._left_out.add((number, reason))
                self.say(f"stage {number} {by_number(number).name} is left out: {reason}")

    def _ensure(self) -> None:
        for program in self._programs:
            self.workspace.ensure(program.buffers)
        self.workspace.ensure(self._loaded_ring())

    def _loaded_ring(self) -> tuple[Buffer, ...]:
        """The replay's arrays where no insert declares them: a state holds them at every stage."""
        if self.offline is None:
            return ()
        space = next(b.space for b in self.learn_program.buffers if b.name == "replay_leaves")
        return ring_buffers(self.shapes, space)

    def _build(self, lanes: HostLanes | None) -> None:
        """Allocate; halve the replay while it exceeds the cap or the device is short of memory.

        A capacity that was found by halving leaves the device its working memory as well. One that
        fits as it was asked for is left alone: it may be that of a checkpoint.
        """
        asked = capacity = self._capped(self.config.replay.capacity)
        while True:
            self._emit(self.config, capacity)
            self.workspace = Workspace(self.device)
            try:
                self._ensure()
            except DeviceError as error:
                self.workspace.close()
                if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                    raise
                capacity = self._halved(capacity, f"memory is short: {error.detail}")
                continue
            left, wanted = self.device.memory_free(), self.device.working_bytes
            if (
                capacity == asked
                or left >= wanted
                or self._half(capacity) < self._floor(self.config)
            ):
                break
            self.workspace.close()
            capacity = self._halved(
                capacity, f"{left:,} bytes would be left, modules and graphs may need {wanted:,}"
            )
        self._learn = self._learn_runner()
        self._collect = self._collect_runner()
        self._rounds = self._new_rounds()
        if self.offline is not None:
            self._load(self.offline.training)
            return
        if lanes is None:
            Runner(reset_program(self.environment), self.workspace).step()
            return
        actions = self.programs.actions(self.environment, "collect")
        self.budgets[actions.name] = ACTIONS_BUDGET
        self._host = HostStepping(
            self.environment, lanes, self.workspace, actions, self.config.seed
        )
        self._host.begin(self.programs)

    @cold_path("loads the replay, before the run begins")
    def _load(self, transitions: Transitions) -> None:
        """Fill the replay with recorded transitions."""
        with self.device.ledger.within("io"):
            counters = self.workspace.read("counters")
        counters[Counter.FILLED] = transitions.rows
        self._put_all({**ring_state(transitions, self.shapes.padded), "counters": counters})
        self.programs.restored()
        finite = transitions.finite()
        if not finite.all():
            self.say(
                f"{transitions.file}: {np.count_nonzero(~finite):,} of {finite.size:,} rows are not"
                f" finite (the first of them: row {int(np.argmin(finite))} of those learned from);"
                " they are never drawn"
            )

    def _learn_runner(self) -> Runner:
        timed = max(self.config.loop.timed_steps, 1)
        return Runner(self.learn_program, self.workspace, timed_sets=timed)

    def _collect_runner(self) -> Runner:
        return Runner(self.collect_program, self.workspace, timed_sets=1)

    def _new_rounds(self) -> Rounds | None:
        if self.epoch_program is None:
            return None
        return Rounds(Runner(self.epoch_program, self.workspace))

    def _row_bytes(self) -> int:
        """Device bytes of a replay row: two states, its other columns, its leaf and tree share."""
        width = padded_width(self.environment.observation_width)
        return 2 * 4 * width + 4 + 4 + 1 + 8 + 4 + 4 + 4 + 1

    @staticmethod
    def _floor(config: Config) -> int:
        """Rows below which training could not begin."""
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

    def _half(self, capacity: int) -> int:
        """About half of a capacity, a multiple of the lanes."""
        return capacity // 2 // self.config.env.lanes * self.config.env.lanes

    def _halved(self, capacity: int, why: str) -> int:
        if self.offline is not None:
            raise TrainerError(
                f"{self.offline.training.file}: its {capacity:,} rows of {self._row_bytes()} bytes"
                f" do not fit ({why}); learn from fewer rows, or raise the memory"
            )
        half = self._half(capacity)
        if half < self._floor(self.config):
            raise TrainerError(
                f"replay.capacity: {capacity:,} rows of {self._row_bytes()} bytes do not fit"
                f" ({why}), and {half:,} rows are fewer than the {self._floor(self.config):,} that"
                " loop.start_steps, learn.batch_size and replay.n_step need; lower those, or raise"
                " the memory"
            )
        self.say(f"replay: {capacity:,} rows do not fit ({why}); using {half:,}")
        return half

    @property
    def fusion(self) -> FusionChoice | None:
        """The kernels that do the learning step's phases together; ``None`` if no stage asks."""
        return self._fusion.chosen

    # ---------------------------------------------------------------- another config

    def reconfigure(self, config: Config) -> None:
        """Go on with `config` from the next step on; the replay, counters and lanes stay.

        A changed schedule is device data and needs nothing else: graphs stay as they are. What
        changes a program (batch size, loss, n-step, ...) has that program bound, warmed up and
        captured anew in its next step. A network with other parameters starts from its initial
        ones, Adam's moments and counters and the learning rate's warm-up from zero; evaluators made
        before a change of the network refuse to go on. A `Loop` reads its config when it is made:
        make a new one.

        Raises:
            TrainerError: a field that a running trainer is bound to (`onegraph.trainer.changes`),
                or more than the replay or the device can hold. The trainer is then as it was.
            MismatchError: hindsight for an environment without goals, or attention that does not
                divide its features. The trainer is as it was.
            FusionError: fused kernels that there are not for the new step. The trainer is as it
                was.
            StageSetError: a stage that can't be on with the new config. The trainer is as it was.
        """
        if problem := refused_change(self.config, config):
            raise TrainerError(problem)
        relabelling(config, self.environment)
        if (floor := self._floor(config)) > self.shapes.capacity:
            raise TrainerError(
                f"the replay holds {self.shapes.capacity:,} rows, and learn.batch_size ="
                f" {config.learn.batch_size}, loop.start_steps = {config.loop.start_steps} and"
                f" replay.n_step = {config.replay.n_step} need {floor:,}; lower those"
            )
        before, network = self.config, self.network
        programs = {p.name: p for p in self._programs}
        kept = self._learner_state()
        try:
            self._emit(config, self.shapes.capacity)
        except StageSetError:
            self._emit(before, self.shapes.capacity)
            raise
        try:
            self._ensure()
        except DeviceError as error:
            self._emit(before, self.shapes.capacity)
            self._ensure()
            self._put_all(kept)
            if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            raise TrainerError(
                f"the new config does not fit the device ({error.detail}); the trainer goes on with"
                " the one before"
            ) from error
        if not self.network.same_parameters(network):
            self._begin_network(kept["counters"])
        self._put_constants()
        self._put_schedules()
        self._replace_runners(before, programs, network)

    def _learner_state(self) -> dict[str, NDArray[np.generic]]:
        """The persistent buffers but for the replay's, which no change of config moves."""
        names = self._persistent()
        with self.device.ledger.within("io"):
            return {n: self.workspace.read(n) for n in names if not n.startswith("replay_")}

    def _begin_network(self, counters: NDArray[np.generic]) -> None:
        """Initial parameters, and an optimiser that has made no step."""
        initial, size = self.network.initial(self.config.seed), self.network.size
        counters = counters.copy()
        counters[:ADAM_GROUPS] = 0
        counters[Counter.WARM_UP] = 0
        self._put_all(
            {
                "theta": initial,
                "theta_target": initial,
                "adam_m": np.zeros(size, np.float32),
                "adam_v": np.zeros(size, np.float32),
                "skip": np.zeros(1, np.int32),
                "counters": counters,
                **{b.name: b.initial() for b in self.network.state() if b.initial is not None},
            }
        )
        # What the network before left there may lie in gaps of this one's, or in ranges of it that
        # a gradient does not reach.
        with self.device.ledger.within("io"):
            declared = {b.name for b in self.learn_program.buffers}
            for name in GRADIENTS:
                if name in declared:
                    self.workspace.write(name, np.zeros(size, np.float32))

    def _put_constants(self) -> None:
        """What the programs' buffers begin with and keep: tables, shares, ends of groups."""
        constants = {
            b.name: b.initial
            for program in self._programs
            for b in program.buffers
            if b.initial is not None and not b.persistent and b.space == "device"
        }
        with self.device.ledger.within("io"):
            for name, initial in constants.items():
                self.workspace.write(name, initial())

    def _put_schedules(self) -> None:
        """The schedules of the config, in force from the next step on."""
        params = self.shapes.schedule_params()
        with self.device.ledger.within("io"):
            for name in SCHEDULE_PARAMS:
                if name in self.workspace.buffers:
                    self.workspace.write(name, params)
            schedule, counters = (self.workspace.read(name) for name in ("schedule", "counters"))
        reschedule(schedule, params, counters)
        self._put_all({"schedule": schedule})

    def _replace_runners(
        self, before: Config, programs: dict[str, StepProgram], network: QNetwork
    ) -> None:
        """New runners for the programs that changed; the others keep their graphs."""
        old = self._learn, self._collect
        looped = None if self._rounds is None else self._rounds.runner
        if (
            not _same_program(programs["learn"], self.learn_program)
            or before.loop.timed_steps != self.config.loop.timed_steps
        ):
            self._learn = self._learn_runner()
        if not _same_program(programs.get("collect", self.collect_program), self.collect_program):
            self._collect = self._collect_runner()
        if programs.get("epoch") != self.epoch_program:
            self._rounds = self._new_rounds()
        for was, now in zip(old, (self._learn, self._collect), strict=True):
            now.index = was.index
        if looped is not None and self._rounds is not None:
            self._rounds.runner.index = looped.index
        for runner in list(self.workspace.owners):
            replaced = runner in (*old, looped) or self.network != network
            if isinstance(runner, Runner) and replaced and runner not in self.runners.values():
                runner.retire("the trainer has another config now; make it again")
        self._drop_unused(programs.values())

    def _drop_unused(self, before: Iterable[StepProgram]) -> None:
        """Free what the programs before had, and nothing that still runs has."""
        runners = [r for r in self.workspace.owners if isinstance(r, Runner) and not r.retired]
        needed = {b.name for runner in runners for b in runner.program.buffers}
        needed |= {b.name for p in self._programs for b in p.buffers}
        needed |= {b.name for b in self._loaded_ring()}
        names = {b.name for program in before for b in program.buffers}
        self.workspace.drop(sorted(names - needed))

    # ---------------------------------------------------------------- stepping

    @property
    def rows(self) -> int:
        """Rows in the replay."""
        if self.offline is not None:
            return self.shapes.capacity
        return min(self.progress.collects * self.shapes.lanes, self.shapes.capacity)

    @property
    def env_steps(self) -> int:
        """Steps of single environments so far; what only reset a lane is none."""
        return self.progress.collects * self.shapes.lanes - self.progress.reset_rows

    @hot_path
    def collect(self, *, timed: bool = False) -> StepCounts:
        """One step of every lane, inserted into the replay.

        Lanes of the host do the actions that the call before chose
        (`onegraph.trainer.host_stepping`).

        Raises:
            TrainerError: the replay holds recorded transitions.
        """
        if self.offline is not None:
            raise TrainerError(
                f"this run learns from {self.offline.training.file} alone, and collects nothing;"
                " leave offline.transitions out to collect"
            )
        if self._host is None:
            counts = self._collect.step(timed=timed)
        else:
            stepped = self._host.advance()
            self.progress.reset_rows += self.shapes.lanes - stepped
            counts = self._collect.step(timed=timed)
            self._host.counts = self._host.read()
        self.progress.collects += 1
        return counts

    @property
    def handover(self) -> StepCounts | None:
        """Device calls of the last reading of the actions; ``None`` if no lanes are on the host."""
        return None if self._host is None else self._host.counts

    @cold_path("in the epoch scope, when no step runs")
    def take_finished(self) -> FinishedEpisodes | None:
        """The host's episodes that ended since the last call; ``None`` if no lanes are there."""
        return None if self._host is None else self._host.lanes.take_finished()

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

    @property
    def loops(self) -> bool:
        """Whether the device can take rounds by itself (`take_rounds`)."""
        return self._rounds is not None

    @property
    def keeps_times(self) -> bool:
        """Whether a learning step can be timed by phase."""
        return self._learn.keeps_times

    @property
    def captured(self) -> bool:
        """Whether the learning step runs from its graphs: its next one needs no warm-up."""
        return bool(self._learn.graph_nodes())

    @hot_path
    def take_rounds(
        self,
        count: int,
        *,
        limit: int = 0,
        begun: int = 0,
        look: Callable[[], None] = lambda: None,
    ) -> RoundsTaken:
        """Have the device take `count` rounds of collecting and learning, and wait for them.

        Args:
            count: rounds: `learn_every` vector steps, then `learns_per_collect` learning steps.
            limit: skipped steps in a row that end it early; 0: none do.
            begun: the learning step up to which skipped ones do not count.
            look: called now and then meanwhile; may call `stop_rounds`, and read `seen_env_steps`.

        Returns:
            How far it came: `progress` says so, too.

        Raises:
            TrainerError: the program is no loop, or the first round's batch can't be drawn.
        """
        if self._rounds is None:
            raise TrainerError(
                "the device takes no rounds by itself at these stages; turn stage 8, epoch-graph,"
                " on, or call collect() and learn()"
            )
        loop = self.config.loop
        rows = min(
            (self.progress.collects + loop.learn_every) * self.shapes.lanes, self.shapes.capacity
        )
        if rows < self.shapes.batch:
            raise TrainerError(
                f"a batch of {self.shapes.batch} can't be drawn in a round that begins with"
                f" {self.rows} rows; collect {self.shapes.batch - rows} more first"
            )
        until = self.progress.learns + count * loop.learns_per_collect
        before = self.progress.learns, self.progress.collects
        try:
            return self._rounds.run(before, until, limit=limit, begun=begun, look=look)
        finally:
            self.progress.learns = self._rounds.learns
            self.progress.collects = self._rounds.collects

    def stop_rounds(self) -> None:
        """Have `take_rounds` end after the round that the device is in."""
        if self._rounds is not None:
            self._rounds.stop()

    @property
    def seen_learns(self) -> int:
        """Learning steps while rounds are taken: as far as the device told. Does not wait."""
        told = 0 if self._rounds is None else self._rounds.learns
        return max(told, self.progress.learns)

    @property
    def seen_env_steps(self) -> int:
        """`env_steps` while rounds are taken: as far as the device told. Does not wait."""
        told = 0 if self._rounds is None else self._rounds.collects
        return max(told, self.progress.collects) * self.shapes.lanes

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
    def view(self, name: str) -> DeviceArray:
        """A device buffer in place, for other libraries to read without a copy.

        ``torch.from_dlpack(trainer.view("replay_state"))`` is the replay's states [capacity, Sp]
        as a tensor, ``theta`` the parameters [size], on the host as on a GPU; ``torch.as_tensor``
        and ``cupy.asarray`` take it on a GPU. Steps go on working in the same memory, so:

        - read it, do not write to it: a step relies on what it left there;
        - call `wait` after steps and before you read again; be done reading (on a GPU:
          ``torch.cuda.synchronize()``) before the next step;
        - it is the trainer's buffer until `reconfigure` changes its size, or `close`. From then on
          ``view.freed`` is true; a tensor made before keeps the memory and the last values.

        Raises:
            KeyError: no such buffer, or one that has no device array now; with the names.
        """
        with self.device.ledger.within("epoch"):
            return self.workspace.view(name)

    @cold_path("in the epoch scope, when no step runs")
    def q_values(self, observations: NDArray[np.float32]) -> NDArray[np.float64]:
        """The action values [rows, A] that evaluation acts by, computed on the host.

        Args:
            observations: [rows, S] or [rows, Sp].
        """
        params, state = self._read_by_a_pass()
        return self.network.q_values(params, observations, state)

    @cold_path("in the epoch scope, when no step runs")
    def indices(self) -> NDArray[np.int32]:
        """The batch indices of the last learning step."""
        with self.device.ledger.within("epoch"):
            return self.workspace.read("index")

    @cold_path("reads arrays that should be finite, when steps are being skipped")
    def nonfinite(self, names: tuple[str, ...] = LEARNED) -> list[str]:
        """Which of the named buffers hold a NaN or an infinity."""
        with self.device.ledger.within("io"):
            return [n for n in names if not np.isfinite(self.workspace.read(n)).all()]

    @cold_path("in the epoch scope, when no step runs")
    def wait(self) -> None:
        """Wait for the device, in the epoch scope."""
        with self.device.ledger.within("epoch"):
            self.device.synchronize()

    @cold_path("in the epoch scope, when no step runs")
    def quantiles(
        self, observations: NDArray[np.float32], levels: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Quantiles [rows, A, levels] of the returns, as `QNetwork.quantiles` gives them."""
        params, state = self._read_by_a_pass()
        return self.network.quantiles(params, observations, levels, state)

    @cold_path("in the epoch scope, when no step runs")
    def atom_masses(self, observations: NDArray[np.float32]) -> NDArray[np.float64]:
        """Probabilities [rows, A, atoms] of the returns, as `QNetwork.atom_masses` gives them."""
        params, state = self._read_by_a_pass()
        return self.network.atom_masses(params, observations, state)

    def _read_by_a_pass(self) -> tuple[NDArray[np.float32], dict[str, NDArray[np.generic]]]:
        """The online parameters, and the rest of the run's state that a pass reads."""
        names = ("counters", *(b.name for b in self.network.state()))
        with self.device.ledger.within("epoch"):
            return self.workspace.read("theta"), {n: self.workspace.read(n) for n in names}

    @property
    def runners(self) -> dict[str, Runner]:
        """The programs' runners by program name, in the order in which a step runs them."""
        if self.offline is not None:
            return {"learn": self._learn}
        found = {"learn": self._learn, "collect": self._collect}
        if self._host is not None:
            found[self._host.reading.program.name] = self._host.reading
        if self._rounds is not None:
            found["epoch"] = self._rounds.runner
        return found

    def graph_nodes(self) -> dict[str, int]:
        """Nodes of the learning step's graphs, by graph."""
        return self._learn.graph_nodes()

    def budget(self, program: StepProgram) -> Budget:
        """What a step of `program` may do at these stages."""
        return self.budgets[program.name]

    # ---------------------------------------------------------------- state

    def _persistent(self) -> list[str]:
        buffers = [*(b for p in self._programs for b in p.buffers), *self._loaded_ring()]
        return sorted({b.name for b in buffers if b.persistent})

    @cold_path("reads a whole state for a checkpoint")
    def state(self) -> dict[str, NDArray[np.generic]]:
        """Every persistent buffer by name, and lanes of the host: what a resumed run goes on from.

        Lanes that can't be written down are said so once; such a run goes on from a reset of them.
        """
        state = self._device_state()
        if self._host is not None:
            lanes = self._host.lanes
            said = bool(lanes.unsaved)
            state[HOST_LANES] = encoded(lanes.state())
            if lanes.unsaved and not said:
                self.say(
                    f"{self.config.env.id}: the state of its lanes can't be saved"
                    f" ({lanes.unsaved}); a resumed run begins new episodes"
                )
        return state

    def _device_state(self) -> dict[str, NDArray[np.generic]]:
        with self.device.ledger.within("io"):
            return {name: self.workspace.read(name) for name in self._persistent()}

    @cold_path("writes a whole state, before the run goes on")
    def restore(self, state: dict[str, NDArray[np.generic]], progress: Progress) -> None:
        """Continue from a saved state, whichever stages and device wrote it.

        Raises:
            TrainerError: a buffer is missing or of another shape.
            GymnasiumError: the lanes saved are of another environment.
        """
        own = self._device_state()
        for name, current in own.items():
            if name not in state:
                raise TrainerError(f"the checkpoint has no {name!r}; it is of another kind of run")
            saved = state[name]
            if (saved.shape, saved.dtype) != (current.shape, current.dtype):
                raise TrainerError(
                    f"the checkpoint's {name} is {list(saved.shape)} {saved.dtype}, this network"
                    f" and replay need {list(current.shape)} {current.dtype}; use the config that"
                    " it was trained with"
                )
        state = dict(state)
        lanes_go_on = self._restored_lanes(state)
        nodes = np.zeros(self.shapes.nodes)
        tree.rebuild(np.asarray(state["replay_leaves"], np.float32), nodes)
        self._put_all({**{name: state[name] for name in own}, "replay_nodes": nodes})
        self._put_schedules()
        self.programs.restored()
        self.progress = progress
        if self._host is not None:
            if lanes_go_on:
                self._host.go_on()
            else:
                self._host.begin(self.programs, progress.collects)

    def _restored_lanes(self, state: dict[str, NDArray[np.generic]]) -> bool:
        """Put the host's lanes where they were; if that can't be, end their episodes in `state`.

        Those were broken off: the newest row of each lane becomes their last one, truncated.
        """
        if self._host is None:
            return False
        if HOST_LANES in state:
            try:
                saved = decoded(state[HOST_LANES].astype(np.uint8))
            except SnapshotError as error:
                raise TrainerError(f"the checkpoint's {HOST_LANES}: {error}") from error
            if self._host.lanes.restore(saved):
                return True
        counters, flags = state["counters"], np.array(state["replay_flags"], np.uint8)
        if counters[Counter.FILLED] > 0:
            slot = (int(counters[Counter.HEAD]) - 1) % self.shapes.slots
            newest = flags[slot * self.shapes.lanes : (slot + 1) * self.shapes.lanes]
            done = Flag.TERMINATED | Flag.TRUNCATED | Flag.INVALID
            newest[(newest & done) == 0] |= np.uint8(Flag.TRUNCATED)
        state["replay_flags"] = flags
        return False

    def _put_all(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Write buffers, and the host's mirrors of them."""
        with self.device.ledger.within("io"):
            for name, values in state.items():
                self.workspace.write(name, np.ascontiguousarray(values))
                if (mirror := MIRRORS.get(name)) in self.workspace.host:
                    self.workspace.host[mirror][...] = values

    def close(self) -> None:
        """Free everything on the device, and close lanes of the host."""
        self.workspace.close()
        if self._host is not None:
            self._host.lanes.close()


def _same_program(before: StepProgram, after: StepProgram) -> bool:
    """Whether one runner serves both. Host code is compared by name, and may not be the same."""
    return before == after and not any(isinstance(op, Host) for _, op in after.ops())
