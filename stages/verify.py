"""Run a loop at one set of stages after another, and hold each to what it promises.

Of every set of stages: the choices and parameters must be those of stage 0, bit for bit, after
every step. A set with a stage that agrees to rounding (`Stage.exact`) must make the same choices,
its parameters must be within bounds of stage 0's at the end, and a second run must give its bits
again. And of every set: a step in steady state, timed or not, may make no call beyond the stages'
budgets, as the program states them, as the ledger counts them, and (on a GPU) as CUPTI does.

`onegraph.stages.verification` has the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.device.base import Device, DeviceError
from onegraph.kernels.device.cupti_counts import (
    CuptiCounter,
    CuptiUnavailableError,
    DriverStep,
)
from onegraph.kernels.device.ledger import OpLedger
from onegraph.stages.call_checks import (
    StepRecord,
    by_class,
    check_cupti,
    check_ledger,
    check_programs,
    steady_nodes,
)
from onegraph.stages.difference import (
    RELATIVE_BOUND,
    TRAVELLED_BOUND,
    Difference,
    digest,
    distance,
    first_unequal,
)
from onegraph.stages.finding import Finding, Findings
from onegraph.stages.program import ProgramError
from onegraph.stages.registry import (
    StageSet,
    by_number,
    format_set,
    is_exact,
    missing,
    require_valid,
)
from onegraph.stages.stage import Stage
from onegraph.stages.subject import Subject, SubjectRun
from onegraph.stages.verification import DriverCalls, ProgramCalls, SetResult, Verification

#: A step that warms up and captures, a timed one and a plain one.
LEAST_STEPS = 3

#: What a set that breaks a rule is stopped by; it is a finding, and the next set is still run.
BREAKS = (ProgramError, DeviceError)

#: Said of a set that agrees to rounding, whose draws may fall on the other side of a rounded sum.
ROUNDED_CHOICE = (
    "; this set agrees to rounding, and once in very many draws that moves one to its neighbour: if"
    " another seed shows no difference, it was that"
)

OpenDevice = Callable[[], Device]
Say = Callable[[str], None]


class VerifyError(ValueError):
    """What was asked for can't be verified; the message says why and what would do."""


@dataclass
class _Trace:
    """What a set did, step after step."""

    stages: StageSet
    start: NDArray[Any] | None = None
    end: NDArray[Any] | None = None
    choices: list[NDArray[Any]] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    records: list[StepRecord] = field(default_factory=list)
    programs: dict[str, ProgramCalls] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    broken: bool = False


def cumulative_sets(known: Sequence[Stage]) -> tuple[StageSet, ...]:
    """0, then with each further stage: 0-1, 0-1-2, … by the numbers of `known`."""
    numbers = [stage.number for stage in known if stage.number]
    sets = [frozenset(numbers[:count]) for count in range(len(numbers) + 1)]
    return tuple(s for s in sets if not missing(s, known))


def is_timed(step: int) -> bool:
    """Every other step is asked to be timed."""
    return step % 2 == 1


def verify(
    subject: Subject,
    open_device: OpenDevice,
    sets: Sequence[StageSet] | None = None,
    *,
    steps: int = 100,
    say: Say = lambda _: None,
) -> Verification:
    """Run a loop at each set of stages, stage 0 first, and check all that the stages promise.

    Args:
        subject: the loop.
        open_device: gives a fresh device for each set; the same kind each time.
        sets: default: `cumulative_sets`. Stage 0 comes first, asked for or not: it is what the
            others are compared with.
        steps: at each set; the first warms up and captures, then timed and plain ones alternate.
        say: told of each set as it begins.

    Raises:
        VerifyError: too few steps.
        StageSetError: a set that is not valid.
        Any error of `open_device`.
    """
    if steps < LEAST_STEPS:
        raise VerifyError(
            f"{steps} steps are too few to verify: the first warms up and captures, the others"
            f" alternate between timed and plain; use at least {LEAST_STEPS}"
        )
    chosen = list(cumulative_sets(subject.known) if sets is None else sets)
    for stages in chosen:
        require_valid(stages, subject.known)
    chosen = list(dict.fromkeys([frozenset[int](), *chosen]))
    with open_device() as device:
        kind, name = device.kind, device.name
    results: list[SetResult] = []
    with _driver_counter(kind) as (counter, note):
        first = previous = None
        for stages in chosen:
            label = format_set(stages)
            say(f"stages {label}: {steps} steps")
            trace = _run(subject, stages, previous, open_device, counter, steps)
            if not is_exact(stages, subject.known) and not trace.broken:
                say(f"stages {label}: {steps} steps, again")
                _check_repeats(
                    trace,
                    _run(subject, stages, previous, open_device, None, steps),
                    _added(subject.known, stages, previous),
                )
            again = _Again(subject, open_device)
            results.append(_judged(trace, first, previous, again))
            first, previous = first or trace, trace
    return Verification(subject.name, kind, name, steps, counter is not None, note, tuple(results))


