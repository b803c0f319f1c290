"""Noisy layers: factors, effective weights, which noise goes where, and the sigmas' gradients."""

import math

import numpy as np
import pytest
from block_runs import run_ops
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.kernels.learner.noisy import (
    NoisyLayer,
    NoisyPass,
    noise_factors,
    noise_of,
    noisy_value,
    sigma_gradient,
    squashed,
)
from onegraph.stages.program import Buffer
from onegraph.trainer.blocks.emit import Emit, linear_tensors
from onegraph.trainer.blocks.layout import Group, Layout
from onegraph.trainer.blocks.noisy import NOISY_BUFFERS, NoisyLayers

SEED = 7


def test_squashing_by_hand():
    assert squashed(np.array([4.0, -9.0, 0.0])).tolist() == [2, -3, 0]


def test_factors_have_the_moments_of_a_squashed_normal():
    f = noise_factors(200_000, NoisyPass.ONLINE, 3, SEED).astype(np.float64)
    assert f.mean() == pytest.approx(0, abs=0.01)
    assert np.square(f).mean() == pytest.approx(math.sqrt(2 / math.pi), rel=0.01)  # E|z|
    assert (f**4).mean() == pytest.approx(1, rel=0.02)  # E z^2


def test_no_two_passes_steps_or_seeds_share_their_noise():
    draws = [noise_factors(50, p, step, s) for p in NoisyPass for step in (0, 1) for s in (0, 1)]
    assert len(np.unique(np.concatenate(draws))) == 50 * len(draws)


def test_effective_weights_by_hand():
    f_in, f_out = np.array([2.0, -1.0]), np.array([3.0, 0.5, 0.0])
    weight_noise, bias_noise = noise_of(f_in, f_out)
    weight = noisy_value(np.ones((2, 3)), np.full((2, 3), 0.5), weight_noise)
    assert weight.tolist() == [[4, 1.5, 1], [-0.5, 0.75, 1]]
    assert noisy_value(np.zeros((1, 3)), np.full((1, 3), 2.0), bias_noise).tolist() == [[6, 1, 0]]


def test_sigma_gradient_against_central_differences():
    rng = np.random.default_rng(0)
    x, slope = rng.normal(size=(6, 5)), rng.normal(size=(6, 4))
    mu, sigma = rng.normal(size=(2, 5, 4))
    f_in, f_out = rng.normal(size=5), rng.normal(size=4)
    noise, _ = noise_of(f_in, f_out)

    def loss(sigma):
        return (np.tanh(x @ noisy_value(mu, sigma, noise)) * slope).sum()

    out = np.tanh(x @ noisy_value(mu, sigma, noise))
    found = sigma_gradient(x.T @ (slope * (1 - out**2)), noise)
    step = 1e-6
    for at in np.ndindex(sigma.shape):
        shift = np.zeros_like(sigma)
        shift[at] = step
        slope_here = (loss(sigma + shift) - loss(sigma - shift)) / (2 * step)
        assert found[at] == pytest.approx(slope_here, abs=1e-7)


def network():
    """A plain layer, and two noisy ones: padded, and wider than a tile."""
    plain = [
        *linear_tensors("first", 8, 16, real_in=5),
        *linear_tensors("wide", 16, 40),
        *linear_tensors("value", 40, 1, Group.IQN),
    ]
    noisy = NoisyLayers(["first", "value", "wide"], plain, sigma0=0.5, seed=SEED)
    return noisy, Layout([*plain, *noisy.tensors()])


def run_network(values, *, act=False, select=True, grads=False):
    noisy, layout = network()
    flat = [Buffer(n, (layout.size,), "f32") for n in ("theta", "theta_target", "grad")]
    ops = noisy.act_ops(layout) if act else noisy.learn_ops(layout, select=select)
    if grads:
        ops += noisy.grad_ops(layout)
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG], counters[Counter.COLLECT] = 12, 34
    start = {"counters": counters, **values}
    buffers = (*noisy.buffers(layout, NoisyPass), *flat, Buffer("counters", (COUNTERS,), "i64"))
    return noisy, layout, run_ops(ops, buffers, start)


def test_sigmas_are_parameters_with_the_papers_initial_values():
    noisy, layout = network()
    params = layout.initial(0)
    assert [t.name for t in noisy.tensors()] == [
        f"{name}.{part}_sigma" for name in ("first", "value", "wide") for part in ("weight", "bias")
    ]
    sigma = layout["first.weight_sigma"].values(params)
    assert sigma[:5].tolist() == np.full((5, 16), np.float32(0.5 / math.sqrt(5))).tolist()
    assert (sigma[5:] == 0).all()
    assert layout["value.bias_sigma"].values(params) == np.float32(0.5 / math.sqrt(40))
    assert layout["value.weight_sigma"].group is Group.IQN


def test_each_pass_has_its_noise_and_its_parameters():
    theta = np.random.default_rng(1).normal(size=network()[1].size).astype(np.float32)
    noisy, layout, got = run_network({"theta": theta, "theta_target": 2 * theta})
    count = sum(row.fan_in + row.fan_out for row in noisy.rows(layout))
    for which in (NoisyPass.ONLINE, NoisyPass.TARGET, NoisyPass.SELECT):
        source = 2 * theta if which is NoisyPass.TARGET else theta
        factors = noise_factors(count, which, 11, SEED)
        for name in ("first", "wide", "value"):
            row = next(r for r in noisy.rows(layout) if r.weight == layout[f"{name}.weight"].offset)
            f_in, f_out = row.split(factors)
            mu, sigma = (layout[f"{name}.weight{end}"].values(source) for end in ("", "_sigma"))
            weight = layout[f"{name}.weight"].values(got[NOISY_BUFFERS[which]])
            np.testing.assert_allclose(weight, mu + sigma * f_in[:, None] * f_out, atol=1e-5)
            mu, sigma = (layout[f"{name}.bias{end}"].values(source) for end in ("", "_sigma"))
            bias = layout[f"{name}.bias"].values(got[NOISY_BUFFERS[which]])
            np.testing.assert_allclose(bias, mu + sigma * f_out, atol=1e-5)
    assert not got[NOISY_BUFFERS[NoisyPass.ACT]].any()


