"""Spectral normalisation: iteration, convergence, cap, gradients, weights that are no numbers."""

import math

import numpy as np
import pytest
from block_runs import run_ops
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.learner.spectral import (
    SpectralMatrix,
    power_iteration,
    spectral_gradient,
)
from onegraph.stages.program import Buffer
from onegraph.trainer.blocks.emit import linear_tensors
from onegraph.trainer.blocks.layout import Layout
from onegraph.trainer.blocks.spectral import SpectralNorm

NAMES = ("a.weight", "b.weight")


def power(w, u, v, *, iterate=1):
    """u and v, and sigma, after the three kernels on the matrix `w`."""
    w = np.float32(w)
    given = {
        "params": w.reshape(-1),
        "target": [0],
        "table": [SpectralMatrix(0, 0, *w.shape, 0)],
        "vectors": [*u, *v],
        "raw": np.zeros(len(u) + len(v)),
        "count": 1,
    }
    if iterate:
        given |= run_host("spectral_left", **given, tiles=1)
    given |= run_host("spectral_right", **given, tiles=1, iterate=iterate)
    normal = {"normal": np.zeros(w.size), "normal_target": [0]}
    out = run_host("spectral_scale", **given, **normal, sigma=1, parts=1, iterate=iterate, cap=1e9)
    assert out["normal"].tolist() == pytest.approx(w.reshape(-1).tolist(), nan_ok=True)
    return out["vectors"].tolist(), out["sigma"][0]


def test_iteration_by_hand():
    # W^T u = (0, 6), v = (0, 1); W v = (0, 3, 4), u = (0, .6, .8); u^T W v = 5.
    vectors, sigma = power([[1, 0], [0, 3], [0, 4]], [0, 2, 0], [1, 0])
    assert vectors == np.float32([0, 0.6, 0.8, 0, 1]).tolist()
    assert sigma == pytest.approx(5, rel=1e-7)


def test_without_iterating_the_vectors_stay():
    vectors, sigma = power([[2, 0], [0, 3]], [0.6, 0.8], [0, 1], iterate=0)
    assert vectors == np.float32([0.6, 0.8, 0, 1]).tolist()
    assert sigma == pytest.approx(0.8 * 3, rel=1e-7)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_matrix_that_is_not_finite_leaves_its_vectors(bad):
    vectors, sigma = power([[1, 2], [bad, 4]], [0.6, 0.8], [0.8, 0.6])
    assert vectors == np.float32([0.6, 0.8, 0.8, 0.6]).tolist()
    assert not math.isfinite(sigma)


def test_a_matrix_of_zeros_leaves_its_vectors():
    vectors, sigma = power(np.zeros((2, 2)), [0.6, 0.8], [0.8, 0.6])
    assert vectors == np.float32([0.6, 0.8, 0.8, 0.6]).tolist()
    assert sigma == 0


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 1000))
def test_sigma_rises_to_the_largest_singular_value(rows, cols, seed):
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(rows, cols)).astype(np.float32)
    u, v = (x.astype(np.float32) for x in (rng.normal(size=rows), np.zeros(cols)))
    u /= np.linalg.norm(u)
    largest, before = np.linalg.norm(w.astype(np.float64), 2), 0.0
    for _ in range(30):
        step = power_iteration(w, u, v)
        u, v = step.u, step.v
        assert before * (1 - 1e-5) <= step.sigma <= largest * (1 + 1e-5)
        before = step.sigma
        assert np.linalg.norm(u) == pytest.approx(1, abs=1e-5)


def test_sigma_converges():
    rng = np.random.default_rng(3)
    left, _ = np.linalg.qr(rng.normal(size=(20, 8)))
    right, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    w = left @ np.diag([5, 3, 2, 2, 1, 1, 0.5, 0]) @ right.T
    u, v = np.full(20, 20**-0.5), np.zeros(8)
    errors = []
    for _ in range(30):
        step = power_iteration(w, u, v)
        u, v = step.u, step.v
        errors.append(abs(step.sigma - 5))
    assert errors[-1] < 1e-9
    assert errors[10] < errors[5] * (3 / 5) ** 15  # (3/5)^4 an iteration, once it is close


