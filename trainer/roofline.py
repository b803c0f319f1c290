"""The learning step beside what the device allows (`onegraph.stages.roofline`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from onegraph.kernels.device.base import Device
from onegraph.stages.bench import Candidate, ProgramSteps, bench, set_label
from onegraph.stages.least_work import Work, longest_chain
from onegraph.stages.peaks import Peaks
from onegraph.stages.program import StepProgram
from onegraph.stages.registry import StageSet, apply, up_to
from onegraph.stages.roofline import Roofline, roofline
from onegraph.trainer.bench import BenchSubject, at_precision, tensor_core_steps
from onegraph.trainer.program import DqnPrograms

#: The stages whose form of a step shows its work: everything is on the device, each product is an
#: op, and no kernel does several phases at once.
PLAIN = up_to(6)


def plain_program(subject: BenchSubject) -> StepProgram:
    """The step in the form from which its work is read; nothing is allocated for it."""
    programs = DqnPrograms(subject.shapes, subject.environment)
    return apply(subject.program(programs), PLAIN, subject.parts(programs))


def roofline_of(
    subject: BenchSubject,
    sets: Sequence[StageSet],
    device: Device,
    peaks: Peaks | None,
    *,
    rounds: int,
) -> Roofline:
    """Time a step at each of `sets`, and on the tensor cores where it can be, beside its floors.

    Raises:
        BenchError: no set, one twice, or no round.
    """
    work = Work.of(plain_program(subject))
    with ExitStack() as stack:
        steps: list[ProgramSteps] = []
        for stages in sets:
            run = subject.at(stages, device)
            stack.callback(run.close)
            steps.append(ProgramSteps(set_label(subject, stages), run, "learn"))
        works = [work] * len(steps)
        for precision, other in tensor_core_steps(subject, device).items():
            stack.callback(other.close)
            steps.append(other)
            works.append(Work.of(plain_program(at_precision(subject, precision))))
        candidates: list[Candidate] = list(steps)
        result = bench(subject, [], device, rounds=rounds, peers=candidates)
        chains = [longest_chain(step.launched) for step in steps]
    return roofline(result, works, chains, peaks)
