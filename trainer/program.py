"""The trainer's programs: `learn`, `collect`, `epoch`, `evaluate`, and what the stages put in them.

The programs are emitted in their legacy form (stage 0). This module is the one factory that knows
`trainer.legacy`; once a stage has replaced a group, nothing of it is left in the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from onegraph.kernels.common.layout import (
    COUNTERS,
    SCHEDULE_PARAMS,
    SCHEDULES,
)
from onegraph.kernels.learner.advance_counters import initial_schedule
from onegraph.stages.program import (
    Buffer,
    Copy,
    Fragment,
    Launch,
    Merge,
    Op,
    Phase,
    ProgramError,
    Ref,
    StepProgram,
    merge_buffers,
)
from onegraph.stages.round_program import round_program
from onegraph.trainer.blocks.emit import Emit
from onegraph.trainer.envs.base import Environment, HostStepped, ungraphed
from onegraph.trainer.hindsight import relabelling
from onegraph.trainer.learner import Learner, adam_groups
from onegraph.trainer.legacy.parts import LegacyParts
from onegraph.trainer.network import Pass
from onegraph.trainer.phases import AFTER, PHASES
from onegraph.trainer.publication import published_statistics
from onegraph.trainer.regrouping import StepForm
from onegraph.trainer.replay import (
    DeviceReplay,
    batch_buffers,
    draw_buffers,
    ring_buffers,
)
from onegraph.trainer.rounds import loop_control
from onegraph.trainer.shapes import Shapes

#: The phases of a collecting step whose lanes are on the device.
COLLECT_PHASES = ("act", "env_step", "insert", "counters")

#: And of one whose lanes the host steps in between: what the last actions led to is taken in first,
#: so that the host can do the next ones while the device learns.
HOST_COLLECT_PHASES = ("receive", "insert", "counters", "act")


def state_buffers(shapes: Shapes) -> tuple[Buffer, ...]:
    """What both programs share: parameters, moments, counters, schedules."""
    network, seed = shapes.network, shapes.config.seed
    params = shapes.schedule_params()

    def initial() -> object:
        return network.initial(seed)

    def flat(name: str, *, theta: bool = False) -> Buffer:
        return Buffer(
            name,
            (network.size,),
            "f32",
            initial=initial if theta else None,  # type: ignore[arg-type]
            persistent=True,
        )

    return (
        flat("theta", theta=True),
        flat("theta_target", theta=True),
        flat("adam_m"),
        flat("adam_v"),
        Buffer("grad", (network.size,), "f32"),
        *adam_groups(shapes),
        *network.state(),
        Buffer("counters", (COUNTERS,), "i64", persistent=True),
        Buffer(
            "schedule",
            (SCHEDULES,),
            "f64",
            initial=lambda: initial_schedule(params),
            persistent=True,
        ),
        Buffer("schedule_params", (SCHEDULE_PARAMS,), "f64", initial=lambda: params),
        Buffer("skip", (1,), "i32", persistent=True),
        Buffer("clip", (2,), "f32"),
        Buffer("stats", (4,), "f64"),
    )


class DqnPrograms:
    """Emits the trainer's programs, and is the `Parts` that the stages ask.

    Args:
        shapes: the sizes.
        environment: the lanes.
        fusion: gives the way in which the learning step's phases are done together; asked when a
            stage asks for it.
    """

    def __init__(
        self,
        shapes: Shapes,
        environment: Environment,
        fusion: Callable[[], StepForm | None] = lambda: None,
    ) -> None:
        self.shapes, self.environment, self.fusion = shapes, environment, fusion
        hindsight = relabelling(shapes.config, environment)
        self.replay = DeviceReplay(shapes, hindsight)
        self.learner = Learner(shapes)
        self.legacy = LegacyParts(shapes, hindsight)
        self._fragments: dict[tuple[str, str, str], Callable[[], Fragment]] = {
            ("gpu-replay", "learn", "sample"): self._sample_from_host_thresholds,
            ("gpu-replay", "learn", "priorities"): self._device_priorities,
            ("gpu-replay", "learn", "statistics"): self._statistics_of_device_replay,
            ("gpu-replay", "collect", "insert"): self._device_insert,
            ("philox-per", "learn", "sample"): self._sample_with_philox,
            ("gpu-counters", "learn", "sample"): self._sample_in_place,
            ("gpu-counters", "learn", "counters"): lambda: self._device_counters(0),
            ("gpu-counters", "learn", "statistics"): lambda: published_statistics(shapes),
            ("gpu-counters", "collect", "counters"): lambda: self._device_counters(1),
            ("gpu-counters", "collect", "act"): self._device_act,
            ("epoch-graph", "epoch", "control"): loop_control,
        }

    # ---------------------------------------------------------------- Parts

    def fragment(self, stage: str, program: str, group: str) -> Fragment:
        """What `stage` puts in the place of `group` in `program`."""
        if (make := self._fragments.get((stage, program, group))) is None:
            known = ", ".join("/".join(key) for key in self._fragments)
            raise ProgramError(
                f"the trainer has no part for stage {stage}, program {program}, group {group};"
                f" it has {known}"
            )
        return make()

    def merges(self, program: str) -> tuple[Merge, ...]:
        """What takes the place of the learning step's phases, if anything does."""
        form = self.fusion() if program == "learn" else None
        return form.merges() if form is not None else ()

    def restored(self) -> None:
        """What the host derives from the replay's arrays is out of date: they were overwritten."""
        self.legacy.replay.forget()

    def _ring(self) -> tuple[Buffer, ...]:
        return ring_buffers(self.shapes, "device")

    def _draws(self) -> tuple[Buffer, ...]:
        return (*draw_buffers(self.shapes), *batch_buffers(self.shapes), *self._ring())

    def _sample_from_host_thresholds(self) -> Fragment:
        before, after, buffers = self.replay.host_thresholds()
        total = Ref("thresholds", self.shapes.draws, 1)
        ops, scratch = self.replay.sample_through_copies(total)
        return Fragment(
            (*before, self.replay.descend(), *ops, *after),
            (*buffers, *scratch, *self._draws(), *self.legacy.state_buffers()),
        )

    def _thresholds(self) -> Buffer:
        return Buffer("thresholds", (self.shapes.draws,), "f64")

    def _sample_with_philox(self) -> Fragment:
        ops, scratch = self.replay.sample_through_copies(self.replay.total)
        return Fragment(
            (self.replay.philox_thresholds(), self.replay.descend(), *ops),
            (self._thresholds(), *scratch, *self._draws()),
        )

    def _sample_in_place(self) -> Fragment:
        ops, scratch = self.replay.sample_in_place()
        return Fragment(ops, (*scratch, *self._draws()))

    def _device_priorities(self) -> Fragment:
        ops, scratch = self.replay.update()
        return Fragment(ops, (*scratch, *draw_buffers(self.shapes), *self._ring()))

    def _device_insert(self) -> Fragment:
        return Fragment(self.replay.insert(), self._ring())

    def _statistics_of_device_replay(self) -> Fragment:
        fragment = self.legacy.statistics(device_replay=True)
        return Fragment(self._maintenance(fragment), (*fragment.buffers, *self._ring()))

    def _maintenance(self, statistics: Fragment) -> tuple[Op, ...]:
        """The target update and the statistics, a kernel each, and what the host does with them."""
        return (*self.learner.follow_up(), *statistics.ops)

    def _device_counters(self, program: int) -> Fragment:
        return Fragment(
            (
                Launch(
                    "advance_counters",
                    {
                        "counters": Ref("counters"),
                        "schedule": Ref("schedule"),
                        "params": Ref("schedule_params"),
                        "skip": Ref("skip"),
                        "program": program,
                        "lanes": self.shapes.lanes,
                        "slots": self.shapes.slots,
                    },
                ),
            ),
            state_buffers(self.shapes),
        )

    def _device_act(self) -> Fragment:
        values = self._acting()[1].buffer
        # Noise on the weights is what explores where there is any.
        greedy = self.shapes.network.noisy is not None
        return Fragment((self._act(values, "env_action", self.shapes.lanes, greedy=greedy),))

    def _acting(self) -> tuple[Emit, Ref]:
        """The pass that collection acts by, and where it leaves the action values."""
        emit = self.shapes.network.emit("act_", self.shapes.lanes, Pass.ACT)
        return emit, self.shapes.network.act(emit, Ref(self.environment.names.obs), Pass.ACT)

    # ---------------------------------------------------------------- learn

    def learn(self) -> StepProgram:
        """The learning step, in its twelve phases, as stage 0 has it."""
        sample, priorities = self.legacy.sample(), self.legacy.priorities()
        counters = self.legacy.counters(0)
        statistics = self.legacy.statistics(device_replay=False)
        own = self.learner.work
        work: dict[str, tuple[Op, ...]] = {
            **own,
            "per_sample": _grouped("sample", sample.ops),
            "counters": (*_grouped("counters", counters.ops), *own["counters"]),
            "maintenance": (
                *own["maintenance"],
                *_grouped("statistics", self._maintenance(statistics)),
            ),
            "per_priority": _grouped("priorities", priorities.ops),
        }
        replay_phases = ("per_sample", "per_priority")
        return StepProgram(
            "learn",
            "learn",
            tuple(
                Phase(
                    name,
                    work.get(name, ()),
                    frozenset({"replay"}) if name in replay_phases else frozenset(),
                    AFTER.get(name),
                )
                for name in PHASES
            ),
            merge_buffers(
                state_buffers(self.shapes),
                self.learner.buffers,
                sample.buffers,
                counters.buffers,
                statistics.buffers,
                priorities.buffers,
            ),
        ).pruned()

    # ---------------------------------------------------------------- collect and evaluate

    def collect(self) -> StepProgram:
        """Act in every lane, step the environment, insert what happened: stage 0's form.

        Lanes that the host steps have done so before; they act last. Where the replay holds
        recorded transitions, nothing is collected: the program is empty.
        """
        if self.shapes.config.offline.transitions:
            return StepProgram("collect", "collect", (), ())
        acting, values = self._acting()
        act, insert = self.legacy.act(values), self.legacy.insert()
        counters = self.legacy.counters(1)
        order = COLLECT_PHASES
        if isinstance(self.environment, HostStepped):
            order = HOST_COLLECT_PHASES
        work = {
            "act": (
                *acting.take(),
                *_grouped("act", act.ops),
            ),
            "env_step": (self.environment.step(),),
            "receive": (self.environment.step(),),
            "insert": _grouped("insert", insert.ops),
            "counters": _grouped("counters", counters.ops),
        }
        return StepProgram(
            "collect",
            "collect",
            tuple(
                Phase(name, work[name], frozenset({"replay"} if name == "insert" else ()))
                for name in order
            ),
            merge_buffers(
                state_buffers(self.shapes),
                acting.buffers,
                self.environment.buffers(),
                act.buffers,
                insert.buffers,
                counters.buffers,
            ),
        ).pruned()

    def epoch(self, collect: StepProgram, learn: StepProgram) -> StepProgram:
        """The round that an epoch is many of: `collect` and `learn` as often as the config says.

        Lanes that the host steps are shown the actions of each collecting step.

        Raises:
            ProgramError: that are too many for one program.
        """
        loop = self.shapes.config.loop
        if isinstance(self.environment, HostStepped) and collect.phases:
            shown = self.actions(self.environment, "collect")
            collect = replace(
                collect,
                phases=(*collect.phases, *shown.phases),
                buffers=merge_buffers(collect.buffers, shown.buffers),
            )
        steps = ((collect, loop.learn_every), (learn, loop.learns_per_collect))
        return round_program("epoch", steps)

    def _act(self, head: str, action: str, lanes: int, *, greedy: bool) -> Launch:
        network = self.shapes.network
        return Launch(
            "act",
            {
                "head": Ref(head),
                "action": Ref(action),
                "counters": Ref("counters"),
                "schedule": Ref("schedule"),
                "n": lanes,
                "actions": network.actions,
                "stride": network.stride,
                "seed": self.shapes.config.seed,
                "greedy": int(greedy),
            },
        )

    def evaluate(self, environment: Environment) -> StepProgram:
        """Act greedily in the lanes of `environment`; ungraphed, outside any step."""
        names, lanes = environment.names, environment.lanes
        acting = self.shapes.network.emit(f"{names.prefix}_act_", lanes, Pass.EVALUATE)
        head = self.shapes.network.act(acting, Ref(names.obs), Pass.EVALUATE)
        act = self._act(head.buffer, names.action, lanes, greedy=True)
        phases = [
            Phase("act", (*acting.take(), act)),
            Phase("env_step", (environment.step(),)),
        ]
        if isinstance(environment, HostStepped):
            phases = [Phase("receive", (environment.reset(),)), phases[0]]
        return self._outside(f"evaluate_{names.prefix}", phases, acting, environment)

    def begin(self) -> StepProgram:
        """Take in the first observations of lanes that the host steps, and act; ungraphed."""
        acting, values = self._acting()
        act = self._act(
            values.buffer,
            self.environment.names.action,
            self.shapes.lanes,
            greedy=self.shapes.network.noisy is not None,
        )
        phases = [
            Phase("receive", (self.environment.reset(),)),
            Phase("act", (*acting.take(), act)),
        ]
        return self._outside("begin", phases, acting, self.environment)

    def _outside(
        self, name: str, phases: list[Phase], acting: Emit, environment: Environment
    ) -> StepProgram:
        """A program outside any step, whose kernels are those launched outside graphs."""
        buffers = merge_buffers(state_buffers(self.shapes), acting.buffers, environment.buffers())
        return StepProgram(name, "epoch", tuple(phases), buffers).pruned().map_ops(ungraphed)

    @staticmethod
    def actions(environment: Environment, scope: Literal["collect", "epoch"]) -> StepProgram:
        """Copy the actions of lanes that the host steps to where it can read them.

        The copy waits for all that came before it: the host may then write to the lanes' pinned
        memory, which no kernel reads until the next collecting step.
        """
        names = environment.names
        return StepProgram(
            f"{names.prefix}_actions",
            scope,
            (Phase("actions", (Copy(Ref(names.host_action), Ref(names.action), "dtoh"),)),),
            (
                *(b for b in environment.buffers() if b.name == names.action),
                Buffer(names.host_action, (environment.lanes,), "i32", "host"),
            ),
        )


def _grouped(group: str, ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(replace(op, group=group) for op in ops)