def test_gradient_against_central_differences():
    rng = np.random.default_rng(0)
    w, x, slope = rng.normal(size=(5, 4)), rng.normal(size=(7, 5)), rng.normal(size=(7, 4))
    step = power_iteration(w, rng.normal(size=5), np.zeros(4))
    u, v = step.u, step.v

    for cap in (0.5, 100.0):

        def loss(w, cap=cap):
            return (np.tanh(x @ (w / max(1.0, u @ w @ v / cap))) * slope).sum()

        sigma = u @ w @ v
        out = np.tanh(x @ (w / max(1.0, sigma / cap)))
        grad = x.T @ (slope * (1 - out**2))
        found = spectral_gradient(grad, float((grad * w).sum()), u, v, sigma, cap)
        h = 1e-6
        for at in np.ndindex(w.shape):
            shift = np.zeros_like(w)
            shift[at] = h
            assert found[at] == pytest.approx(
                (loss(w + shift) - loss(w - shift)) / (2 * h), abs=1e-7
            )


def network(cap=1.0, names=NAMES):
    layout = Layout(
        [
            *linear_tensors("a", 8, 40, real_in=5),
            *linear_tensors("b", 40, 3),
            *linear_tensors("c", 3, 3),
        ]
    )
    return layout, SpectralNorm(layout, names, cap=cap, seed=4)


def run_network(layout, part, ops, theta, **values):
    flat = [Buffer(n, (layout.size,), "f32") for n in ("theta", "theta_target", "grad")]
    buffers = (*part.buffers(), *part.state(lambda: layout.initial(0)), *flat)
    return run_ops(ops, buffers, {"theta": theta, "theta_target": theta, **values})


def test_both_networks_are_held_to_the_cap():
    layout, part = network()
    theta = (8 * layout.initial(0)).astype(np.float32)
    got = run_network(layout, part, part.learn_ops(), theta, theta_target=theta / 16)
    for name in NAMES:
        w = layout[name].values(theta)
        normal = layout[name].values(got["theta_normal"])
        assert np.linalg.norm(normal, 2) == pytest.approx(1, rel=0.02)
        np.testing.assert_allclose(normal, w / np.linalg.norm(w, 2), rtol=0.02)
        target = layout[name].values(got["theta_target_normal"])
        assert target.tolist() == (w / 16).tolist()  # below the cap: bit for bit
    assert not layout["c.weight"].values(got["theta_normal"]).any()
    assert got["theta"].tolist() == theta.tolist()


def test_acting_normalises_the_online_network_by_the_vectors_there_are():
    layout, part = network()
    theta = (8 * layout.initial(0)).astype(np.float32)
    got = run_network(layout, part, part.act_ops(), theta)
    kept = part.initial_vectors(layout.initial(0))
    assert got["spectral_vectors"].tolist() == kept.tolist()
    assert np.linalg.norm(layout["a.weight"].values(got["theta_normal"]), 2) < 1.02
    assert not got["theta_target_normal"].any()


def test_initial_vectors_are_near_the_singular_vectors():
    layout, part = network()
    vectors = part.initial_vectors(layout.initial(0))
    for matrix in part.matrices:
        u, v = matrix.uv(vectors)
        w = matrix.of(layout.initial(0))
        assert u @ w @ v == pytest.approx(np.linalg.norm(w, 2), rel=0.02)


@pytest.mark.parametrize("sigma", [math.nan, math.inf, -3.0])
def test_a_sigma_that_is_no_scale_normalises_nothing(sigma):
    table, values = [SpectralMatrix(0, 0, 1, 2, 0)], [3.0, math.nan]
    scaled = run_host(
        "spectral_scale",
        params=values,
        target=[0],
        table=table,
        vectors=[1, 0.6, 0.8],
        raw=[sigma, 0, 0],
        sigma=1,
        iterate=0,
        normal=[0, 0],
        normal_target=[0],
        count=1,
        parts=1,
        cap=1.0,
    )
    np.testing.assert_array_equal(scaled["sigma"], [sigma])
    np.testing.assert_array_equal(scaled["normal"], values)
    grad = run_host(
        "spectral_grad",
        grad=values,
        table=table,
        vectors=[1, 0.6, 0.8],
        sigma=[sigma],
        dots=[1],
        count=1,
        parts=1,
        cap=1.0,
    )
    np.testing.assert_array_equal(grad["grad"], values)


