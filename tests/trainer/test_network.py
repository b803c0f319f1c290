"""The network's layout, its first parameters, and its host-side values."""

import numpy as np
import pytest

from onegraph.stages.program import MatmulGroup, MatmulOp
from onegraph.trainer.network import QNetwork, padded_width


@pytest.mark.parametrize(("width", "padded"), [(1, 8), (7, 8), (8, 8), (9, 16), (64, 64)])
def test_states_are_padded_to_a_multiple_of_eight(width, padded):
    assert padded_width(width) == padded


def test_blocks_lie_one_after_another_from_multiples_of_eight():
    network = QNetwork(5, (3, 4), 2, dueling=True)
    # 8 x 3 at 0, 3 at 24; 3 x 4 at 32, 4 at 48; 4 x 3 at 56, 3 at 72
    assert [(x.fan_in, x.fan_out, x.weight, x.bias) for x in network.layers] == [
        (8, 3, 0, 24),
        (3, 4, 32, 48),
        (4, 3, 56, 72),
    ]
    assert (network.size, network.stride, network.inputs) == (80, 3, 8)
    assert QNetwork(5, (3, 4), 2, dueling=False).stride == 2


def test_first_parameters_are_uniform_within_one_over_the_root_of_the_inputs():
    network = QNetwork(60, (200,), 50, dueling=False)
    params = network.named(network.initial(7))
    assert params["hidden.0.weight"].shape == (200, 64)
    assert params["head.weight"].shape == (50, 200)
    for name, fan_in in (("hidden.0", 60), ("head", 200)):
        weight = params[f"{name}.weight"][:, :fan_in]
        bound = 1 / np.sqrt(fan_in)
        assert 0.99 * bound < np.abs(weight).max() <= bound
        # the mean and variance of a uniform draw, with more than five standard errors of room
        assert abs(weight.mean()) < 5 * bound / np.sqrt(3 * weight.size)
        assert weight.var() == pytest.approx(bound**2 / 3, rel=0.05)
        assert 0 < np.abs(params[f"{name}.bias"]).max() <= bound
    assert (params["hidden.0.weight"][:, 60:] == 0).all(), "what padding is multiplied with"


def test_first_parameters_depend_on_the_seed_alone():
    network = QNetwork(5, (6,), 2, dueling=True)
    np.testing.assert_array_equal(network.initial(3), network.initial(3))
    assert (network.initial(3) != network.initial(4)).any()
    assert network.initial(0).dtype == np.float32


def test_values_of_a_network_written_by_hand():
    """One hidden unit: h = relu(x0 - x1 + 1); advantages h, 3h; value 10."""
    network = QNetwork(2, (1,), 2, dueling=True)
    params = np.zeros(network.size, np.float32)
    hidden, head = network.layers
    params[hidden.weight : hidden.weight + 2] = 1, -1
    params[hidden.bias] = 1
    params[head.weight : head.weight + 3] = 1, 3, 0
    params[head.bias + 2] = 10
    # h = 3: advantages 3, 9 about their mean 6; h = 0 (from -4): none
    assert network.q_values(params, np.array([[2, 0], [0, 5]])).tolist() == [[7, 13], [10, 10]]
    padded = np.zeros((1, 8))
    padded[0, 0] = 2
    assert network.q_values(params, padded).tolist() == [[7, 13]]


def test_values_of_a_plain_network_written_by_hand():
    network = QNetwork(1, (2,), 2, dueling=False)
    params = np.zeros(network.size, np.float32)
    hidden, head = network.layers
    params[hidden.weight : hidden.weight + 2] = 1, -1
    params[head.weight : head.weight + 4] = 1, 2, 3, 4  # [fan_in, fan_out]
    params[head.bias : head.bias + 2] = 0.5, 0
    assert network.q_values(params, np.array([[2], [-3]])).tolist() == [[2.5, 4], [9.5, 12]]


def test_named_parameters_are_as_pytorch_has_them():
    network = QNetwork(3, (2,), 2, dueling=False)
    params = network.initial(1)
    named = network.named(params)
    assert list(named) == ["hidden.0.weight", "hidden.0.bias", "head.weight", "head.bias"]
    x = np.array([[0.5, -1, 2]])
    wide = np.zeros((1, 8))
    wide[:, :3] = x
    hidden = np.maximum(wide @ named["hidden.0.weight"].T + named["hidden.0.bias"], 0)
    np.testing.assert_allclose(
        hidden @ named["head.weight"].T + named["head.bias"], network.q_values(params, x)
    )


def outs(op):
    return [m.out.buffer for m in (op.members if isinstance(op, MatmulGroup) else (op,))]


def test_passes_that_run_together_are_one_op_a_layer():
    network = QNetwork(5, (3, 4), 2, dueling=True)
    passes = [("theta", "s_t", "select"), ("theta_target", "s_t", "target")]
    ops = network.forward_together(passes, 64)
    assert [outs(op) for op in ops] == [
        ["select0", "target0"],
        ["select1", "target1"],
        ["selecthead", "targethead"],
    ]
    assert [m for op in ops for m in op.members[1:]] == list(network.forward(*passes[1], 64))
    assert network.forward_together(passes[1:], 64) == network.forward(*passes[1], 64)


def test_a_layers_gradients_are_one_op_but_for_the_first_layer():
    network = QNetwork(5, (3, 4), 2, dueling=True)
    ops = network.backward("theta", "grad", "s_tm1", "online", 64, "grad_head")
    # The gradient of parameters is a sum over 64 rows, that of an input over the 3 or 4 outputs.
    assert [outs(op) for op in ops] == [["grad", "grad1"], ["grad", "grad0"], ["grad"]]
    wide = QNetwork(5, (3, 100), 2, dueling=True)
    ops = wide.backward("theta", "grad", "s_tm1", "online", 64, "grad_head")
    assert outs(ops[1]) == ["grad0", "grad"]


@pytest.mark.parametrize(("width", "grouped"), [(256, True), (512, False)])
def test_products_that_cublaslt_takes_stand_alone(width, grouped):
    """512 x 512 x 512 is the smallest cube that it takes."""
    network = QNetwork(512, (width, width), 2, dueling=True)
    passes = [("theta", "s_t", "select"), ("theta_target", "s_t", "target")]
    first, *_, head = network.forward_together(passes, 512)
    assert (isinstance(first, MatmulGroup), isinstance(head, MatmulGroup)) == (grouped, True)
    backward = network.backward("theta", "grad", "s_tm1", "online", 512, "grad_head")
    large = [op for op in backward if isinstance(op, MatmulOp)]
    assert {op.m * op.n * op.k >= 512**3 for op in large} == {not grouped}
    assert len(backward) == (3 if grouped else 4)
