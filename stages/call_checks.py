"""The device calls of a step against what its stages promise: as written, as counted, as traced.

Three counts of the same thing, each less trusting than the one before: the program states its
calls, the ledger counts them as they are made, CUPTI counts what reaches the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onegraph.kernels.device.base import Device
from onegraph.kernels.device.cupti_counts import CALL_CLASSES, DriverStep, call_class
from onegraph.kernels.device.ledger import StepCounts
from onegraph.stages.budget import Violation
from onegraph.stages.finding import Check, Finding, Findings
from onegraph.stages.program import (
    GraphLaunch,
    Launch,
    LaunchGroup,
    MatmulGroup,
    MatmulOp,
    Op,
    StepProgram,
    WhileGraph,
    opened,
)
from onegraph.stages.runner import Runner
from onegraph.stages.subject import SubjectRun

#: ``counts[scope, phase, op, what]``
Calls = Mapping[tuple[str, str, str, str], int]


@dataclass(frozen=True)
class StepRecord:
    """One steady step: what each count says about it.

    Attributes:
        added: the stages that came on with this set, for findings that are nobody's promise.
        programs: the ledger's counts by program, of the last run of each in the step.
        runs: how often each program was run in the step.
        calls: the ledger's counts of all that the step did, by op.
        driver: CUPTI's counts; ``None`` where it does not count.
    """

    index: int
    timed: bool
    added: str
    programs: Mapping[str, StepCounts]
    calls: Calls
    runs: Mapping[str, int]
    driver: DriverStep | None = None


def _joined(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(n for n in names if n))


def _ops(calls: Calls, kinds: Iterable[str], phases: Iterable[str]) -> str:
    """The ops that made calls of `kinds` in `phases`."""
    kinds, phases = set(kinds), set(phases)
    return _joined(op for (_, phase, op, kind) in calls if kind in kinds and phase in phases)


def stated_ops(program: StepProgram) -> Calls:
    """The calls that `program` states, by op, with its scope."""
    calls: Counter[tuple[str, str, str, str]] = Counter()
    for phase, op in program.ops():
        for kind, n in op.calls().items():
            calls[program.scope, phase, op.label, kind] += n
    return calls


def _broken(
    check: Check, program: str, violation: Violation, ops: Calls, *, step: int, timed: bool
) -> Finding:
    form = "a timed step" if timed else "a step"
    return Finding(
        check,
        f"{violation} in {form}",
        program=program,
        stage=violation.limit.stage,
        phase=_joined(violation.phases),
        op=_ops(ops, (violation.limit.kind,), violation.phases),
        kind=violation.limit.kind,
        count=violation.count,
        step=step,
    )


def check_programs(run: SubjectRun, found: Findings) -> None:
    """The programs as written, against their budgets."""
    for name, runner in run.runners.items():
        program = runner.program
        for timed in (False, True) if runner.keeps_times else (False,):
            counts = program.calls(timed=timed)
            for violation in run.budgets[name].violations(counts, program, timed=timed):
                found.add(
                    _broken(
                        "program-budget",
                        name,
                        violation,
                        stated_ops(program),
                        step=-1,
                        timed=timed,
                    )
                )


def check_ledger(run: SubjectRun, step: StepRecord, found: Findings) -> None:
    """What the ledger counted, against the budgets and against the programs as written."""
    for name, counts in step.programs.items():
        runner = run.runners[name]
        timed = step.timed and runner.keeps_times
        for violation in run.budgets[name].violations(counts.counts, runner.program, timed=timed):
            found.add(
                _broken("ledger-budget", name, violation, step.calls, step=step.index, timed=timed)
            )
        stated = runner.program.calls(timed=timed)
        for phase, kind in sorted({*stated, *counts.counts}):
            made = counts.counts.get((phase, kind), 0)
            if made != stated[phase, kind]:
                found.add(
                    Finding(
                        "ledger-program",
                        f"{made} {kind} calls made, {stated[phase, kind]} stated by the program",
                        program=name,
                        stage=step.added,
                        phase=phase,
                        op=_ops(step.calls, (kind,), (phase,)),
                        kind=kind,
                        count=made,
                        step=step.index,
                    )
                )
    _check_outside(run, step, found)


def _check_outside(run: SubjectRun, step: StepRecord, found: Findings) -> None:
    inside = {run.runners[name].program.scope for name in step.programs}
    outside: Counter[tuple[str, str]] = Counter()
    for (scope, _, _, kind), n in step.calls.items():
        if scope not in inside:
            outside[scope, kind] += n
    for (scope, kind), n in outside.items():
        found.add(
            Finding(
                "outside-program",
                f"{n} {kind} calls outside any program, in the ledger's scope {scope}; make them"
                " ops of a program, or leave them out of the step",
                stage=step.added,
                kind=kind,
                count=n,
                step=step.index,
            )
        )


# ---------------------------------------------------------------- CUPTI


def kernels_of(ops: Iterable[Op], device: Device) -> tuple[int, int]:
    """The fewest and the most kernels that `ops` run on `device`, graph bodies opened.

    Of a loop they are the control's before the first turn: how many turns there are, the device
    decides, and its counters say.
    """
    least = most = 0
    for op in opened(ops):
        low, high = 0, 0
        if isinstance(op, (Launch, LaunchGroup, MatmulGroup)):
            low = high = 1
        elif isinstance(op, MatmulOp):
            low, high = device.matmul_launches(op.spec)
        elif isinstance(op, WhileGraph):
            low = high = 1
        elif isinstance(op, GraphLaunch):
            low, high = kernels_of(op.body, device)
        least, most = least + low, most + high
    return least, most


def by_class(driver: DriverStep) -> Counter[str]:
    """CUPTI's counts by class of call; what belongs to none is left out."""
    total: Counter[str] = Counter()
    for name, n in driver.by_name().items():
        if label := call_class(name):
            total[label] += n
    return total


