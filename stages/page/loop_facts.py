"""Everything that the page about a loop says, verified and measured before a line is written.

A set of stages that can't be run is a finding of the verification; what can't be measured because
of it is a `Missing` with the reason, which the page prints in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onegraph.kernels.device.base import Device, DeviceError
from onegraph.stages.bench import WARM_UP_STEPS, BenchResult, bench, set_label
from onegraph.stages.page.graph_drawing import (
    Cluster,
    DotError,
    DriverGraph,
    driver_graph,
    from_program,
)
from onegraph.stages.page.markup import Missing
from onegraph.stages.phase_report import PhaseReport, time_phases
from onegraph.stages.program import StepProgram
from onegraph.stages.registry import StageSet
from onegraph.stages.subject import Subject
from onegraph.stages.verification import SetResult, Verification
from onegraph.stages.verify import OpenDevice, verify

#: Steps whose phases are timed at each set, each of them alone.
TIMED_STEPS = 8


class LoopReportError(ValueError):
    """A report that can't be made as asked; the message names the value and the remedy."""


@dataclass(frozen=True)
class SetFacts:
    """One set of stages that runs.

    Attributes:
        label: the set and the name of its last stage.
        result: what its verification found.
        program: the timed program at these stages.
        phases: its phase times; ``None`` where the stages time nothing.
    """

    label: str
    stages: StageSet
    result: SetResult
    program: StepProgram
    phases: PhaseReport | None


@dataclass(frozen=True)
class LoopFacts:
    """All that the page is made from.

    Attributes:
        labels: of the sets of `verification`, in their order.
        program: the name of the program that was timed and drawn.
        rounds: of the benchmark.
        sets: those that run, in order; the last of them is drawn.
        clusters: of the last set's program.
        driver: the last set's graphs, as the driver draws them.
    """

    subject: Subject
    verification: Verification
    labels: tuple[str, ...]
    program: str
    rounds: int
    times: BenchResult | Missing
    sets: tuple[SetFacts, ...]
    clusters: tuple[Cluster, ...] | Missing
    driver: DriverGraph | Missing


def gather_loop(
    subject: Subject,
    open_device: OpenDevice,
    *,
    sets: Sequence[StageSet] | None,
    steps: int,
    rounds: int,
    program: str | None,
    verified: Verification | None,
    timed: BenchResult | None,
) -> LoopFacts:
    """Verify and measure what is not given; the arguments are those of `loop_report`.

    Raises:
        LoopReportError: what is given is of another subject, or does not go together; or there is
            no such program.
        VerifyError, StageSetError, BenchError: as `verify` and `bench`.
        Any error of `open_device`.
    """
    if verified is not None and sets is not None:
        raise LoopReportError(
            "the sets are those of the verification that was given; leave out `sets` or `verified`"
        )
    for what, given in (("verified", verified), ("timed", timed)):
        if given is not None and given.subject != subject.name:
            raise LoopReportError(
                f"`{what}` is of {given.subject!r} and the report of {subject.name!r}; give the"
                " subject's own, or leave it out"
            )
    verification = verified or verify(subject, open_device, sets, steps=steps)
    ran = [one for one in verification.sets if one.programs]
    name = _program_name(ran, program, timed)
    labels = tuple(set_label(subject, frozenset(one.stages)) for one in verification.sets)
    if not ran:
        nothing = Missing("no set of stages runs, as the verification found")
        return LoopFacts(
            subject, verification, labels, name, rounds, timed or nothing, (), nothing, nothing
        )
    with open_device() as device:
        times = timed or _times(subject, ran, device, name, rounds)
        measured = [_measured(subject, one, device, name) for one in ran]
    found = tuple(facts for facts, _ in measured)
    clusters = from_program(found[-1].program)
    return LoopFacts(
        subject,
        verification,
        labels,
        name,
        times.rounds if isinstance(times, BenchResult) else rounds,
        times,
        found,
        clusters or Missing(f"program {name} does nothing"),
        measured[-1][1],
    )


def _program_name(
    ran: Sequence[SetResult], asked: str | None, timed: BenchResult | None
) -> str:  # fmt: skip
    """The program to time: the one that is asked for, or was timed, or a step runs first."""
    names = list(dict.fromkeys(name for one in ran for name in one.programs))
    name = asked or (timed.program if timed is not None else next(iter(names), ""))
    if names and name not in names:
        raise LoopReportError(f"program {name!r} is none of {', '.join(names)}; name one of those")
    if timed is not None and timed.program != name:
        raise LoopReportError(
            f"`timed` is of program {timed.program!r} and the report of {name!r}; give its own"
            " times, or leave them out"
        )
    return name


def _times(
    subject: Subject, ran: Sequence[SetResult], device: Device, program: str, rounds: int
) -> BenchResult | Missing:
    chosen = [frozenset(one.stages) for one in ran]
    try:
        return bench(subject, chosen, device, program=program, rounds=rounds)
    except DeviceError as error:  # all sets are there at once, which memory may not hold
        return Missing(" ".join(str(error).split()))


def _measured(
    subject: Subject, result: SetResult, device: Device, program: str
) -> tuple[SetFacts, DriverGraph | Missing]:
    stages = frozenset(result.stages)
    run = subject.at(stages, device)
    try:
        runner = run.runners[program]
        for _ in range(WARM_UP_STEPS):
            runner.step()
        phases = time_phases(runner, TIMED_STEPS)
        driver: DriverGraph | Missing
        try:
            driver = driver_graph(runner)
        except (DotError, DeviceError) as error:
            driver = Missing(" ".join(str(error).split()))
        label = set_label(subject, stages)
        return SetFacts(label, stages, result, runner.program, phases), driver
    finally:
        run.close()
