"""Verification: what it compares, what it counts, and broken stages caught by the right checks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy
from planted_stages import PLANTS, own_loop
from rich.console import Console
from traced_device import FakeCupti, TracedDevice

from onegraph.kernels.device import HostDevice
from onegraph.kernels.device.cupti_counts import CuptiCounter
from onegraph.stages import STAGES, Limit, ProgramError, Stage, StageSetError, exact_sets
from onegraph.stages.difference import (
    RELATIVE_BOUND,
    Difference,
    digest,
    distance,
    first_unequal,
)
from onegraph.stages.finding import CHECKS, Finding, Findings
from onegraph.stages.program import MatmulOp
from onegraph.stages.program_subject import ProgramSubject
from onegraph.stages.registry import step_stages
from onegraph.stages.verification import SCHEMA, SetResult, Verification
from onegraph.stages.verify import VerifyError, cumulative_sets, verify
from onegraph.stages.verify_table import verify_lines, verify_table

DOCS = Path(__file__).resolve().parents[2] / "docs"


def toy_subject(known: Sequence[Stage] = step_stages(), **changes) -> ProgramSubject:
    parts = toy.Toy()
    values = {"choices": "pick", "parameters": "v", "known": known, "parts": parts, **changes}
    return ProgramSubject("toy", parts.program(), **values)


def checks(result: SetResult) -> set[str]:
    return {finding.check for finding in result.findings}


@pytest.fixture
def cupti(monkeypatch) -> FakeCupti:
    fake = FakeCupti()
    fake.install(monkeypatch)
    monkeypatch.setattr(CuptiCounter, "_registered", False)
    return fake


# ---------------------------------------------------------------- numbers


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("p", "q", "element"),
    [
        (f32(1, 2, 3), f32(1, 2, 3), -1),
        (f32(1, 2, 3), f32(1, 5, 4), 1),
        (f32(0.0), f32(-0.0), 0),
        (f32(np.nan), f32(np.nan), -1),
        (f32(1, 1), f32(1, np.nextafter(np.float32(1), np.float32(2))), 1),
        (f32(), f32(), -1),
        (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [0, 4]]), 2),
    ],
)
def test_first_unequal_looks_at_bits(p, q, element: int) -> None:
    assert first_unequal(p, q) == element


def test_a_digest_covers_dtype_shape_and_bits() -> None:
    a = np.arange(4, dtype=np.int32)
    others = [a.view(np.uint32), a.reshape(2, 2), a[::-1], a.view(np.float32)]
    assert digest(a) == digest(a.copy()) == digest(np.arange(8, dtype=np.int32)[:4])
    assert len({digest(x) for x in (a, *others)}) == 5


@pytest.mark.parametrize(
    ("p", "q", "p0", "want"),
    [
        # the gap is (3, 4), of length 5; q is of length 10; q has come (6, 7.5) far, or not at all
        ((9, 12), (6, 8), (0, 0), (4, 0.5, 0.5)),
        ((9, 12), (6, 8), (6, 3), (4, 0.5, 1.0)),
        ((9, 12), (6, 8), (6, 8), (4, 0.5, np.inf)),
        ((1, 1), (1, 1), (1, 1), (0, 0, 0)),
        ((1, 0), (0, 0), (0, 0), (1, np.inf, np.inf)),
    ],
)
def test_distance(p, q, p0, want) -> None:
    assert distance(f32(*p), f32(*q), f32(*p0)) == pytest.approx(want)


@pytest.mark.parametrize(
    ("relative", "travelled", "inside"),
    [(1e-5, 1e-3, True), (1.1e-5, 1e-3, False), (1e-5, 1.1e-3, False), (np.nan, 0, False)],
)
def test_the_bounds_of_a_looser_comparison(relative, travelled, inside: bool) -> None:
    difference = Difference("0", False, relative=relative, travelled=travelled)
    assert difference.within_bounds is inside


def test_a_finding_that_comes_again_is_counted() -> None:
    found = Findings()
    for step in (4, 5, 7):
        found.add(Finding("ledger-budget", "too many", kind="dtoh", count=2, step=step))
    found.add(Finding("ledger-budget", "too many", kind="dtoh", count=3, step=8))
    found.add(Finding("program-budget", "too many", phase="b", op="x, y", stage="s", program="p"))
    assert [(f.count, f.step, f.steps) for f in found.all()] == [(2, 4, 3), (3, 8, 1), (0, -1, 0)]
    assert [str(f) for f in found.all()] == [
        "ledger-budget: too many (step 4, and 2 more)",
        "ledger-budget: too many",
        "program-budget: stage s, program p, phase b, op x, y: too many",
    ]


# ---------------------------------------------------------------- loops that keep their promise


def test_the_toy_holds_at_every_valid_set() -> None:
    result = verify(toy_subject(), HostDevice, exact_sets(step_stages()), steps=6)
    assert result.sets[0].label == "0"
    assert len(result.sets) == 12
    assert all(one.exact for one in result.sets)
    assert result.ok, result.findings
    assert {one.choices for one in result.sets} == {result.sets[0].choices}
    assert all(one.from_first == Difference("0", True) for one in result.sets[1:])
    assert result.sets[0].from_first is None
    assert result.sets[2].from_previous == Difference(result.sets[1].label, True)


def test_the_calls_of_a_step_and_its_limits() -> None:
    """By hand: the toy has 6 phases, so 7 boundaries; 5 of the phases have work, in 8 nodes."""
    sets = (frozenset({1, 2, 4, 5}), frozenset(range(1, 7)))
    _, child, parent = verify(toy_subject(), HostDevice, sets, steps=4).sets
    power = child.programs["power"]
    assert power.plain == {"graph_launch": 5}
    assert power.timed is None
    assert power.limits["graph_launch"] == 6
    power = parent.programs["power"]
    assert power.plain == {"graph_launch": 1}
    assert power.timed == {"event_set": 7, "graph_launch": 1}
    assert power.limits["event_set"] == 0
    assert power.timed_limits["event_set"] == 7
    assert power.nodes == {"power": 8}


def test_the_own_loop_holds_and_is_counted_by_cupti(cupti) -> None:
    result = verify(own_loop.SUBJECT, lambda: TracedDevice(cupti), steps=6)
    assert result.ok, result.findings
    assert result.cupti_counted
    legacy, *_, parent = result.sets
    assert legacy.cupti is not None
    # by hand: assign, move, inertia; the upload; alloc and free; the blocking memset, the read-back
    assert legacy.cupti.classes == {
        "launches": 3,
        "copies HtoD": 1,
        "copies DtoH": 1,
        "memsets": 1,
        "allocations": 1,
        "frees": 1,
        "synchronisations": 2,
    }
    assert legacy.cupti.names["cuStreamGetCaptureInfo_v2"] == 3  # told, though it is no work
    assert legacy.cupti.kernels_outside == 3
    assert parent.cupti is not None
    assert parent.cupti.names == {"cuGraphLaunch": 1}
    assert (parent.cupti.kernels_outside, parent.cupti.kernels_inside) == (0, {5: 4})
    assert parent.cupti_timed is not None
    assert parent.cupti_timed.classes == {"event sets": 5, "graph launches": 1}


def test_the_toy_with_its_matmul_is_counted_by_cupti(cupti) -> None:
    result = verify(toy_subject(), lambda: TracedDevice(cupti), exact_sets(step_stages()), steps=4)
    assert result.ok, result.findings


def test_sets_that_a_loops_own_stages_make() -> None:
    assert cumulative_sets(step_stages())[2:4] == (frozenset({1, 2}), frozenset({1, 2, 3}))
    assert len(cumulative_sets(step_stages())) == 8
    numbers = [sorted(s) for s in cumulative_sets(own_loop.KNOWN)]
    assert numbers == [[], [3], [3, 4], [3, 4, 5], [3, 4, 5, 6]]


# ---------------------------------------------------------------- broken promises


@pytest.fixture(params=["host", "traced"])
def opener(request, cupti):
    """Where a plant is run, and whether CUPTI counts there."""
    if request.param == "host":
        return HostDevice, False
    return (lambda: TracedDevice(cupti)), True


@pytest.mark.parametrize("plant", PLANTS, ids=lambda p: p.name)
def test_a_plant_is_caught_by_the_checks_that_should_and_no_other(plant, opener) -> None:
    open_device, counts = opener
    result = verify(plant.subject(), open_device, (plant.honest, plant.broken), steps=6)
    honest, broken = result.sets[-2:]
    assert checks(honest) == set(), honest.findings
    assert checks(broken) == plant.caught | (plant.by_cupti if counts else frozenset())
    assert result.ok is not bool(broken.findings)
    if broken.findings:
        told = [(f.stage, f.phase, f.op, f.kind, f.count) for f in broken.findings]
        assert plant.told in told


def test_every_check_is_shown_to_catch_something() -> None:
    shown = frozenset().union(*(p.caught | p.by_cupti for p in PLANTS))
    assert set(CHECKS) - shown == {"cupti-kernels"}  # its own test is below


def test_the_words_of_a_broken_budget() -> None:
    plant = next(p for p in PLANTS if p.name == "an extra launch")
    result = verify(plant.subject(), HostDevice, (plant.broken,), steps=6)
    assert [str(f) for f in result.sets[-1].findings] == [
        "program-budget: stage child-graphs, program kmeans, phase late, op launch km_inertia:"
        " stage child-graphs: 1 launch calls, at most 0 allowed (by phase: late 1) in a step",
        "ledger-budget: stage child-graphs, program kmeans, phase late, op launch km_inertia:"
        " stage child-graphs: 1 launch calls, at most 0 allowed (by phase: late 1) in a step"
        " (step 1, and 4 more)",
    ]


def test_a_changed_rounding_is_found_at_its_first_step_and_element() -> None:
    plant = next(p for p in PLANTS if p.name == "a changed rounding")
    result = verify(plant.subject(), HostDevice, (plant.honest, plant.broken), steps=6)
    found = result.sets[-1].from_first
    assert found is not None
    # the same, stepped by hand
    runs = [plant.subject().at(s, HostDevice()) for s in (frozenset(), plant.broken)]
    step = -1
    p = q = f32(0)
    while (p == q).all():
        step += 1
        for run in runs:
            run.step()
        q, p = (run.parameters().ravel() for run in runs)
    element = int(np.flatnonzero(p != q)[0])
    assert (found.step, found.element) == (step, element)
    assert (found.value, found.reference) == (p[element], q[element])
    assert 0 < found.max_abs < 1e-4
    assert found.within_bounds  # it is a rounding, and refused all the same
    (finding,) = (f for f in result.sets[-1].findings if "parameters" in f.message)
    assert f"first after step {step}, at element {element}" in finding.message


def test_a_rounding_that_a_stage_owns_up_to_is_accepted_and_told() -> None:
    """The same kernel in a stage that promises every bit is refused, as above."""
    plant = next(p for p in PLANTS if p.name == "a changed rounding")
    owned = replace(plant, exact=False)
    said: list[str] = []
    result = verify(owned.subject(), HostDevice, (owned.broken,), steps=6, say=said.append)
    assert result.ok, result.findings
    assert said[-2:] == ["stages 0-2: 6 steps", "stages 0-2: 6 steps, again"]
    last = result.sets[-1]
    assert not last.exact
    assert last.from_first is not None
    assert 0 < last.from_first.relative <= RELATIVE_BOUND
    console = Console(width=160)
    with console.capture() as capture:
        console.print(verify_table(result))
    (row,) = (line for line in capture.get().splitlines() if line.split()[:1] == ["0-2"])
    assert f"within {last.from_first.relative:.0e}" in row
    assert row.split()[-1] == "ok"


def test_the_words_of_numbers_that_are_off() -> None:
    plant = next(p for p in PLANTS if p.name.startswith("numbers that are off"))
    result = verify(plant.subject(), HostDevice, (plant.broken,), steps=6)
    found = result.sets[-1].from_first
    assert found is not None
    messages = [f.message for f in result.sets[-1].findings]
    assert any("where rounding may make 1e-05 and 1e-03" in m for m in messages)
    console = Console(width=160)
    with console.capture() as capture:
        console.print(verify_table(result))
    assert "within" not in capture.get()


def test_a_second_run_that_does_not_end() -> None:
    """A stage that fails the second time it is made."""
    made: list[int] = []

    def once(program, parts):
        made.append(1)
        if len(made) > 1:
            raise ProgramError("once is enough")
        return program

    known = (*STAGES[:2], Stage(9, "once", "", once, exact=False))
    result = verify(toy_subject(known), HostDevice, (frozenset({9}),), steps=3)
    (finding,) = result.sets[-1].findings
    assert finding.check == "repeatability"
    assert finding.message == "a second run did not come to its end: once is enough"
    assert (finding.stage, finding.step) == ("once", 0)


def test_a_set_that_only_carries_on_a_difference_says_so() -> None:
    plant = next(p for p in PLANTS if p.name == "a changed rounding")
    result = verify(plant.subject(), HostDevice, (plant.broken, plant.broken | {3}), steps=4)
    first, second = result.sets[1:]
    assert "change no bit more" not in first.findings[0].message
    assert second.from_previous == Difference(first.label, True)
    assert any("these stages change no bit more" in f.message for f in second.findings)


def test_choices_that_differ() -> None:
    """A planted draw of the neighbouring coordinate, from the first step on."""

    def neighbour(program, parts):
        def change(op):
            moved = getattr(op, "kernel", "") == "toy_draw"
            return replace(op, args={**op.args, "n": 7}) if moved else op

        return program.map_ops(change)

    known = (*STAGES[:3], Stage(9, "neighbour", "", neighbour, requires=(2,)))
    result = verify(toy_subject(known), HostDevice, (frozenset({1, 2, 9}),), steps=4)
    (choices, *_) = result.sets[-1].findings
    # n = 8: pick (8 * 7 + 0) % 8 = 0 in step 0; (total 10 * 7 + 1) % 8 = 7, and % 7 = 1
    assert choices.message == (
        "the choices differ from stage 0's first in step 1: element 0 is 1, at stage 0 it is 7"
    )
    assert choices.stage == "gpu-replay, philox-per, neighbour"


def test_parameters_that_never_move_prove_nothing() -> None:
    result = verify(toy_subject(parameters="A"), HostDevice, (frozenset(),), steps=3)
    (finding,) = result.sets[0].findings
    assert finding.check == "equivalence"
    assert "their equality at other stages would mean nothing" in finding.message


def test_without_a_stage_0_there_is_nothing_to_compare_with() -> None:
    def refuse(program, parts):
        raise ProgramError("stage 0 is not well")

    known = (replace(STAGES[0], rewrite=refuse), STAGES[3])
    result = verify(toy_subject(known), HostDevice, steps=3)
    assert [f.check for f in result.sets[0].findings] == ["run"]
    assert result.sets[0].choices == result.sets[0].parameters == ""
    assert not result.ok


def test_kernels_that_the_graphs_do_not_hold(cupti, monkeypatch) -> None:
    """A driver that runs one kernel more in each graph, as a library's callback might add."""
    launch = TracedDevice._graph_launch

    def one_more(self, executable):
        launch(self, executable)
        self.cupti.ran(self.cupti.correlation, 5)

    monkeypatch.setattr(TracedDevice, "_graph_launch", one_more)
    sets = (frozenset({4, 5, 6}),)
    result = verify(own_loop.SUBJECT, lambda: TracedDevice(cupti), sets, steps=4)
    (finding,) = (f for f in result.sets[-1].findings)
    assert finding.check == "cupti-kernels"
    assert "CUPTI saw 5 kernels run in graphs, the graphs hold 4" in str(finding)


