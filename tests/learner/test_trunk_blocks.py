"""The trunk's blocks as programs, forward and backward: gate, group attention, residual block."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from central_differences import numeric_gradient

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.kernels.device import HostDevice
from onegraph.stages import Buffer, Phase, Ref, Runner, StepProgram, Workspace
from onegraph.trainer.blocks.attention import GroupAttention
from onegraph.trainer.blocks.emit import Block, Emit
from onegraph.trainer.blocks.gate import SelectivityGate
from onegraph.trainer.blocks.layout import Group, Layout
from onegraph.trainer.blocks.residual import DEPTH_SCALE, ResidualBlock, draw_depth

ROWS, WIDTH, OBSERVED = 6, 24, 21


@dataclass
class Ran:
    """What a run of a block gave: its output and gradients, and the device calls that it took."""

    out: np.ndarray
    grad_in: np.ndarray | None
    grads: dict[str, np.ndarray]
    nodes: int


def parameters(block: Block, seed=0):
    """Values of a size that a first draw would have, with nothing left at 0 or 1."""
    layout = Layout(block.tensors())
    values = layout.initial(seed)
    return (values + np.random.default_rng(seed).normal(size=layout.size) * 0.1).astype(np.float32)


def run(block, x, grad_out, values, *, need=True, training=True, depth=None):
    rows, layout = len(x), Layout(block.tensors())
    emit = Emit(layout, "on_", rows, training=training)
    out = block.forward(emit, Ref("x"))
    grad_in = block.backward(emit, Ref("x"), Ref("grad_out"), need_grad_in=need)
    given = {"x": x, "grad_out": grad_out, "theta": values, "grad": np.full(layout.size, np.nan)}
    buffers = [*emit.buffers, *(Buffer(n, v.shape, "f32") for n, v in given.items())]
    program = StepProgram("block", "learn", (Phase("all", emit.take()),), tuple(buffers))
    workspace = Workspace(HostDevice())
    workspace.ensure(program.buffers)
    runner = Runner(program, workspace)
    for name, array in given.items():
        workspace.write(name, array.astype(np.float32))
    if depth is not None:
        workspace.write(DEPTH_SCALE, np.asarray(depth, np.float32))
    counts = runner.step().by_kind()
    flat = workspace.read("grad")
    return Ran(
        workspace.read(out.buffer).reshape(rows, -1),
        None if grad_in is None else workspace.read(grad_in.buffer).reshape(rows, -1),
        {tensor.name: tensor.values(flat) for tensor in layout},
        counts["launch"] + counts["matmul"],
    )


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def gate_model(block, p, x):
    gate = np.where(np.arange(block.width) < block.observation_width, sigmoid(p["gate.logit"]), 0)
    return x * gate


def attention_model(block, p, x):
    rows, d, e = len(x), block.width // block.groups, block.width // block.groups // block.heads
    tokens = x.reshape(rows, block.groups, d)
    out = np.zeros_like(tokens)
    qkv = tokens @ p["attn.qkv.weight"] + p["attn.qkv.bias"]
    for h in range(block.heads):
        q, k, v = (qkv[:, :, i * d + h * e : i * d + (h + 1) * e] for i in range(3))
        score = np.exp(np.einsum("rie,rje->rij", q, k) / np.sqrt(e))
        out[:, :, h * e : (h + 1) * e] = score / score.sum(axis=2, keepdims=True) @ v
    out = out @ p["attn.out.weight"] + p["attn.out.bias"]
    return x + out.reshape(rows, -1)


def residual_model(block, p, x, s=1.0):
    p = {name.removeprefix(f"block.{block.index}."): value for name, value in p.items()}
    h = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    h = h * p["norm.scale"] + p["norm.shift"]
    h = np.maximum(h @ p["linear1.weight"] + p["linear1.bias"], 0)
    return x + s * (h @ p["linear2.weight"] + p["linear2.bias"])


CASES = {
    "gate": (SelectivityGate(WIDTH, OBSERVED, 0.0), gate_model, None),
    "attention": (GroupAttention(WIDTH, 4, 3), attention_model, None),
    "residual": (ResidualBlock(WIDTH, 1, 3), residual_model, None),
    "scaled": (ResidualBlock(WIDTH, 1, 3, 0.5), partial(residual_model, s=1.5), [0, 1.5, 9]),
    "dropped": (ResidualBlock(WIDTH, 2, 3, 0.5), partial(residual_model, s=0.0), [9, 9, 0]),
}


@pytest.mark.parametrize("case", CASES)
def test_forward_and_gradients_against_central_differences(case):
    block, model, depth = CASES[case]
    rng = np.random.default_rng(3)
    x, weight = rng.normal(size=(2, ROWS, WIDTH))
    values = parameters(block).astype(np.float64)
    layout = Layout(block.tensors())
    tensors = {tensor.name: tensor.values(values) for tensor in layout}
    ran = run(block, x, weight, values, depth=depth)

    def loss():
        return float((model(block, tensors, x) * weight).sum())

    np.testing.assert_allclose(ran.out, model(block, tensors, x), atol=2e-6)
    np.testing.assert_allclose(ran.grad_in, numeric_gradient(loss, x), rtol=1e-4, atol=2e-5)
    assert set(ran.grads) == set(tensors)
    for name, gradient in ran.grads.items():
        want = numeric_gradient(loss, tensors[name])
        np.testing.assert_allclose(gradient, want, rtol=1e-4, atol=2e-5, err_msg=name)
        assert case == "dropped" or np.abs(gradient).max() > 1e-3, name


@pytest.mark.parametrize("case", CASES)
def test_without_need_of_it_the_gradient_in_the_input_costs_nothing(case):
    block, _, depth = CASES[case]
    x, g = np.random.default_rng(4).normal(size=(2, ROWS, WIDTH))
    values = parameters(block)
    with_it = run(block, x, g, values, depth=depth)
    without = run(block, x, g, values, depth=depth, need=False)
    assert without.grad_in is None
    for name, gradient in without.grads.items():
        np.testing.assert_array_equal(gradient, with_it.grads[name])
    assert without.nodes <= with_it.nodes


@pytest.mark.parametrize(
    ("case", "nodes"),
    [("gate", 1 + 1), ("attention", 4 + 6), ("residual", 4 + 5), ("scaled", 4 + 6)],
)
def test_nodes_forward_and_backward(case, nodes):
    block, _, depth = CASES[case]
    x = np.ones((ROWS, WIDTH))
    assert run(block, x, x, parameters(block), depth=depth).nodes == nodes


@pytest.mark.parametrize("rows", [1, 33, 300])
@pytest.mark.parametrize("case", ["gate", "attention", "residual"])
def test_a_row_gets_what_it_gets_alone(case, rows):
    block, _, _ = CASES[case]
    x, g = np.random.default_rng(rows).normal(size=(2, rows, WIDTH))
    values = parameters(block)
    ran = run(block, x, g, values)
    alone = run(block, x[-1:], g[-1:], values)
    np.testing.assert_allclose(ran.out[-1:], alone.out, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ran.grad_in[-1:], alone.grad_in, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- the gate


def test_the_penalty_pulls_the_features_and_not_the_padding():
    x = np.zeros((ROWS, WIDTH))
    block = SelectivityGate(WIDTH, OBSERVED, 0.5)
    grad = run(block, x, x, np.zeros(WIDTH)).grads["gate.logit"]
    assert grad.tolist() == [0.125] * OBSERVED + [0] * (WIDTH - OBSERVED)


def test_a_gate_starts_nearly_open():
    block = SelectivityGate(WIDTH, OBSERVED, 0.0)
    x = np.ones((1, WIDTH))
    ran = run(block, x, x, Layout(block.tensors()).initial(0))
    np.testing.assert_allclose(ran.out[0, :OBSERVED], sigmoid(2.0), rtol=1e-6)
    assert (ran.out[0, OBSERVED:] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((8, 9, 0.0), "9 features"), ((8, 0, 0.0), "0 features"), ((8, 8, -1.0), "penalty of -1")],
)
def test_a_gate_that_can_not_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SelectivityGate(*arguments)


# ---------------------------------------------------------------- attention


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((24, 5, 1), "24 is not divisible into 5 groups"),
        ((24, 4, 4), "width 6 is not divisible among 4 heads"),
        ((24, 4, 0), "among 0 heads"),
        ((24, 0, 1), "0 groups"),
        ((130, 65, 1), "65 groups.* 1 to 64"),
    ],
)
def test_attention_that_does_not_divide_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GroupAttention(*arguments)


def test_groups_of_adam():
    assert {t.group for t in GroupAttention(24, 4, 2).tensors()} == {Group.ATTENTION}
    assert {t.group for t in SelectivityGate(8, 8, 0.0).tensors()} == {Group.SELECTIVITY}
    assert {t.group for t in ResidualBlock(8, 0, 1).tensors()} == {Group.TRUNK}


def test_attention_as_pytorchs_module():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    block, rows = GroupAttention(48, 4, 3), 9
    layout, values = Layout(block.tensors()), parameters(block)
    tensors = {tensor.name: tensor.values(values) for tensor in layout}
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    named = {
        "attn.qkv.weight": module.in_proj_weight,
        "attn.qkv.bias": module.in_proj_bias,
        "attn.out.weight": module.out_proj.weight,
        "attn.out.bias": module.out_proj.bias,
    }
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(torch.tensor(tensors[name].T.copy()))
    x, g = np.random.default_rng(5).normal(size=(2, rows, 48)).astype(np.float32)
    tokens = torch.tensor(x, requires_grad=True)
    split = tokens.reshape(rows, 4, 12)
    want = tokens + module(split, split, split, need_weights=False)[0].reshape(rows, 48)
    want.backward(torch.tensor(g))
    ran = run(block, x, g, values)
    np.testing.assert_allclose(ran.out, want.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ran.grad_in, tokens.grad, rtol=1e-4, atol=1e-4)
    for name, parameter in named.items():
        np.testing.assert_allclose(ran.grads[name], parameter.grad.numpy().T, rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- the residual block


def residual_in_torch(torch, block, tensors):
    """LayerNorm, Linear, ReLU, Linear of PyTorch with the block's parameters."""
    width = block.width
    layers = torch.nn.Sequential(
        torch.nn.LayerNorm(width),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
    )
    names = ["norm.scale", "norm.shift", "linear1.weight", "linear1.bias"]
    names += ["linear2.weight", "linear2.bias"]
    named = dict(zip((f"{block.name}.{n}" for n in names), layers.parameters(), strict=True))
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(torch.tensor(tensors[name].T.copy()))
    return layers, named