def check_cupti(run: SubjectRun, step: StepRecord, device: Device, found: Findings) -> None:
    """What CUPTI counted, against the ledger, the budgets and the programs as written."""
    if step.driver is None:
        return
    _check_classes(run, step, device, found)
    _check_driver_budget(run, step, found)
    _check_kernels(run, step, device, found)


def _check_classes(run: SubjectRun, step: StepRecord, device: Device, found: Findings) -> None:
    """One ledger call is one driver call of its class, but for matmuls of cuBLASLt.

    How many kernels those launch, `Device.matmul_launches` says for each shape, and
    `Device.matmul_memsets` what else they may ask for.
    """
    assert step.driver is not None
    seen = by_class(step.driver)
    matmuls = [
        [op for _, op in run.runners[name].program.ops() if isinstance(op, MatmulOp)]
        for name in step.programs
        for _ in range(step.runs[name])
    ]
    for group in CALL_CLASSES:
        least = most = sum(n for (*_, kind), n in step.calls.items() if kind in group.kinds)
        if "matmul" in group.kinds:
            for products in matmuls:
                low, high = kernels_of(products, device)
                least, most = least + low - len(products), most + high - len(products)
        if "memset" in group.kinds:
            most += sum(device.matmul_memsets(p.spec) for products in matmuls for p in products)
        if not least <= seen[group.name] <= most:
            found.add(_disagreement(step, group.name, group.kinds, seen[group.name], least, most))