def test_launches_that_cupti_alone_sees_run(cupti, monkeypatch) -> None:
    monkeypatch.setattr(FakeCupti, "ran", lambda self, correlation, graph: None)
    sets = (frozenset({3}),)
    result = verify(own_loop.SUBJECT, lambda: TracedDevice(cupti), sets, steps=4)
    assert checks(result.sets[-1]) == {"cupti-kernels"}
    assert "0 kernels run outside graphs, and 3 launches" in str(result.sets[-1].findings[0])


@pytest.mark.parametrize(
    ("more", "ok"), [(0, True), (1, True), (2, False), (-1, False)], ids=lambda v: str(v)
)
def test_a_matmul_of_cublaslt_may_take_two_kernels(cupti, monkeypatch, more: int, ok: bool) -> None:
    monkeypatch.setattr(TracedDevice, "matmul_launches", lambda self, spec: (1, 2))
    kernel = TracedDevice._matmul

    def several(self, *args):
        if more >= 0:
            kernel(self, *args)
        else:
            HostDevice._matmul(self, *args)
        for _ in range(more):
            self._kernel()

    monkeypatch.setattr(TracedDevice, "_matmul", several)
    result = verify(toy_subject(), lambda: TracedDevice(cupti), (frozenset(),), steps=4)
    assert result.ok is ok
    if not ok:
        assert checks(result.sets[0]) == {"cupti-ledger"}
        (finding,) = result.sets[0].findings
        # toy_scale, toy_norm and the product, and what this driver adds
        assert f"CUPTI counted {3 + more} launches" in finding.message
        assert finding.message.endswith("the ledger's calls make 3 to 4")
        assert (finding.phase, finding.op) == ("multiply", "matmul w")