def test_the_residual_block_as_pytorchs_layers():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    block, rows = ResidualBlock(40, 0, 2, 0.6), 50
    layout, values = Layout(block.tensors()), parameters(block)
    tensors = {tensor.name: tensor.values(values) for tensor in layout}
    layers, named = residual_in_torch(torch, block, tensors)
    x, g = np.random.default_rng(6).normal(size=(2, rows, 40)).astype(np.float32)
    given = torch.tensor(x, requires_grad=True)
    want = given + 1.25 * layers(given)
    want.backward(torch.tensor(g))
    ran = run(block, x, g, values, depth=[1.25, 0])
    np.testing.assert_allclose(ran.out, want.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ran.grad_in, given.grad, rtol=1e-4, atol=1e-4)
    for name, parameter in named.items():
        np.testing.assert_allclose(ran.grads[name], parameter.grad.numpy().T, rtol=1e-3, atol=1e-4)


def test_evaluation_is_the_whole_network():
    block = ResidualBlock(WIDTH, 0, 1, 1.0)
    x = np.random.default_rng(7).normal(size=(ROWS, WIDTH))
    values = parameters(block)
    evaluated = run(block, x, x, values, training=False)
    never_dropped = run(ResidualBlock(WIDTH, 0, 1, 0.0), x, x, values)
    np.testing.assert_array_equal(evaluated.out, never_dropped.out)
    assert (run(block, x, x, values, depth=[0]).out == x.astype(np.float32)).all()