def test_without_a_selecting_pass_none_is_drawn():
    theta = np.ones(network()[1].size)
    _, _, got = run_network({"theta": theta, "theta_target": theta}, select=False)
    assert got[NOISY_BUFFERS[NoisyPass.TARGET]].any()
    assert not got[NOISY_BUFFERS[NoisyPass.SELECT]].any()


def test_acting_draws_by_the_collecting_step():
    theta = np.ones(network()[1].size)
    _, layout, got = run_network({"theta": theta}, act=True)
    bias = layout["first.bias"].values(got[NOISY_BUFFERS[NoisyPass.ACT]])
    f = noise_factors(24, NoisyPass.ACT, 34, SEED)
    np.testing.assert_allclose(bias, 1 + f[8:], rtol=1e-6)
    assert not got["noisy_factors"].any()  # those of a learning step that is yet to end


def test_sigma_zero_leaves_mu_bit_for_bit():
    noisy, layout = network()
    theta = layout.initial(3)
    for spec in noisy.tensors():
        layout[spec.name].values(theta)[...] = 0
    _, _, got = run_network({"theta": theta, "theta_target": theta})
    for name in noisy.instead(NoisyPass.SELECT):
        tensor = layout[name]
        seen = tensor.values(got[NOISY_BUFFERS[NoisyPass.SELECT]])
        assert seen.tolist() == tensor.values(theta).tolist()


def test_passes_read_the_noisy_buffer():
    noisy, layout = network()
    emit = Emit(layout, "online_", 4, instead=noisy.instead(NoisyPass.ONLINE))
    assert emit.param("value.weight").buffer == "theta_noisy_online"
    assert emit.param("value.weight_sigma").buffer == "theta"


def test_gradients_of_the_sigmas_alone_are_written():
    noisy, layout = network()
    rng = np.random.default_rng(2)
    grad = rng.normal(size=layout.size).astype(np.float32)
    _, _, got = run_network(
        {"theta": layout.initial(0), "theta_target": layout.initial(0), "grad": grad}, grads=True
    )
    sigmas = {spec.name for spec in noisy.tensors()}
    row = noisy.rows(layout)[2]
    f_in, f_out = row.split(got["noisy_factors"])
    want = layout["wide.weight"].values(grad) * f_in[:, None] * f_out
    np.testing.assert_allclose(
        layout["wide.weight_sigma"].values(got["grad"]), want, rtol=1e-6, atol=1e-7
    )
    want = layout["wide.bias"].values(grad) * f_out
    np.testing.assert_allclose(layout["wide.bias_sigma"].values(got["grad"]), want, rtol=1e-6)
    for tensor in layout:
        if tensor.name not in sigmas:
            assert tensor.values(got["grad"]).tolist() == tensor.values(grad).tolist()


@given(st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(0, 5), st.booleans())
def test_what_is_not_finite_stays_in_its_element(bad, at, in_sigma):
    row = NoisyLayer(0, 6, 9, 15, 2, 3, 0, 0)
    params = np.ones(18, np.float32)
    params[at + (9 if in_sigma else 0)] = bad
    counters = np.ones(COUNTERS, np.int64)
    out = run_host(
        "noisy_weights",
        params=params,
        target=[0],
        table=[row],
        counters=counters,
        out0=np.zeros(18),
        out1=[0],
        out2=[0],
        factors=5,
        layers=1,
        tiles=1,
        first=0,
        passes=1,
        seed=SEED,
    )["out0"]
    assert np.flatnonzero(~np.isfinite(out)).tolist() == [at]


def test_gradients_against_pytorch():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    noisy, layout = network()
    theta = layout.initial(5)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 16)).astype(np.float32)
    _, _, got = run_network({"theta": theta, "theta_target": theta})
    f_in, f_out = (torch.tensor(f) for f in noisy.rows(layout)[2].split(got["noisy_factors"]))
    parts = {
        part: torch.tensor(layout[f"wide.{part}"].values(theta).copy(), requires_grad=True)
        for part in ("weight", "bias", "weight_sigma", "bias_sigma")
    }
    weight = parts["weight"] + parts["weight_sigma"] * torch.outer(f_in, f_out)
    bias = parts["bias"] + parts["bias_sigma"] * f_out
    np.testing.assert_allclose(
        layout["wide.weight"].values(got["theta_noisy_online"]), weight.detach().numpy(), atol=1e-6
    )
    weight.retain_grad()
    bias.retain_grad()
    (torch.tensor(x) @ weight + bias).pow(2).sum().backward()

    grad = np.zeros(layout.size, np.float32)
    layout["wide.weight"].values(grad)[...] = weight.grad.numpy()
    layout["wide.bias"].values(grad)[...] = bias.grad.numpy()
    _, _, got = run_network({"theta": theta, "theta_target": theta, "grad": grad}, grads=True)
    for part, tensor in parts.items():
        ours = layout[f"wide.{part}"].values(got["grad"])
        np.testing.assert_allclose(ours, tensor.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_a_layer_that_is_none():
    with pytest.raises(ValueError, match="'head' is no linear layer; there are a"):
        NoisyLayers(["head"], linear_tensors("a", 2, 2), sigma0=0.5, seed=0)
