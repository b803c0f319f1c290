"""Stages that break their promise on purpose, each with the checks that must catch it, no other.

All are planted in the example's k-means, so that they run on a GPU too. Importing this puts the
example's folder on `sys.path`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent / "examples", HERE / "planted_kernels"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import km_move_reciprocal  # noqa: E402, F401  declares the kernel
import own_loop  # noqa: E402

from onegraph.stages import (  # noqa: E402
    STAGES,
    Buffer,
    Fragment,
    Launch,
    Limit,
    Phase,
    Stage,
    StepProgram,
    Workspace,
)
from onegraph.stages.program import Alloc, Free, Host, HostArrays  # noqa: E402
from onegraph.stages.program_subject import ProgramRun, ProgramSubject  # noqa: E402


def _no_read_back(program: StepProgram, parts: object) -> StepProgram:
    total = own_loop.launch("km_inertia", batch=own_loop.BATCH)
    return program.replace_group(
        "inertia", Fragment((total,), (Buffer("inertia", (1,), "f64", "pinned"),))
    )


#: An honest stage with host ops left in the step, which a plant can hide in.
NO_READ_BACK = Stage(
    1,
    "no-read-back",
    "the inertia stays on the device",
    _no_read_back,
    budget=lambda _: tuple(
        Limit(kind, 0, stage="no-read-back") for kind in ("dtoh", "sync", "alloc", "free")
    ),
)


@dataclass
class Reach:
    """How planted host code gets at the device: a host op is given host arrays alone."""

    workspace: Workspace | None = None
    programs: int = 0  # that were made with the plant

    @property
    def arrays(self) -> dict[str, Any]:
        assert self.workspace is not None
        return self.workspace.arrays

    @property
    def device(self) -> Any:
        assert self.workspace is not None
        return self.workspace.device


class PlantedRun(ProgramRun):
    """A run that may also do something of its own in each step, outside its program."""

    beside: Callable[[], object] | None = None

    def step(self, *, timed: bool = False):
        if self.beside is not None:
            self.beside()
        return super().step(timed=timed)


@dataclass(frozen=True)
class PlantedSubject(ProgramSubject):
    """The k-means with a stage of number 2 (after 1) or 7 (after 6) that is not what it says."""

    reach: Reach = field(default_factory=Reach)
    beside: Callable[[Reach], object] | None = None

    def at(self, stages, device):
        run = PlantedRun(self, stages, device)
        self.reach.workspace = run.workspace
        if self.beside is not None and 2 in stages:
            run.beside = lambda: self.beside(self.reach)
        return run


@dataclass(frozen=True)
class Plant:
    """One broken promise.

    Attributes:
        on: the stages that are on beside the plant.
        number: 2 or 7, its place among the stages.
        plant: changes the program.
        caught: the checks that must find it on any device.
        by_cupti: those that must find it where CUPTI counts, beside them.
        told: stage, phase, op, kind and count as (at least) one of the findings names them.
        exact: whether the stage promises every bit.
    """

    name: str
    on: frozenset[int]
    number: int
    plant: Callable[[StepProgram, Reach], StepProgram]
    caught: frozenset[str]
    by_cupti: frozenset[str]
    told: tuple[str, str, str, str, int]
    beside: Callable[[Reach], object] | None = None
    exact: bool = True

    @property
    def honest(self) -> frozenset[int]:
        return self.on

    @property
    def broken(self) -> frozenset[int]:
        return self.on | {self.number}

    def subject(self) -> PlantedSubject:
        reach = Reach()
        stage = Stage(
            self.number,
            "planted",
            self.name,
            lambda program, _: self.plant(program, reach),
            exact=self.exact,
        )
        first, middle = (STAGES[0], NO_READ_BACK), (STAGES[3], own_loop.OWN, *STAGES[5:])
        known = (*first, stage, *middle) if self.number == 2 else (*first, *middle, stage)
        own = own_loop.SUBJECT
        return PlantedSubject(
            own.name,
            own.program,
            own.choices,
            own.parameters,
            known,
            own.parts,
            reach,
            self.beside,
        )


def _inside_advance(extra: Callable[[Reach], object]):
    """Host code that does more than its op says."""

    def plant(program: StepProgram, reach: Reach) -> StepProgram:
        def change(op):
            if not isinstance(op, Host) or op.name != "advance":
                return op

            def run(h: HostArrays) -> None:
                op.run(h)
                extra(reach)

            return replace(op, run=run)

        return program.map_ops(change)

    return plant


def _after(*ops, buffers: tuple[Buffer, ...] = ()):
    """A phase of its own at the end."""

    def plant(program: StepProgram, reach: Reach) -> StepProgram:
        return replace(
            program,
            phases=(*program.phases, Phase("late", ops)),
            buffers=(*program.buffers, *buffers),
        )

    return plant


def _around_the_ledger(reach: Reach) -> None:
    """What a library does that knows nothing of `Device`: it calls the driver itself."""
    centroids = reach.arrays["centroids"]
    reach.device._copy_dtoh(np.empty(centroids.shape, centroids.dtype), centroids)


def _launch_inertia(reach: Reach) -> None:
    arrays = reach.arrays
    scratch = arrays["inertia"]
    reach.device.run(
        "km_inertia", distance=arrays["distance"], inertia=scratch, batch=own_loop.BATCH
    )


def _reciprocal(program: StepProgram, reach: Reach) -> StepProgram:
    def change(op):
        moves = isinstance(op, Launch) and op.kernel == "km_move"
        return replace(op, kernel="km_move_reciprocal") if moves else op

    return program.map_ops(change)


def _now_and_then(program: StepProgram, reach: Reach) -> StepProgram:
    """Rounding that is the other way in every second run, as a race would have it."""
    reach.programs += 1
    return _reciprocal(program, reach) if reach.programs % 2 else program


def _off(program: StepProgram, _: Reach) -> StepProgram:
    """Centroids move by a little less than they should, as if each had one point more."""
    more = lambda: np.full(own_loop.CLUSTERS, 2, np.int64)  # noqa: E731
    return replace(
        program,
        buffers=tuple(
            replace(b, initial=more) if b.name == "count" else b for b in program.buffers
        ),
    )


def _host_op_in_move(program: StepProgram, reach: Reach) -> StepProgram:
    return replace(
        program,
        phases=tuple(
            replace(p, ops=(*p.ops, Host("peek", lambda _: None))) if p.name == "move" else p
            for p in program.phases
        ),
    )


def _set(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


PLANTS = (
    Plant(
        "a read-back hidden in a host op",
        _set(1),
        2,
        _inside_advance(lambda reach: reach.arrays["centroids"].to_host_checkpoint()),
        frozenset({"ledger-budget", "ledger-program"}),
        frozenset({"cupti-budget"}),
        ("no-read-back", "batch", "host advance", "dtoh", 1),
    ),
    Plant(
        "a read-back made around the ledger",
        _set(1),
        2,
        _inside_advance(_around_the_ledger),
        frozenset(),
        frozenset({"cupti-budget", "cupti-ledger"}),
        ("no-read-back", "batch", "host advance", "dtoh", 1),
    ),
    Plant(
        "a launch hidden in a host op",
        _set(1),
        2,
        _inside_advance(_launch_inertia),
        frozenset({"ledger-program"}),
        frozenset(),
        ("planted", "batch", "host advance", "launch", 1),
    ),
    Plant(
        "an extra launch",
        _set(4, 5, 6),
        7,
        _after(own_loop.launch("km_inertia", batch=own_loop.BATCH)),
        frozenset({"program-budget", "ledger-budget"}),
        frozenset({"cupti-budget"}),
        ("child-graphs", "late", "launch km_inertia", "launch", 1),
    ),
    Plant(
        "a per-step allocation",
        _set(4, 5, 6),
        7,
        _after(
            Alloc("leak"), Free("leak"), buffers=(Buffer("leak", (256,), "f32", transient=True),)
        ),
        frozenset({"program-budget", "ledger-budget"}),
        frozenset({"cupti-budget"}),
        ("device-scalars", "late", "alloc leak", "alloc", 1),
    ),
    Plant(
        "a changed rounding",
        _set(1),
        2,
        _reciprocal,
        frozenset({"equivalence"}),
        frozenset(),
        ("planted", "", "", "", 0),
    ),
    Plant(
        "numbers that are off by more than rounding",
        _set(1),
        2,
        _off,
        frozenset({"equivalence"}),
        frozenset(),
        ("planted", "", "", "", 0),
        exact=False,
    ),
    Plant(
        "rounding that changes from run to run",
        _set(1),
        2,
        _now_and_then,
        frozenset({"repeatability"}),
        frozenset(),
        ("planted", "", "", "", 0),
        exact=False,
    ),
    Plant(
        "a wait outside the program",
        _set(1),
        2,
        lambda program, _: program,
        frozenset({"outside-program"}),
        frozenset(),
        ("planted", "", "", "sync", 1),
        beside=lambda reach: reach.device.synchronize(),
    ),
    Plant(
        "a host op that no graph can hold",
        _set(4, 5),
        2,
        _host_op_in_move,
        frozenset({"run"}),
        frozenset(),
        ("planted", "", "", "", 0),
    ),
)
