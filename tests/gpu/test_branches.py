"""Branches of a graph on a GPU: side by side, and to the bit what runs one after another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest
from capture_scenarios import CHILDREN, FORKED, config, steps, trainer_on
from device_rules import UNSUPPORTED, f32, refused

from onegraph.kernels.device import Device
from onegraph.kernels.device.base import Matmul
from onegraph.stages import Buffer, Phase, Ref, Runner, StepProgram, Workspace
from onegraph.stages.dag import Dag
from onegraph.stages.page.graph_drawing import Cluster, driver_graph, from_program
from onegraph.stages.program import Branches, GraphLaunch, Launch, MatmulOp, Memset, Op
from onegraph.stages.registry import ALL, up_to
from onegraph.stages.schedule import regrouped

pytestmark = pytest.mark.gpu

REPLAYS = 200


def program(body: Sequence[Op], buffers: Sequence[Buffer], *, graphed: bool) -> StepProgram:
    ops = (GraphLaunch("work", tuple(body)),) if graphed else tuple(body)
    return StepProgram("learn", "learn", (Phase("work", ops),), tuple(buffers))


def filled(name: str, *shape: int) -> Buffer:
    """A buffer of random numbers."""
    seed = sum(map(ord, name))
    return Buffer(
        name,
        shape,
        "f32",
        initial=lambda: np.random.default_rng(seed).standard_normal(shape).astype(np.float32),
    )


def replay(device: Device, body: Sequence[Op], buffers: Sequence[Buffer], outs: Sequence[str]):
    """The eager results of `outs`, after it is seen that each replay of a graph gives them."""
    eager = Workspace(device)
    Runner(program(body, buffers, graphed=False), eager).step()
    want = {name: eager.read(name).tobytes() for name in outs}
    space = Workspace(device)
    runner = Runner(program(body, buffers, graphed=True), space)
    for index in range(REPLAYS):
        runner.step()
        for name in outs:
            assert space.read(name).tobytes() == want[name], f"{name} in step {index}"
    return runner


# -------------------------------------------------------------------- bits

COUNT, PRODUCTS = 3, 4
M, N, K = 64, 256, 8192


def products(branch: int) -> tuple[list[Op], list[Buffer]]:
    """Products whose sums are shared out, one after another, each with its own result."""
    ops: list[Op] = []
    a, b = filled(f"a{branch}", K, M), filled(f"b{branch}", K, N)
    buffers = [a, b]
    for i in range(PRODUCTS):
        out = Buffer(f"out{branch}.{i}", (M, N), "f32")
        ops.append(MatmulOp(M, N, K, Ref(a.name), Ref(b.name), Ref(out.name), trans_a=True))
        buffers.append(out)
    return ops, buffers


def in_three_branches(device: Device) -> tuple[int, int]:
    """Products in branches of a graph, and the nodes that they are.

    In one workspace the parts of one product would overwrite another's.
    """
    branches, buffers = [], []
    for branch in range(COUNT):
        ops, needed = products(branch)
        branches.append(tuple(ops))
        buffers += needed
    outs = [b.name for b in buffers if b.name.startswith("out")]
    # A result that a replay does not write anew is zero, and not the last one's.
    body = [*(Memset(Ref(name)) for name in outs), Branches(tuple(branches))]
    runner = replay(device, body, buffers, outs)
    for branch in range(COUNT):
        same = {runner.workspace.read(f"out{branch}.{i}").tobytes() for i in range(PRODUCTS)}
        assert len(same) == 1
    (graph,) = runner._graphs
    assert graph.plain is not None
    return len(outs), device.driver_node_count(graph.plain.graph) - len(outs)


def test_products_that_cublaslt_splits_in_three_branches_at_once(cuda):
    pytest.importorskip("nvmath.bindings.cublasLt", exc_type=ImportError)
    with type(cuda)(gemm="cublaslt") as device:
        count, nodes = in_three_branches(device)
    if nodes == count:
        pytest.skip("cuBLASLt splits no sum of this shape here: each product is one node")


def test_products_with_long_sums_in_three_branches_at_once(device):
    count, nodes = in_three_branches(device)
    assert nodes == count


def test_small_products_and_kernels_in_branches(device):
    """Each branch a chain that reads what it wrote, then one op that reads both."""
    x = filled("x", 96, 96)
    buffers, branches = [x, Buffer("both", (96, 96), "f32")], []
    for side in "pq":
        names = [f"{side}{i}" for i in range(4)]
        buffers += [Buffer(name, (96, 96), "f32") for name in names]
        ops: list[Op] = []
        for before, name in zip(["x", *names], names, strict=False):
            ops.append(MatmulOp(96, 96, 96, Ref("x"), Ref(before), Ref(name)))
            relu = {"extra": Ref("x"), "out": Ref(name), "n": 96 * 96, "grad": 1}
            ops.append(Launch("relu_epilogue", relu))
        branches.append(tuple(ops))
    body = [
        Branches(tuple(branches)),
        MatmulOp(96, 96, 96, Ref("p3"), Ref("q3"), Ref("both")),
    ]
    replay(device, body, buffers, ["p3", "q3", "both"])


def test_the_full_learner_in_branches(device):
    """All of its steps, at every set of stages that matters here, to the bit."""
    count = 50
    runs = []
    for stages in (up_to(4), CHILDREN, ALL):
        trainer = trainer_on(device, stages, config(**FORKED))
        assert "branches {" in trainer.learn_program.describe()
        runs.append(steps(trainer, count))
        trainer.close()
    assert runs[1] == runs[0]
    assert runs[2] == runs[0]


@pytest.mark.parametrize("name", ["wide", "whole"])
@pytest.mark.parametrize("hidden", [[32], [512, 512]], ids=str)
def test_a_regrouped_step_agrees_with_stage_6(device, name, hidden):
    """The full learner with small products, and a plain one with larger ones.

    Products in a group may have larger tiles than alone, which adds their sums up in another order:
    so that a step agrees to rounding. Two runs, and one in the device's own loop, have the same
    bits.
    """
    count = 50
    changes = FORKED | {"network__hidden": hidden}
    if len(hidden) > 1:
        changes = {"network__hidden": hidden, "learn__batch_size": 512, "loop__start_steps": 512}
        changes["replay__capacity"] = 1024
    runs = []
    for stages, fusion in ((up_to(6), "none"), (ALL - {8}, name), (ALL - {8}, name), (ALL, name)):
        trainer = trainer_on(device, stages, config(**changes | {"fusion": fusion}))
        assert ("dag of" in trainer.learn_program.describe()) is (fusion != "none")
        runs.append(steps(trainer, count))
        trainer.close()
    (indices, theta), (near_indices, near_theta) = runs[0][0], runs[1][0]
    assert near_indices == indices
    want, got = (np.frombuffer(x, np.float32) for x in (theta, near_theta))
    assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)
    assert runs[2] == runs[1]
    assert runs[3] == runs[1]


def test_the_devices_loop_of_a_regrouped_step_gives_the_same_bits(device):
    """Children side by side in the turn of a while-node, and lanes inside them."""
    ends = []
    sets = (up_to(6), "none"), (ALL, "none"), (ALL - {8}, "whole"), (ALL, "whole")
    for stages, fusion in sets:
        trainer = trainer_on(device, stages, config(**FORKED | {"fusion": fusion}))
        if 8 in stages:
            trainer.take_rounds(20)
        else:
            while trainer.progress.learns < 20:
                trainer.collect()
                trainer.learn()
        ends.append(trainer.parameters().tobytes())
        trainer.close()
    assert ends[1] == ends[0]
    assert ends[3] == ends[2]


# -------------------------------------------------------------------- what the driver holds


def shape(cluster: Cluster) -> list[frozenset[tuple[str, ...]]]:
    """A cluster from top to bottom, the branches of a fork in no order, by the nodes' kinds."""
    found = []
    for fork, group in groupby(cluster.nodes, lambda node: node.fork):
        members = list(group)
        if fork:
            paths = groupby(members, lambda node: node.branch)
            found.append(frozenset(tuple(n.kind for n in path) for _, path in paths))
        else:
            found += [frozenset({(n.kind,)}) for n in members]
    return found


