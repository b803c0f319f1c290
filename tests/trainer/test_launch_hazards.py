"""No launch of the trainer's breaks what its kernel takes for granted of its arguments.

Kernels declare their pointers ``__restrict__``: the compiler may read through a read-only cache
what it believes no one writes, so an array that is written may not be passed a second time.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from capture_scenarios import config, steps, trainer_on

from onegraph.kernels.catalogue import find
from onegraph.kernels.device import HostDevice
from onegraph.stages.program import (
    Buffer,
    Copy,
    Launch,
    LaunchGroup,
    MatmulGroup,
    MatmulOp,
    Op,
    Phase,
    Ref,
    StepProgram,
)
from onegraph.stages.registry import ALL, apply, exact_sets, format_set, step_stages
from onegraph.trainer.envs.base import HostStepped, reset_program
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.network import QNetwork
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.tuning import FusionChooser

#: Parts of the learner in sets that hold them all, heads and exploration one after another.
LEARNERS: dict[str, dict[str, object]] = {
    "dqn": {},
    "full": {"preset": "full"},
    "full, IQN alone, no blocks": {
        "preset": "full",
        "network__iqn__readiness": False,
        "network__residual_blocks": 0,
    },
    "full, C51, noisy": {
        "preset": "full",
        "network__head": "c51",
        "network__noisy": True,
        "learn__budget__on": False,
    },
    "full, plain, no double": {
        "preset": "full",
        "network__head": "dqn",
        "network__double": False,
        "network__dueling": False,
        "network__noisy": True,
    },
}


#: Of the learners below, no stage but these replaces an op: the others add events and graphs.
ALTERNATIVES = [s for s in exact_sets(step_stages()) if s <= {1, 2, 4}]


def programs(kind: str, stages: frozenset[int], **changes: object) -> list[StepProgram]:
    settings = config(env__kind=kind, **changes)
    environment, market = build_environment(settings)
    network = QNetwork.of(settings, environment)
    shapes = Shapes(settings, network, settings.replay.capacity)
    parts = DqnPrograms(shapes, environment, FusionChooser(shapes, environment, HostDevice()))
    found = [apply(p, stages, parts) for p in (parts.learn(), parts.collect())]
    if market is not None:
        lane = market.environment.over(market.windows.validation, "validation")
        found.append(parts.evaluate(lane))
    if isinstance(environment, HostStepped):
        found += [parts.begin(), parts.evaluate(environment)]
    return [*found, reset_program(environment)]


def operands(op: Op) -> tuple[dict[str, Ref], set[str]]:
    """The arrays of an op by parameter, and the parameters that it writes."""
    if isinstance(op, Launch):
        refs = {name: value for name, value in op.args.items() if isinstance(value, Ref)}
        return refs, {p.name for p in find(op.kernel).params if p.access in ("out", "inout")}
    if isinstance(op, MatmulOp):
        refs = {"a": op.a, "b": op.b, "out": op.out}
        written = {"out", "extra"} if op.epilogue == "bias_grad" else {"out"}
        return (refs if op.extra is None else {**refs, "extra": op.extra}), written
    if isinstance(op, MatmulGroup):
        found, written = {}, set()
        for i, member in enumerate(op.members):
            refs, outs = operands(member)
            found |= {f"{name}{i}": value for name, value in refs.items()}
            written |= {f"{name}{i}" for name in outs}
        return found, written
    if isinstance(op, Copy):
        return {"dst": op.dst, "src": op.src}, {"dst"}
    return {}, set()


def overlaps(first: Ref, second: Ref, program: StepProgram) -> bool:
    """Whether two references share an element."""
    if first.buffer != second.buffer:
        return False
    whole = program.buffer[first.buffer].size
    a, b = (
        range(r.offset, whole if r.size is None else r.offset + r.size) for r in (first, second)
    )
    return max(a.start, b.start) < min(a.stop, b.stop)


def aliased(program: StepProgram) -> list[str]:
    """What is written and passed twice; each member of a launch group is a launch of its own."""
    found = []
    launched = [
        (phase, member)
        for phase, op, _ in program.all_ops()
        for member in (op.members if isinstance(op, LaunchGroup) else (op,))
    ]
    for phase, op in launched:
        refs, written = operands(op)
        for (one, first), (two, second) in combinations(refs.items(), 2):
            if {one, two} & written and overlaps(first, second, program):
                found.append(f"{program.name}, phase {phase}: {op.label}: {one} and {two}")
    return found


@pytest.mark.parametrize("kind", ["chain", "market", "bit-flip", "gymnasium"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_no_array_is_written_and_passed_twice(kind, learner) -> None:
    changes = LEARNERS[learner]
    if kind == "bit-flip":
        changes = changes | {"hindsight__strategy": "future", "network__hidden": [8]}
    if kind == "gymnasium":
        changes = changes | {"env__id": "CartPole-v1", "network__attention_groups": 0}
    for stages in exact_sets(step_stages()) if learner == "dqn" else ALTERNATIVES:
        for program in programs(kind, stages, **changes):
            assert aliased(program) == [], format_set(stages)


@pytest.mark.parametrize("kind", ["chain", "market"])
def test_the_fused_kernels_write_no_array_that_is_passed_twice(kind) -> None:
    for program in programs(kind, ALL, network__hidden=[16, 8], fusion="auto"):
        assert aliased(program) == []
        assert ("launch td_pass" in program.describe()) is (program.name == "learn")


def test_an_alias_would_be_found() -> None:
    program = programs("chain", frozenset())[0]
    for source, found in ((Ref("theta", 0, 8), 1), (Ref("theta", 8, 8), 0)):
        copy = Copy(Ref("theta", 7, 1), source, "dtod")
        tried = StepProgram("p", "learn", (Phase("x", (copy,)),), program.buffers)
        assert len(aliased(tried)) == found


def test_an_alias_in_a_member_of_a_group_would_be_found() -> None:
    def norm(of: str) -> Launch:
        args = {"x": of, "scale": "s", "shift": "s", "out": "a", "mean": "m", "rstd": "r"}
        refs = {k: Ref(v + of) if k in ("mean", "rstd") else Ref(v) for k, v in args.items()}
        refs["out"] = Ref("a" if of == "a" else "c")
        return Launch("layer_norm", {**refs, "rows": 1, "cols": 1, "eps": 0.0})

    buffers = tuple(Buffer(n, (1,), "f32") for n in ("a", "b", "c", "s", "ma", "mb", "ra", "rb"))
    tried = StepProgram(
        "p", "learn", (Phase("x", (LaunchGroup((norm("b"), norm("a"))),)),), buffers
    )
    assert aliased(tried) == ["p, phase x: launch layer_norm: x and out"]


def test_the_longest_period_of_a_hard_target_fits_its_kernel() -> None:
    """The config allows 63 bits; the kernel took 32."""
    settings = config(learn__target="hard", learn__target_every=2**63 - 1)
    trainer = trainer_on(HostDevice(), settings=settings)
    steps(trainer, 2)
    assert (trainer.workspace.read("theta_target") == trainer.network.initial(0)).all()