@contextmanager
def _driver_counter(kind: str) -> Iterator[tuple[CuptiCounter | None, str]]:
    if kind != "cuda":
        yield None, f"CUPTI: not counted; the {kind} device makes no driver calls"
        return
    try:
        counter = CuptiCounter()
    except CuptiUnavailableError as error:
        yield None, str(error)
        return
    try:
        yield counter, "CUPTI: counted driver calls and kernels"
    finally:
        counter.close()


# ---------------------------------------------------------------- running


def _run(
    subject: Subject,
    stages: StageSet,
    previous: _Trace | None,
    open_device: OpenDevice,
    counter: CuptiCounter | None,
    steps: int,
) -> _Trace:
    trace = _Trace(stages)
    added = _added(subject.known, stages, previous)
    with open_device() as device:
        device.ledger = ledger = OpLedger()
        try:
            run = subject.at(stages, device)
            try:
                check_programs(run, trace.findings)
                _step_through(run, device, ledger, trace, added, counter, steps)
            finally:
                run.close()
        except BREAKS as error:
            trace.broken = True
            trace.findings.add(
                Finding(
                    "run",
                    str(error),
                    stage=added,
                    phase=getattr(error, "phase", ""),
                    op=getattr(error, "op", ""),
                    step=len(trace.digests),
                )
            )
    return trace


def _added(known: Sequence[Stage], stages: StageSet, previous: _Trace | None) -> str:
    """The stages that came on with this set."""
    new = sorted(stages - (previous.stages if previous is not None else frozenset()))
    return ", ".join(by_number(n, known).name for n in new) or known[0].name


def _step_through(
    run: SubjectRun,
    device: Device,
    ledger: OpLedger,
    trace: _Trace,
    added: str,
    counter: CuptiCounter | None,
    steps: int,
) -> None:
    with ledger.within("epoch"):
        trace.start = np.array(run.parameters())
    for index in range(steps):
        timed = is_timed(index)
        ledger.calls.clear()
        before = {name: runner.index for name, runner in run.runners.items()}
        with _traced(counter, ledger) as driver:
            programs = run.step(timed=timed)
        if index:  # the first step warms up and captures
            calls = Counter(ledger.calls)
            runs = {name: run.runners[name].index - before[name] for name in programs}
            trace.records.append(StepRecord(index, timed, added, programs, calls, runs, driver))
        with ledger.within("epoch"):
            trace.choices.append(np.array(run.choices()))
            trace.end = np.array(run.parameters())
        trace.digests.append(digest(trace.end))
    if counter is not None:
        with ledger.within("epoch"):
            device.synchronize()
        counter.settle()
    for record in trace.records:
        check_ledger(run, record, trace.findings)
        check_cupti(run, record, device, trace.findings)
    trace.programs = _program_calls(run, trace.records)


@contextmanager
def _traced(counter: CuptiCounter | None, ledger: OpLedger) -> Iterator[DriverStep | None]:
    if counter is None:
        yield None
        return
    with counter.step(ledger) as driver:
        yield driver


