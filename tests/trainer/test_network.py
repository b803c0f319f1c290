"""The network's layout, its first parameters, and its host-side values."""

import numpy as np
import pytest

from onegraph.trainer.config import NetworkConfig
from onegraph.trainer.config.schema import C51Config
from onegraph.trainer.network import QNetwork, padded_width


def network_of(width, hidden, actions, **fields):
    return QNetwork(width, actions, NetworkConfig(hidden=hidden, **fields))


def put(network, params, name, values):
    """The rows of a tensor that have values; padding stays zero."""
    network.layout[name].values(params)[: len(values)] = values


@pytest.mark.parametrize(("width", "padded"), [(1, 8), (7, 8), (8, 8), (9, 16), (64, 64)])
def test_states_are_padded_to_a_multiple_of_eight(width, padded):
    assert padded_width(width) == padded


def test_blocks_lie_one_after_another_from_multiples_of_eight():
    network = network_of(5, (3, 4), 2, dueling=True)
    # 8 x 3 at 0, 3 at 24; 3 x 4 at 32, 4 at 48; 4 x 3 at 56, 3 at 72
    assert [(t.shape, t.offset) for t in network.layout] == [
        ((8, 3), 0),
        ((3,), 24),
        ((3, 4), 32),
        ((4,), 48),
        ((4, 3), 56),
        ((3,), 72),
    ]
    assert (network.size, network.stride, network.inputs) == (80, 3, 8)
    assert network_of(5, (3, 4), 2, dueling=False).stride == 2


def test_first_parameters_are_uniform_within_one_over_the_root_of_the_inputs():
    network = network_of(60, (200,), 50, dueling=False)
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
    network = network_of(5, (6,), 2, dueling=True)
    np.testing.assert_array_equal(network.initial(3), network.initial(3))
    assert (network.initial(3) != network.initial(4)).any()
    assert network.initial(0).dtype == np.float32


def test_values_of_a_network_written_by_hand():
    """One hidden unit: h = relu(x0 - x1 + 1); advantages h, 3h; value 10."""
    network = network_of(2, (1,), 2, dueling=True)
    params = np.zeros(network.size, np.float32)
    put(network, params, "hidden.0.weight", [[1], [-1]])
    put(network, params, "hidden.0.bias", [1])
    put(network, params, "head.weight", [[1, 3, 0]])
    put(network, params, "head.bias", [0, 0, 10])
    # h = 3: advantages 3, 9 about their mean 6; h = 0 (from -4): none
    assert network.q_values(params, np.array([[2, 0], [0, 5]])).tolist() == [[7, 13], [10, 10]]
    padded = np.zeros((1, 8))
    padded[0, 0] = 2
    assert network.q_values(params, padded).tolist() == [[7, 13]]


def test_values_of_a_plain_network_written_by_hand():
    network = network_of(1, (2,), 2, dueling=False)
    params = np.zeros(network.size, np.float32)
    put(network, params, "hidden.0.weight", [[1, -1]])
    put(network, params, "head.weight", [[1, 2], [3, 4]])  # [fan_in, fan_out]
    put(network, params, "head.bias", [0.5, 0])
    assert network.q_values(params, np.array([[2], [-3]])).tolist() == [[2.5, 4], [9.5, 12]]


@pytest.mark.parametrize("dueling", [False, True])
def test_quantiles_of_a_network_written_by_hand(dueling):
    """One hidden unit, 3 for the observation; an embedding that gives 1 + cos(pi tau)."""
    network = network_of(1, (1,), 2, dueling=dueling, head="iqn")
    params = np.zeros(network.size, np.float32)
    put(network, params, "hidden.0.weight", [[3]])
    put(network, params, "iqn.embed.weight", [[1], [1]])  # of the cosines of 0 and of pi tau
    put(network, params, "iqn.head.weight", [[1, 2, 5][: 2 + dueling]])
    put(network, params, "iqn.head.bias", [0, 7, 0][: 2 + dueling])
    levels = np.array([0.25, 0.5, 1 - 1e-6], np.float32)
    found = network.quantiles(params, np.array([[1.0], [2.0]]), levels)
    assert found.shape == (2, 2, 3)
    z = np.array([3, 6])[:, None] * (1 + np.cos(np.pi * levels.astype(float)))
    a, b = z, 2 * z + 7
    if dueling:
        a, b = 5 * z + a - (a + b) / 2, 5 * z + b - (a + b) / 2
    np.testing.assert_allclose(found, np.stack([a, b], axis=1), rtol=1e-5, atol=1e-4)


def test_quantiles_do_not_depend_on_readiness_or_on_what_else_is_asked():
    network = network_of(3, (4,), 2, head="iqn")  # with a plain head, which decides at first
    params, x = network.initial(5), np.eye(3, dtype=np.float32)
    levels = np.array([0.1, 0.6, 0.9], np.float32)
    found = network.quantiles(params, x, levels)
    for ready in (0.0, 1.0):
        state = {"iqn_ready": np.array([0.5, ready])}
        assert (network.quantiles(params, x, levels, state) == found).all()
    np.testing.assert_array_equal(network.quantiles(params, x, levels[1:2]), found[..., 1:2])
    np.testing.assert_array_equal(network.quantiles(params, x[2:], levels), found[2:])


@pytest.mark.parametrize("dueling", [False, True])
def test_masses_of_a_network_written_by_hand(dueling):
    fields = {"c51": C51Config(atoms=3, v_min=-1.0, v_max=1.0), "head": "c51"}
    network = network_of(1, (1,), 2, dueling=dueling, **fields)
    params = np.zeros(network.size, np.float32)
    logits = np.log([[1, 2, 5], [4, 2, 2]])
    head = [*logits.ravel(), *([0] * 3 * dueling)]
    network.layout["c51.head.bias"].values(params)[: len(head)] = head
    found = network.atom_masses(params, np.zeros((4, 1)))
    want = np.exp(logits - logits.mean(axis=0) if dueling else logits)
    want /= want.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, np.stack([want] * 4), rtol=1e-6)
    values = network.q_values(params, np.zeros((4, 1)))
    np.testing.assert_allclose(found @ [-1, 0, 1], values, rtol=1e-5, atol=1e-7)


def test_a_head_without_a_distribution_says_so():
    network = network_of(1, (1,), 2)
    params, x = network.initial(0), np.zeros((1, 1))
    with pytest.raises(ValueError, match=r"network.head = 'dqn' has no quantiles; use 'iqn'"):
        network.quantiles(params, x, np.array([0.5], np.float32))
    with pytest.raises(ValueError, match=r"network.head = 'dqn' has no atoms; use 'c51'"):
        network.atom_masses(params, x)


def test_named_parameters_are_as_pytorch_has_them():
    network = network_of(3, (2,), 2, dueling=False)
    params = network.initial(1)
    named = network.named(params)
    assert list(named) == ["hidden.0.weight", "hidden.0.bias", "head.weight", "head.bias"]
    x = np.array([[0.5, -1, 2]])
    wide = np.zeros((1, 8))
    wide[:, :3] = x
    hidden = np.maximum(wide @ named["hidden.0.weight"].T + named["hidden.0.bias"], 0)
    np.testing.assert_allclose(
        hidden @ named["head.weight"].T + named["head.bias"], network.q_values(params, x), rtol=1e-6
    )