def _span(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _disagreement(
    step: StepRecord, label: str, kinds: tuple[str, ...], seen: int, least: int, most: int
) -> Finding:
    assert step.driver is not None
    traced = {c: n for c, n in step.driver.calls.items() if call_class(c[3]) == label}
    surplus: Counter[tuple[str, str]] = Counter()
    for (_, phase, op, _), n in traced.items():
        surplus[phase, op] += n
    for (_, phase, op, kind), n in step.calls.items():
        surplus[phase, op] -= n if kind in kinds else 0
    places = [place for place, n in surplus.items() if n]
    names = Counter[str]()
    for (*_, name), n in traced.items():
        names[name] += n
    spelled = ", ".join(f"{name} {n}" for name, n in names.items()) or "none"
    return Finding(
        "cupti-ledger",
        f"CUPTI counted {seen} {label} ({spelled}), the ledger's calls make {_span(least, most)}",
        stage=step.added,
        phase=_joined(phase for phase, _ in places),
        op=_joined(op for _, op in places),
        kind=label,
        count=seen,
        step=step.index,
    )


def _check_driver_budget(run: SubjectRun, step: StepRecord, found: Findings) -> None:
    """Driver calls as ledger kinds, held to the same budgets.

    The driver does not tell a matmul from another launch, nor a blocking memset from another; what
    goes beyond the ledger's count of those is taken for the plain kind.
    """
    assert step.driver is not None
    kinds_of = {group.name: group.kinds for group in CALL_CLASSES if group.kinds}
    for name, counts in step.programs.items():
        runner = run.runners[name]
        program = runner.program
        phases = {phase.name for phase in program.phases}
        traced: Counter[tuple[str, str]] = Counter()
        places: Counter[tuple[str, str, str, str]] = Counter()
        for (scope, phase, op, call), n in step.driver.calls.items():
            label = call_class(call)
            if scope == program.scope and phase in phases and label in kinds_of:
                traced[phase, kinds_of[label][0]] += n
                places[scope, phase, op, kinds_of[label][0]] += n
        for place, n in traced.items():  # budgets are of one run
            traced[place] = -(-n // step.runs[name])
        for kinds in kinds_of.values():
            for other in kinds[1:]:
                for phase in phases:
                    known = min(counts.counts.get((phase, other), 0), traced[phase, kinds[0]])
                    traced[phase, kinds[0]] -= known
                    traced[phase, other] += known
        timed = step.timed and runner.keeps_times
        for violation in run.budgets[name].violations(traced, program, timed=timed):
            if violation.limit.kind in {k for kinds in kinds_of.values() for k in kinds}:
                found.add(
                    _broken("cupti-budget", name, violation, places, step=step.index, timed=timed)
                )


def _check_kernels(run: SubjectRun, step: StepRecord, device: Device, found: Findings) -> None:
    """Kernels in graphs are those of the graphs' bodies; those outside were launched one by one.

    CUPTI does not trace the body of a while-node. Where there is one, only the control's launch
    before it is sure to be seen, and more is no fault.
    """
    assert step.driver is not None
    programs = [run.runners[name].program for name in step.programs for _ in range(step.runs[name])]
    graphs = [op for p in programs for _, op in p.ops() if isinstance(op, GraphLaunch)]
    least, most = kernels_of(graphs, device)
    loops = any(isinstance(op, WhileGraph) for op in graphs)
    inside = sum(n for graph, n in step.driver.kernels.items() if graph)
    outside = step.driver.kernels[0]
    launches = by_class(step.driver)["launches"]
    if inside < least or (inside > most and not loops):
        stated = f"{least} or more" if loops else _span(least, most)
        found.add(
            Finding(
                "cupti-kernels",
                f"CUPTI saw {inside} kernels run in graphs, the graphs hold {stated}",
                stage=step.added,
                kind="kernels in graphs",
                count=inside,
                step=step.index,
            )
        )
    if outside != launches:
        found.add(
            Finding(
                "cupti-kernels",
                f"CUPTI saw {outside} kernels run outside graphs, and {launches} launches",
                stage=step.added,
                kind="kernels outside graphs",
                count=outside,
                step=step.index,
            )
        )


def steady_nodes(runners: Mapping[str, Runner]) -> dict[str, dict[str, int]]:
    """Nodes of each captured graph, by program and graph."""
    return {name: runner.graph_nodes() for name, runner in runners.items()}