def test_after_a_relu_the_gradient_is_the_one_before_it():
    x, g = np.random.default_rng(8).normal(size=(2, ROWS, WIDTH))
    x = np.maximum(x, 0)
    values = parameters(ResidualBlock(WIDTH, 0, 1))
    plain = run(ResidualBlock(WIDTH, 0, 1), x, g, values)
    masked = run(ResidualBlock(WIDTH, 0, 1, after_relu=True), x, g, values)
    np.testing.assert_array_equal(masked.grad_in, np.where(x > 0, plain.grad_in, 0))
    assert masked.nodes == plain.nodes


def test_masks_are_drawn_where_the_blocks_read_them():
    emit = Emit(Layout(()), "on_", ROWS, training=True)
    draw_depth(emit, 3, 1.0, seed=5)
    counters = Buffer("counters", (COUNTERS,), "i64")
    program = StepProgram("masks", "learn", (Phase("a", emit.take()),), (counters, *emit.buffers))
    workspace = Workspace(HostDevice())
    workspace.ensure(program.buffers)
    runner, seen = Runner(program, workspace), set()
    for step in range(1, 30):
        workspace.write("counters", np.eye(1, COUNTERS, Counter.RNG, dtype=np.int64)[0] * step)
        runner.step()
        seen.add(tuple(workspace.read(DEPTH_SCALE).tolist()))
    third = np.float32(1 / (1 - 1 / 3))
    assert {first for first, _, _ in seen} == {0, third}
    assert {last for _, _, last in seen} == {0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((8, 3, 3), "block 3 of 3"), ((8, -1, 3), "block -1"), ((8, 0, 1, 1.5), "probability of 1.5")],
)
def test_a_residual_block_that_can_not_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ResidualBlock(*arguments)