def test_a_step_against_pytorch():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    layout, part = network()
    theta = (8 * layout.initial(0)).astype(np.float32)
    start = np.zeros(part.initial_vectors(theta).shape, np.float32)
    rng = np.random.default_rng(1)
    grad = np.zeros(layout.size, np.float32)
    theirs = {}
    for name, matrix in zip(NAMES, part.matrices, strict=False):
        for vector in matrix.uv(start):
            drawn = rng.normal(size=vector.shape)
            vector[:] = drawn / np.linalg.norm(drawn)
        u, v = matrix.uv(start)
        # PyTorch's weight is the transpose of ours: its left vector is our right one.
        module = torch.nn.Linear(matrix.rows, matrix.cols, bias=False)
        module = torch.nn.utils.parametrizations.spectral_norm(module)
        with torch.no_grad():
            original = module.parametrizations.weight.original
            original.copy_(torch.tensor(layout[name].values(theta).T.copy()))
            module.parametrizations.weight[0]._u.copy_(torch.tensor(v.copy()))
            module.parametrizations.weight[0]._v.copy_(torch.tensor(u.copy()))
        module.train()
        weight = module.weight
        slope = rng.normal(size=(matrix.rows, matrix.cols)).astype(np.float32)
        (weight * torch.tensor(slope.T.copy())).sum().backward()
        layout[name].values(grad)[...] = slope
        theirs[name] = weight.detach().numpy().T, original.grad.numpy().T

    ops = (*part.learn_ops(), *part.grad_ops())
    got = run_network(layout, part, ops, theta, grad=grad, spectral_vectors=start)
    for name, (weight, slope) in theirs.items():
        ours = layout[name].values(got["theta_normal"])
        assert got["spectral_sigma"][NAMES.index(name)] > 1  # above the cap: the case is PyTorch's
        np.testing.assert_allclose(ours, weight, rtol=1e-4, atol=1e-6)
        ours = layout[name].values(got["grad"])
        np.testing.assert_allclose(ours, slope, rtol=1e-4, atol=1e-6)


def test_the_emitted_gradient_is_that_of_the_loss():
    layout, part = network()
    theta = (8 * layout.initial(0)).astype(np.float32)
    grad = np.random.default_rng(0).normal(size=layout.size).astype(np.float32)
    got = run_network(layout, part, (*part.learn_ops(), *part.grad_ops()), theta, grad=grad)
    for matrix in part.matrices[:2]:
        w, g = (matrix.of(x.astype(np.float64)) for x in (theta, grad))
        u, v = (x.astype(np.float64) for x in matrix.uv(got["spectral_vectors"]))
        sigma = u @ w @ v
        want = (g - (g * w).sum() / sigma * np.outer(u, v)) / sigma
        np.testing.assert_allclose(matrix.of(got["grad"]), want, rtol=1e-4, atol=1e-5)
    at = layout["c.weight"]
    assert at.values(got["grad"]).tolist() == at.values(grad).tolist()


@pytest.mark.parametrize(
    ("names", "cap", "message"),
    [
        (["a.bias"], 1.0, "'a.bias' is no matrix of the network; there are a.weight, b.weight"),
        (["d.weight"], 1.0, "'d.weight' is no matrix"),
        (["a.weight"], 0.0, "the spectral cap is 0.0; give one above 0"),
        (["a.weight"], math.nan, "give one above 0"),
    ],
)
def test_what_can_not_be_normalised(names, cap, message):
    with pytest.raises(ValueError, match=message):
        network(cap, names)