def test_a_matmul_counts_against_a_limit_on_launches_no_more_than_the_ledger_says(cupti) -> None:
    """The driver does not tell a product from another launch."""
    two = Stage(
        9,
        "two-launches",
        "",
        lambda program, parts: program,
        budget=lambda _: (Limit("launch", 2, stage="two-launches"),),
    )
    program = toy.Toy().program()
    products = sum(isinstance(op, MatmulOp) for _, op in program.ops())
    launches = program.calls()["multiply", "launch"] + program.calls()["publish", "launch"]
    assert (products, launches) == (1, 2)
    result = verify(
        toy_subject((STAGES[0], two)), lambda: TracedDevice(cupti), (frozenset({9}),), steps=4
    )
    assert result.ok, result.findings


# ---------------------------------------------------------------- where CUPTI does not count


def test_the_host_device_is_not_counted_and_says_so() -> None:
    result = verify(own_loop.SUBJECT, HostDevice, (frozenset(),), steps=3)
    assert not result.cupti_counted
    assert result.cupti_note == "CUPTI: not counted; the host device makes no driver calls"
    assert result.sets[0].cupti is None


def test_a_gpu_without_cupti_python_is_not_counted_and_says_so(cupti, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cupti", None)
    result = verify(own_loop.SUBJECT, lambda: TracedDevice(cupti), (frozenset(),), steps=3)
    assert not result.cupti_counted
    assert result.cupti_note.startswith("CUPTI: not installed (")
    assert result.cupti_note.endswith("pip install 'onegraph[cuda]'")
    assert result.cupti_note in list(verify_lines(result))


# ---------------------------------------------------------------- what a caller can get wrong


def test_too_few_steps() -> None:
    with pytest.raises(VerifyError, match=r"2 steps are too few.*use at least 3"):
        verify(toy_subject(), HostDevice, steps=2)


def test_a_set_that_is_not_valid() -> None:
    with pytest.raises(StageSetError, match="child-graphs needs gpu-counters"):
        verify(toy_subject(), HostDevice, (frozenset({5}),), steps=3)


@pytest.mark.parametrize("field", ["choices", "parameters"])
def test_a_subject_that_names_a_buffer_that_is_not_there(field: str) -> None:
    result = verify(toy_subject(**{field: "theta"}), HostDevice, (frozenset(),), steps=3)
    (finding,) = result.sets[0].findings
    assert finding.check == "run"
    assert "program power has no buffer 'theta' at these stages" in finding.message


def test_a_loop_without_parts_under_a_stage_that_asks_for_one() -> None:
    subject = ProgramSubject("toy", toy.Toy().program(), "pick", "v")
    result = verify(subject, HostDevice, (frozenset({1}),), steps=3)
    (finding,) = result.sets[-1].findings
    assert "stage gpu-replay asks for the part of group sample" in finding.message
    assert "give the subject `parts`" in finding.message


# ---------------------------------------------------------------- what is printed


def failing() -> Verification:
    plant = next(p for p in PLANTS if p.name == "a per-step allocation")
    return verify(plant.subject(), HostDevice, (plant.honest, plant.broken), steps=4)


def test_the_table_shows_counts_against_limits() -> None:
    console = Console(width=160, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(verify_table(failing()))
    lines = capture.get().splitlines()
    (honest,) = (line for line in lines if line.split()[:1] == ["0,4,5,6"])
    (broken,) = (line for line in lines if line.split()[:1] == ["0,4,5,6,7"])
    assert "equal" in honest
    assert honest.split()[-1] == "ok"
    assert "2/0" in broken  # an alloc and a free, and none of either allowed
    assert "FAILED" in broken


def test_the_lines_name_every_finding_and_the_verdict() -> None:
    result = failing()
    lines = list(verify_lines(result))
    assert sum(line.startswith("stages 0,4,5,6,7: ") for line in lines) == len(result.findings) > 0
    assert lines[-1] == "FAILED at stages 0,4,5,6,7"
    good = verify(own_loop.SUBJECT, HostDevice, (frozenset(),), steps=3)
    assert list(verify_lines(good))[-1] == "verified: 1 sets of stages, each as it promises"


def fields_of(value: object, path: str = "") -> set[str]:
    """Dotted names of every field, lists and names that are data shown as ``[]`` and ``*``."""
    found = set()
    if isinstance(value, dict):
        data = path.endswith(MAPS)
        for key, inner in value.items():
            name = f"{path}.{'*' if data else key}".lstrip(".")
            found |= {name} | fields_of(inner, name)
    elif isinstance(value, list):
        for inner in value:
            found |= fields_of(inner, path + "[]")
    return found


#: Fields whose keys are names of the loop's or of the driver's, and not of the schema.
MAPS = (
    ".programs",
    ".plain",
    ".timed",
    ".limits",
    ".timed_limits",
    ".nodes",
    ".names",
    ".classes",
    ".kernels_inside",
)


def test_the_json_has_the_documented_fields_and_no_other(cupti) -> None:
    plant = next(p for p in PLANTS if p.name == "a changed rounding")
    sets = (plant.broken, plant.broken | {3})
    result = verify(plant.subject(), lambda: TracedDevice(cupti), sets, steps=4)
    values = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert values["schema"] == SCHEMA == "onegraph.verify/1"
    assert values["ok"] is result.ok is False
    documented = re.findall(r"^\| `([^`]+)` \|", (DOCS / "verify.md").read_text(), re.M)
    schema = {name for name in fields_of(values) if "*" not in name.rsplit(".", 1)[-1]}
    assert schema == set(documented)


def test_numbers_that_json_lacks_become_null() -> None:
    result = failing()
    broken = replace(result.sets[-1], from_first=Difference("0", False, relative=float("nan")))
    values = replace(result, sets=(broken,)).to_json()
    assert values["sets"][0]["from_first"]["relative"] is None
    json.dumps(values, allow_nan=False)


def test_the_checks_are_documented() -> None:
    text = (DOCS / "verify.md").read_text()
    for check, what in CHECKS.items():
        assert f"| **{check}** | {what} |" in text