def test_the_driver_draws_the_paths(device):
    def relu(name: str) -> Op:
        return Launch("relu_epilogue", {"extra": Ref(name), "out": Ref(name), "n": 4, "grad": 0})

    buffers = [filled(name, 4) for name in "xyz"]
    body = [
        relu("x"),
        Branches(((relu("x"), relu("x"), Memset(Ref("x"))), (relu("y"),), (Memset(Ref("z")),))),
        Memset(Ref("y")),
        Branches(((relu("x"),), (relu("y"), relu("y")))),
    ]
    made = program(body, buffers, graphed=True)
    runner = Runner(made, Workspace(device))
    runner.step()
    drawn = driver_graph(runner)
    assert shape(drawn.clusters[0]) == shape(from_program(made)[0])
    (graph,) = runner._graphs
    assert graph.plain is not None
    assert device.driver_node_count(graph.plain.graph) == graph.nodes() == 10


def test_the_driver_holds_the_edges_of_a_dag_and_no_others(device):
    def relu(source: str, out: str) -> Op:
        return Launch("relu_epilogue", {"extra": Ref(source), "out": Ref(out), "n": 4, "grad": 1})

    names = "abcdefgh"
    buffers = [filled(name, 4) for name in names]
    body = [relu("a", "b"), relu("b", "c"), relu("a", "d"), relu("d", "e"), Memset(Ref("f"))]
    body += [relu("c", "e"), relu("d", "g"), relu("f", "g"), relu("g", "h"), relu("e", "h")]
    dag = regrouped(body)
    assert isinstance(dag, Dag)
    assert dag.width > 2
    runner = replay(device, [dag], buffers, list(names))
    (graph,) = runner._graphs
    assert graph.plain is not None
    assert device.driver_node_count(graph.plain.graph) == len(dag.ops)
    (text,) = runner.graph_dots().values()
    assert text.count("->") == sum(map(len, dag.waits()))


# -------------------------------------------------------------------- workspaces


def test_a_product_of_cublaslts_needs_its_branchs_workspace(cuda):
    pytest.importorskip("nvmath.bindings.cublasLt", exc_type=ImportError)
    spec = Matmul(2, 2, 2)
    with type(cuda)(gemm="cublaslt") as device:
        a, b = device.upload(f32(1, 2, 3, 4), "a"), device.upload(f32(5, 6, 7, 8), "b")
        outs = [device.allocate((4,), "f32", f"out{i}") for i in range(2)]
        device.matmul(spec, a, b, outs[0])
        device.reserve_branches([[spec], []])
        with (
            refused(UNSUPPORTED, "reserve a workspace for branch 1"),
            device.capture("g"),
            device.branches(2) as branch,
            branch(1),
        ):
            device.matmul(spec, a, b, outs[1])
        device.reserve_branches([[spec], [spec]])
        device.memset(outs[0])
        with device.capture("g") as graph, device.branches(2) as branch:
            for index, out in enumerate(outs):
                with branch(index):
                    device.matmul(spec, a, b, out)
        device.graph_launch(device.instantiate(graph))
        for out in outs:
            assert out.to_host_checkpoint().tolist() == [19, 22, 43, 50]