def _program_calls(run: SubjectRun, records: Sequence[StepRecord]) -> dict[str, ProgramCalls]:
    found = {}
    nodes = steady_nodes(run.runners)
    for name, runner in run.runners.items():
        plain: dict[str, int] = {}
        timed: dict[str, int] | None = None
        for record in records:
            if (counts := record.programs.get(name)) is None:
                continue
            by_kind = dict(sorted(counts.by_kind().items()))
            if record.timed and runner.keeps_times:
                timed = by_kind
            else:
                plain = by_kind
        budget = run.budgets[name]
        limits: dict[str, int] = {}
        for limit in budget.limits:
            if not limit.tag:
                limits[limit.kind] = min(limit.most, limits.get(limit.kind, limit.most))
        extra: Counter[str] = Counter()
        for allowance in budget.allowances:
            extra[allowance.kind] += allowance.most
        timed_limits = {kind: most + extra[kind] for kind, most in limits.items()}
        found[name] = ProgramCalls(plain, timed, limits, timed_limits, nodes[name])
    return found


# ---------------------------------------------------------------- comparing


@dataclass(frozen=True)
class _Again:
    """Runs a set once more, up to a step: parameters of every step would not fit in memory."""

    subject: Subject
    open_device: OpenDevice

    def parameters(self, stages: StageSet, after: int) -> NDArray[Any]:
        with self.open_device() as device:
            run = self.subject.at(stages, device)
            try:
                for index in range(after + 1):
                    run.step(timed=is_timed(index))
                return np.array(run.parameters())
            finally:
                run.close()


def _difference(trace: _Trace, reference: _Trace, again: _Again) -> Difference | None:
    """How the parameters of two runs differ; ``None`` if one of them did not come to its end."""
    if trace.broken or reference.broken:
        return None
    against = format_set(reference.stages)
    pairs = zip(trace.digests, reference.digests, strict=True)
    step = next((i for i, (a, b) in enumerate(pairs) if a != b), -1)
    if step < 0:
        return Difference(against, equal=True)
    assert trace.end is not None
    assert reference.end is not None
    assert reference.start is not None
    if trace.end.shape != reference.end.shape or trace.end.dtype != reference.end.dtype:
        return Difference(against, equal=False, step=step, max_abs=float("inf"))
    p, q = (again.parameters(t.stages, step) for t in (trace, reference))
    element = first_unequal(p, q)
    value, other = (float(a.reshape(-1)[element]) if element >= 0 else 0.0 for a in (p, q))
    return Difference(
        against,
        False,
        step,
        element,
        value,
        other,
        *distance(trace.end, reference.end, reference.start),
    )


def _judged(
    trace: _Trace, first: _Trace | None, previous: _Trace | None, again: _Again
) -> SetResult:
    known = again.subject.known
    added = _added(known, trace.stages, previous)
    exact = is_exact(trace.stages, known)
    from_first = _difference(trace, first, again) if first is not None else None
    from_previous = None
    if previous is not None:
        same = previous is first
        from_previous = from_first if same else _difference(trace, previous, again)
    if first is None:
        _check_motion(trace)
    elif first.broken:
        trace.findings.add(
            Finding(
                "equivalence",
                "stage 0 did not come to its end, so there is nothing to compare with",
                stage=added,
            )
        )
    else:
        _check_choices(trace, first, added, exact=exact)
        if exact:
            _check_parameters(trace, from_first, from_previous, added)
        else:
            _check_distance(trace, from_first, added)
    timing = any(calls.timed is not None for calls in trace.programs.values())
    timed = [r for r in trace.records if r.timed and timing]
    plain = [r for r in trace.records if not r.timed or not timing]
    return SetResult(
        stages=tuple(sorted(trace.stages)),
        label=format_set(trace.stages),
        names=tuple(by_number(n, known).name for n in sorted(trace.stages)),
        exact=exact,
        choices="" if trace.broken else digest(np.frombuffer(_chosen(trace), np.uint8)),
        parameters="" if trace.broken else trace.digests[-1],
        from_first=from_first,
        from_previous=from_previous,
        programs=trace.programs,
        cupti=_driver_calls(plain),
        cupti_timed=_driver_calls(timed),
        findings=trace.findings.all(),
    )


