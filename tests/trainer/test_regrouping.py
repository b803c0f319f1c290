"""The learning step regrouped by what it depends on: the same bits, in a shorter way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from trainer.setups import bit_flip, chain, fill, full, make, market, small, trajectory

from onegraph.kernels.device import HostDevice
from onegraph.kernels.learner.gemm_group import MEMBERS
from onegraph.stages.dag import Dag
from onegraph.stages.program import (
    Branches,
    Buffer,
    Copy,
    Fragment,
    GraphLaunch,
    Launch,
    MatmulGroup,
    MatmulOp,
    Memset,
    Merge,
    Op,
    Ref,
    StepProgram,
)
from onegraph.stages.registry import ALL, apply, up_to
from onegraph.stages.schedule import fits_a_group
from onegraph.stages.verify import verify
from onegraph.trainer import regrouping
from onegraph.trainer.bench import BenchSubject, named_size
from onegraph.trainer.config import Config, load_config, override_config
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.hindsight import relabelling
from onegraph.trainer.network import QNetwork
from onegraph.trainer.phases import PHASES
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.regrouping import RegroupedStep, regroupings
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.subject import TrainerSubject

SIX = up_to(6)
NAMES = ("wide", "whole")
COMPOSED = ("ends", "ends-wide", "ends-grouped")

# Stage 0 reads back through the deprecated call; that it warns has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

#: Networks and parts of the learner.
CONFIGS: dict[str, Config] = {
    "two hidden layers": chain(network__hidden=[16, 8]),
    "one hidden layer": chain(),
    "three hidden layers": chain(network__hidden=[9, 8, 7]),
    "market": market(),
    "not double": small(network__double=False),
    "full": full(),
    "vaccine": small(learn__vaccine=True),
    "c51": small(network__head="c51"),
    "quantiles": small(network__head="iqn"),
    "long sums": small(
        network__head="iqn",
        network__iqn__quantiles=64,
        learn__batch_size=64,
        loop__start_steps=68,
    ),
    "noisy": small(network__noisy=True),
    "value networks": small(aux__iql=True, aux__iql_hidden=6, aux__modulate=True),
    "denoising": small(aux__denoise=True, aux__denoise_hidden=5),
    "spectral": small(network__spectral_cap=0.6),
    "hindsight": bit_flip(hindsight__strategy="future", network__hidden=[8]),
    "large batch": chain(learn__batch_size=257, loop__start_steps=260),
}


def ways(config: Config, name: str) -> Config:
    return override_config(config, {"fusion": name}, "the test")


def dag_of(program: StepProgram) -> Dag:
    """The only dag of a step."""
    ((_, parent),) = program.ops()
    assert isinstance(parent, GraphLaunch)
    (found,) = (
        op
        for child in parent.body
        if isinstance(child, GraphLaunch)
        for op in child.body
        if isinstance(op, Dag)
    )
    return found


@pytest.mark.parametrize("which", CONFIGS)
def test_the_bits_are_those_of_stage_6(which: str) -> None:
    config = CONFIGS[which]
    wanted = trajectory(make(HostDevice(), config, SIX), 6)
    for name in NAMES:
        trainer = make(HostDevice(), ways(config, name), ALL - {8})
        assert dag_of(trainer.learn_program).ops
        assert trajectory(trainer, 6) == wanted, name


def in_another_order(dag: Dag) -> list[Op]:
    """The ops of a dag in the order in which the last that may come next does."""
    waits, left, order = dag.waits(), set(range(len(dag.ops))), list[int]()
    while left:
        order.append(max(i for i in left if not left & set(waits[i])))
        left.remove(order[-1])
    return [dag.ops[i] for i in order]


@pytest.mark.parametrize("name", NAMES)
def test_another_order_that_the_dag_allows_gives_the_same_bits(monkeypatch, name: str) -> None:
    config = full()
    wanted = trajectory(make(HostDevice(), config, SIX), 3)
    honest = RegroupedStep._regroup

    def turned(self, ops: tuple[Op, ...]) -> Fragment:
        fragment = honest(self, ops)
        (dag,) = fragment.ops
        assert isinstance(dag, Dag)
        other = in_another_order(dag)
        assert other != list(dag.ops)
        return replace(fragment, ops=tuple(other))

    monkeypatch.setattr(RegroupedStep, "_regroup", turned)
    assert trajectory(make(HostDevice(), ways(config, name), ALL - {8}), 3) == wanted


def test_verification_takes_it_for_stage_7() -> None:
    config = ways(small(network__hidden=[8, 8, 8]), "whole")
    result = verify(TrainerSubject(config), HostDevice, (SIX, ALL - {8}), steps=6)
    assert result.ok, result.findings
    assert result.sets[-1].programs["learn"].plain == {"graph_launch": 1}


def test_phases_that_stay_are_timed_beside_it() -> None:
    trainer = fill(make(HostDevice(), ways(chain(), "wide"), ALL - {8}))
    trainer.learn()
    trainer.learn(timed=True)
    stay = [*PHASES[:2], "wide", *PHASES[7:]]
    assert list(trainer.timings().phases) == stay
    trainer.close()


# ---------------------------------------------------------------- how much shorter the way is


def longest(ops: tuple[Op, ...]) -> int:
    """Nodes that run one after another, in a list of ops with forks in it."""
    count = 0
    for op in ops:
        if isinstance(op, Branches):
            count += max(longest(branch) for branch in op.branches)
        else:
            count += op.critical_path if isinstance(op, Dag) else 1
    return count


def figures(size: str, name: str, **changes: object) -> tuple[int, int]:
    """Nodes of the learning step, and how many of them run one after another."""
    subject = BenchSubject(named_size(size), {k.replace("__", "."): v for k, v in changes.items()})
    forms = regroupings(subject.shapes, HostDevice())
    form = {f.name: f for f in forms}[name] if name != "none" else None
    parts = DqnPrograms(subject.shapes, subject.environment, lambda: form)
    ((_, parent),) = apply(parts.learn(), ALL - {3, 8}, parts).ops()
    assert isinstance(parent, GraphLaunch)
    bodies = [child.body for child in parent.body if isinstance(child, GraphLaunch)]
    return parent.nodes(), sum(map(longest, bodies))


AT_512: dict[str, object] = {"network__hidden": [512, 512], "learn__batch_size": 512}


@pytest.mark.parametrize(
    ("size", "changes"), [("M", {}), ("L", {}), ("M", AT_512), ("FULL", {})], ids=str
)
def test_the_way_is_shorter_with_no_more_nodes_than_copies(size: str, changes) -> None:
    found = {name: figures(size, name, **changes) for name in ("none", *NAMES, *COMPOSED)}
    print(size, changes, found)
    assert found["wide"][0] <= found["none"][0]
    assert found["whole"][0] <= found["none"][0] + 2
    assert found["whole"][1] < found["wide"][1] < found["none"][1]
    ways = [found[name] for name in ("ends-grouped", "ends-wide", "ends", "none")]
    for (nodes, in_a_row), (more_nodes, more_in_a_row) in pairwise(ways):
        assert nodes <= more_nodes
        assert in_a_row <= more_in_a_row
    assert found["ends"][1] < found["none"][1]


def test_the_full_learners_way_is_about_half_as_long() -> None:
    steps = {name: figures("FULL", name)[1] for name in ("none", "wide", "ends-wide")}
    assert steps["ends-wide"] < steps["wide"] < 0.6 * steps["none"]


def test_the_full_learners_step_is_at_most_sixty_nodes() -> None:
    """Products of long sums count as members of one launch, which takes four."""
    subject = BenchSubject(named_size("FULL"), {})
    (form,) = (f for f in regroupings(subject.shapes, HostDevice()) if f.name == "ends-grouped")
    parts = DqnPrograms(subject.shapes, subject.environment, lambda: form)
    program = apply(parts.learn(), ALL - {3, 8}, parts)
    ((_, parent),) = program.ops()
    assert isinstance(parent, GraphLaunch)
    ops = dag_of(program).ops
    long = [op for op in ops if isinstance(op, MatmulOp) and not fits_a_group(op)]
    assert all(op.k >= 4096 for op in long)
    nodes = parent.nodes() - len(long) + -(-len(long) // MEMBERS)
    print("FULL", nodes, parent.nodes())
    assert nodes <= 60
    # Where gradients of weights are long sums, those of activations do not stand in their launch.
    for op in ops:
        products = op.members if isinstance(op, MatmulGroup) else ()
        if any(p.trans_a and p.k > 256 for p in products):
            assert all(p.trans_a for p in products)


# ---------------------------------------------------------------- copies


def update(*args: str) -> Launch:
    """A launch that reads its first array, and writes the second."""
    return Launch("relu_epilogue", {"extra": Ref(args[0]), "out": Ref(args[1]), "n": 4, "grad": 1})


def lines(ops: list[Op]) -> list[str]:
    return [
        f"{op.args['extra']} -> {op.args['out']}" if isinstance(op, Launch) else op.label
        for op in ops
    ]


def test_a_reader_gets_a_copy_where_it_would_hold_up_a_writer() -> None:
    ops: list[Op] = [update("x", "td"), update("td", "a"), update("y", "td"), update("td", "b")]
    assert lines(regrouping._with_copy(ops, "td", "seen")) == [
        *("x -> td", "copy_dtod seen <- td", "seen -> a", "y -> td", "td -> b"),
    ]


def test_what_is_there_before_the_step_is_copied_first() -> None:
    ops: list[Op] = [Memset(Ref("z")), update("td", "a"), update("y", "td"), update("x", "td")]
    assert lines(regrouping._with_copy(ops, "td", "seen")) == [
        *("copy_dtod seen <- td", "memset z", "seen -> a", "y -> td", "x -> td"),
    ]


@pytest.mark.parametrize(
    "ops",
    [
        [update("x", "td"), update("td", "a")],
        [update("x", "td"), update("y", "td")],
        [update("x", "y")],
    ],
)
def test_nothing_is_copied_that_nobody_waits_for(ops: list[Op]) -> None:
    assert regrouping._with_copy(ops, "td", "seen") == ops


@pytest.mark.parametrize(
    ("config", "copied"),
    [
        (chain(), {"seen_diagnostics"}),
        (full(aux__modulate=True), {"seen_diagnostics", "seen_td"}),
    ],
)
def test_statistics_hold_up_no_priorities(config: Config, copied: set[str]) -> None:
    trainer = make(HostDevice(), ways(config, "whole"), ALL - {8})
    dag = dag_of(trainer.learn_program)
    assert {op.dst.buffer for op in dag.ops if isinstance(op, Copy)} == copied
    places = {op.kernel: i for i, op in enumerate(dag.ops) if isinstance(op, Launch)}
    above = dag.ancestors()[places["update_priorities"]]
    assert not above >> places["maintain"] & 1
    assert not above >> places["adam_step"] & 1
    trainer.close()


# ---------------------------------------------------------------- what comes before


def test_kernels_of_some_phases_may_come_first() -> None:
    """A merge of two phases is regrouped with the rest as one piece of work."""
    config = chain()
    environment, _ = build_environment(config)
    shapes = Shapes(config, QNetwork.of(config, environment), config.replay.capacity)
    own = Buffer("own", (4,), "f32")
    cleared = Merge(
        "cleared",
        ("adam_grad", "adam"),
        lambda ops: Fragment((Memset(Ref("own")), *ops), (own,)),
    )
    phases = ("per_sample", "counters", *PHASES[2:7], "cleared", *PHASES[9:])
    form = RegroupedStep("all of it", shapes, phases, (cleared,))
    parts = DqnPrograms(shapes, environment, lambda: form)
    program = apply(parts.learn(), ALL - {3, 8}, parts)
    assert "own" in program.buffer
    assert any(isinstance(op, Memset) for op in dag_of(program).ops)


def test_a_group_is_what_a_launch_takes() -> None:
    dag = dag_of(make(HostDevice(), ways(full(), "whole"), ALL - {8}).learn_program)
    groups = [op for op in dag.ops if isinstance(op, MatmulGroup)]
    assert groups
    assert {op.module for op in groups} == {"graphed"}


def test_gradients_over_many_rows_are_one_launch() -> None:
    trainer = make(HostDevice(), ways(CONFIGS["long sums"], "whole"), ALL - {8})
    members = [getattr(op, "members", ()) for op in dag_of(trainer.learn_program).ops]
    found = [{(m.m, m.n, m.k) for m in ms} for ms in members if ms and ms[0].spec.is_long]
    assert found == [{(64, 8, 4096), (8, 3, 4096)}]
    trainer.close()


#: Parts of the learner, and what each is when it is on and off.
PARTS: dict[str, tuple[object, object]] = {
    "network.double": (True, False),
    "network.noisy": (True, False),
    "network.spectral_cap": (4.0, 0.0),
    "learn.vaccine": (True, False),
    "aux.denoise": (True, False),
    "aux.iql": (True, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("head", ["dqn", "iqn", "c51"])
def test_whatever_is_on_it_holds_together(head: str) -> None:
    """Each dag and each parent is checked as it is made: all parts, all but one, and none."""
    choices = [set(PARTS), *({*PARTS} - {part} for part in PARTS), set[str]()]
    for on in choices:
        fields = {part: values[part not in on] for part, values in PARTS.items()}
        fields |= {"preset": "full", "network.head": head, "aux.modulate": "aux.iql" in on}
        config = load_config(None, fields)
        environment, _ = build_environment(config)
        shapes = Shapes(config, QNetwork.of(config, environment), config.replay.capacity)
        forms = regroupings(shapes, HostDevice(), relabelling(config, environment))
        assert {form.name for form in forms} == {*NAMES, *COMPOSED}
        for form in forms:
            parts = DqnPrograms(shapes, environment, lambda form=form: form)
            program = apply(parts.learn(), ALL - {8}, parts)
            if form.name != "ends":  # whose passes stand in a row
                dag = dag_of(program)
                single = sum(len(getattr(op, "members", (op,))) for op in dag.ops)
                assert dag.critical_path < single
