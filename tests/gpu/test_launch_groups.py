"""Launches in a group leave the bits that they leave one by one: every kernel, in every grid."""

from __future__ import annotations

import group_cases
import numpy as np
import pytest
from capture_scenarios import config, steps, trainer_on
from grouped_learner import FULL, group_launches

from onegraph.kernels.catalogue import catalogue
from onegraph.kernels.device import DeviceError
from onegraph.kernels.launch_group import MEMBERS, obstacle
from onegraph.stages.program import LaunchGroup
from onegraph.stages.registry import ALL, up_to
from onegraph.stages.verify import verify
from onegraph.trainer.subject import TrainerSubject

pytestmark = pytest.mark.gpu

GROUPED = [name for name, spec in catalogue().items() if not obstacle(spec)]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("kernel", GROUPED)
def test_a_group_gives_the_bits_of_separate_launches(cuda, kernel, count) -> None:
    launches = group_cases.members(kernel, count)
    for max_blocks in (1, 3, 4096):
        apart = group_cases.on(cuda, kernel, launches, max_blocks, at_once=False)
        assert group_cases.on(cuda, kernel, launches, max_blocks, at_once=True) == apart


@pytest.mark.parametrize("count", [4, 7, MEMBERS])
@pytest.mark.parametrize("kernel", ["scaled_add", "layer_norm", "grad_norm", "env_market"])
def test_a_group_of_many_members(cuda, kernel, count) -> None:
    """In an order in which a large member stands behind small ones."""
    launches = group_cases.members(kernel, count)[::-1]
    apart = group_cases.on(cuda, kernel, launches, 4096, at_once=False)
    assert group_cases.on(cuda, kernel, launches, 4096, at_once=True) == apart


@pytest.mark.sanitize
def test_under_a_sanitizer() -> None:
    """A kernel of its own text alone, one that asks for its grid in a header, one with barriers."""
    from onegraph.kernels.device.cuda import CudaDevice

    with CudaDevice(gemm="kernel") as device:
        for kernel in ("scaled_add", "grad_norm", "layer_norm_grad", "sample_batch"):
            launches = group_cases.members(kernel, 3)[1:]
            apart = group_cases.on(device, kernel, launches, 4096, at_once=False)
            assert group_cases.on(device, kernel, launches, 4096, at_once=True) == apart


def test_tickets_are_left_for_the_next_launch(cuda) -> None:
    """The last block of each member is told by the member's own count of blocks."""
    rng = np.random.default_rng(0)
    sizes = ((50_000, 64), (700, 3), (9, 1))
    held = []
    for n, parts in sizes:
        args = {"grad": cuda.upload(rng.normal(size=n).astype(np.float32))}
        for name, size, dtype in (("partial", parts, "f64"), ("clip", 2, "f32")):
            args[name] = cuda.allocate((size,), dtype, name)
        args |= {"skip": cuda.allocate((1,), "i32"), "ticket": cuda.upload(np.zeros(1, np.uint32))}
        held.append({**args, "n": n, "parts": parts, "max_norm": 0.5})
    group = cuda.prepare_group("grad_norm", held)
    results = []
    for _ in range(20):
        for args in held:
            cuda.memset(args["clip"])
        cuda.launch_group(group)
        results.append([args["clip"].to_host_checkpoint().tolist() for args in held])
        assert [int(args["ticket"].to_host_checkpoint()[0]) for args in held] == [0, 0, 0]
    assert results == [results[0]] * 20
    for args, clip in zip(held, results[0], strict=True):
        cuda.run("grad_norm", **args)
        assert args["clip"].to_host_checkpoint().tolist() == clip


def test_a_group_in_a_graph_is_one_node_as_the_driver_counts(cuda) -> None:
    launches = group_cases.members("scaled_add", 3)
    apart = group_cases.on(cuda, "scaled_add", launches, 4096, at_once=False)
    held = [
        {k: cuda.upload(v, k) if isinstance(v, np.ndarray) else v for k, v in args.items()}
        for args in launches
    ]
    group = cuda.prepare_group("scaled_add", held, module="graphed")
    with cuda.warm_up():
        cuda.launch_group(group)
    for args, given in zip(held, launches, strict=True):
        cuda.copy_htod(args["out"], given["out"])
    with cuda.capture("g") as graph:
        cuda.launch_group(group)
    assert cuda.driver_node_count(graph) == graph.node_count() == 1
    executable = cuda.instantiate(graph)
    for _ in range(2):
        cuda.graph_launch(executable)
    assert [{"out": args["out"].to_host_checkpoint().tobytes()} for args in held] == apart
    graph.close()


def test_groups_in_branches(cuda) -> None:
    """A group goes to the stream of its branch."""
    launches = [group_cases.members("scaled_add", 2)] * 3
    held = [
        [
            {k: cuda.upload(v, k) if isinstance(v, np.ndarray) else v for k, v in args.items()}
            for args in pair
        ]
        for pair in launches
    ]
    groups = [cuda.prepare_group("scaled_add", pair, module="graphed") for pair in held]
    cuda.reserve_branches([[]] * 3)
    with cuda.capture("g") as graph, cuda.branches(3) as branch:
        for i, group in enumerate(groups):
            with branch(i):
                cuda.launch_group(group)
    assert cuda.driver_node_count(graph) == 3
    cuda.graph_launch(cuda.instantiate(graph))
    apart = group_cases.on(cuda, "scaled_add", launches[0], 4096, at_once=False)
    for pair in held:
        assert [{"out": args["out"].to_host_checkpoint().tobytes()} for args in pair] == apart
    graph.close()


def test_a_group_is_not_loaded_while_capturing(device) -> None:
    x = [device.upload(np.ones(4, np.float32)) for _ in range(2)]
    members = [{"extra": a, "out": a, "n": 4, "grad": 0} for a in x]
    device.prepare("relu_epilogue", members[0])  # another module
    with (
        pytest.raises(DeviceError, match="load relu_epilogue_group_2"),
        device.capture("g"),
    ):
        device.prepare_group("relu_epilogue", members)


@pytest.mark.parametrize("stages", [up_to(4), ALL], ids=["4", "all"])
def test_the_full_learner_has_the_same_bits_with_its_launches_in_groups(
    cuda, stages, monkeypatch
) -> None:
    plain = trainer_on(cuda, stages, config(**FULL))
    want = steps(plain, 5)
    plain.close()
    group_launches(monkeypatch)
    trainer = trainer_on(cuda, stages, config(**FULL))
    ops = [op for _, op, _ in trainer.learn_program.all_ops()]
    assert sum(isinstance(op, LaunchGroup) for op in ops) > 5
    assert steps(trainer, 5) == want
    trainer.close()


def test_verify_finds_nothing_at_a_learner_with_groups(cuda, monkeypatch) -> None:
    """With CUPTI, where it counts: each group is one kernel."""
    group_launches(monkeypatch)
    subject = TrainerSubject(config(**FULL))
    result = verify(subject, type(cuda), (up_to(0), up_to(4), up_to(6)), steps=6)
    assert result.ok, [finding for _, finding in result.findings]