def _chosen(trace: _Trace) -> bytes:
    return "".join(digest(c) for c in trace.choices).encode()


def _driver_calls(records: Sequence[StepRecord]) -> DriverCalls | None:
    if not records or (driver := records[-1].driver) is None:
        return None
    inside = {graph: n for graph, n in sorted(driver.kernels.items()) if graph}
    return DriverCalls(
        dict(sorted(driver.by_name().items())), dict(by_class(driver)), driver.kernels[0], inside
    )


def _check_motion(trace: _Trace) -> None:
    """Parameters that never move are equal at every stage, and that would say nothing."""
    if not trace.broken and trace.start is not None and digest(trace.start) == trace.digests[-1]:
        trace.findings.add(
            Finding(
                "equivalence",
                f"the parameters are after {len(trace.digests)} steps what they were before the"
                " first, so their equality at other stages would mean nothing; run more steps, or"
                " compare numbers that move",
                stage="legacy",
            )
        )


def _check_choices(trace: _Trace, first: _Trace, added: str, *, exact: bool) -> None:
    for step, (mine, theirs) in enumerate(zip(trace.choices, first.choices, strict=False)):
        if digest(mine) == digest(theirs):
            continue
        where = f"{list(mine.shape)} {mine.dtype} against {list(theirs.shape)} {theirs.dtype}"
        if mine.shape == theirs.shape and mine.dtype == theirs.dtype:
            element = first_unequal(mine, theirs)
            where = (
                f"element {element} is {mine.reshape(-1)[element]}, at stage 0 it is"
                f" {theirs.reshape(-1)[element]}"
            )
        hint = "" if exact else ROUNDED_CHOICE
        trace.findings.add(
            Finding(
                "equivalence",
                f"the choices differ from stage 0's first in step {step}: {where}{hint}",
                stage=added,
                step=step,
            )
        )
        return


def _check_distance(trace: _Trace, from_first: Difference | None, added: str) -> None:
    if from_first is None or from_first.equal or from_first.within_bounds:
        return
    trace.findings.add(
        Finding(
            "equivalence",
            f"the parameters differ from stage 0's at the end by {from_first}, where rounding may"
            f" make {RELATIVE_BOUND:.0e} and {TRAVELLED_BOUND:.0e}; they differ first after step"
            f" {from_first.step}, at element {from_first.element} ({from_first.value!r} against"
            f" {from_first.reference!r})",
            stage=added,
            step=from_first.step,
        )
    )


def _check_repeats(trace: _Trace, again: _Trace, added: str) -> None:
    """What agrees to rounding may still not change from run to run."""
    step, what = len(again.digests), ""
    if again.broken:
        what = f"a second run did not come to its end: {again.findings.all()[-1].message}"
    else:
        for name, first, second in (
            ("choices", *([digest(c) for c in t.choices] for t in (trace, again))),
            ("parameters", trace.digests, again.digests),
        ):
            pairs = enumerate(zip(first, second, strict=True))
            unequal = next((k for k, (a, b) in pairs if a != b), step)
            if unequal < step:
                step = unequal
                what = (
                    f"the {name} of two runs of this set differ first in step {step}; look for a"
                    " sum whose order changes, and for memory that is read before it is written"
                )
    if what:
        trace.findings.add(Finding("repeatability", what, stage=added, step=step))


def _check_parameters(
    trace: _Trace, from_first: Difference | None, from_previous: Difference | None, added: str
) -> None:
    if from_first is None or from_first.equal:
        return
    blame = ""
    if from_previous is not None and from_previous.equal:
        blame = "; the set before differs already, and these stages change no bit more"
    bounds = "inside" if from_first.within_bounds else "outside"
    trace.findings.add(
        Finding(
            "equivalence",
            f"the parameters differ from stage 0's first after step {from_first.step}, at element"
            f" {from_first.element} ({from_first.value!r} against {from_first.reference!r}); at"
            f" the end by at most {from_first.max_abs:.3g}, {from_first}, {bounds} the bounds for"
            f" runs that can't be exact{blame}",
            stage=added,
            step=from_first.step,
        )
    )
