"""Layer normalisation and its gradients."""

import math

import numpy as np
import pytest
from central_differences import numeric_gradient
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pair_runs import run_host

from onegraph.kernels.learner.layer_norm import normalised
from onegraph.kernels.learner.layer_norm_grad import layer_norm_gradients, tile_count

NAN, INF = math.nan, math.inf


def norm(x, scale=None, shift=None, eps=1e-5):
    x = np.asarray(x, np.float32)
    rows, cols = x.shape
    out = run_host(
        "layer_norm",
        x=x,
        scale=np.ones(cols) if scale is None else scale,
        shift=np.zeros(cols) if shift is None else shift,
        out=rows * cols,
        mean=rows,
        rstd=rows,
        rows=rows,
        cols=cols,
        eps=eps,
    )
    return out["out"][: rows * cols].reshape(rows, cols), out["mean"], out["rstd"]


def norm_grad(
    x, grad_out, scale=None, residual=None, *, after_relu=0, depth=None, eps=1e-5, **kept
):
    x = np.asarray(x, np.float32)
    rows, cols = x.shape
    _, mean, rstd = norm(x, eps=eps)
    out = run_host(
        "layer_norm_grad",
        **{"x": x, "mean": mean, "rstd": rstd, **kept},
        scale=np.ones(cols) if scale is None else scale,
        grad_out=grad_out,
        residual=[NAN] if residual is None else residual,
        depth=[NAN] if depth is None else [depth],
        grad_in=rows * cols,
        grad_branch=rows * cols,
        grad_scale=cols,
        grad_shift=cols,
        rows=rows,
        cols=cols,
        tiles=tile_count(rows, cols),
        with_residual=int(residual is not None),
        after_relu=after_relu,
        with_branch=int(depth is not None),
    )
    grad_in = out["grad_in"][: rows * cols].reshape(rows, cols)
    if depth is not None:
        return grad_in, out["grad_branch"][: rows * cols].reshape(rows, cols)
    assert np.isnan(out["grad_branch"]).all()  # as it was
    return grad_in, out["grad_scale"], out["grad_shift"]


def test_a_row_by_hand():
    # mean 3, variance (4 + 0 + 4 + 0) / 4 = 2; with eps 2, a deviation of 2
    out, mean, rstd = norm([[1, 3, 5, 3]], [1, 2, 3, 4], [0, 0, 0, 7], eps=2.0)
    assert (mean[0], rstd[0]) == (3, 0.5)
    assert out.tolist() == [[-1, 0, 3, 7]]


def test_a_constant_row_gives_the_shift():
    out, _, rstd = norm(np.full((1, 5), 3.0), shift=[1, 2, 3, 4, 5])
    assert out.tolist() == [[1, 2, 3, 4, 5]]
    assert rstd[0] == pytest.approx(1e-5**-0.5)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_row_that_is_not_finite_spoils_itself_alone(bad):
    x = np.random.default_rng(0).normal(size=(3, 40))
    x[1, 39] = bad
    out = norm(x)[0]
    assert np.isnan(out[1]).all()
    assert np.isfinite(out[[0, 2]]).all()


def test_a_sum_that_overflows_gives_nan():
    assert np.isnan(norm(np.full((1, 4), 3e38))[0]).all()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_nothing_in_nothing_out(shape):
    assert norm(np.zeros(shape))[0].shape == shape
    grad_in, grad_scale, grad_shift = norm_grad(np.zeros(shape), np.zeros(shape))
    assert grad_in.shape == shape
    assert not grad_scale[: shape[1]].any()
    assert not grad_shift[: shape[1]].any()


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.integers(8, 70)),
        elements=st.floats(-100, 100, width=32),
    )
)
def test_rows_come_out_with_mean_zero_and_variance_at_most_one(x):
    out = norm(x)[0].astype(np.float64)
    assert np.abs(out.mean(axis=1)).max() < 1e-2
    assert out.var(axis=1).max() < 1.001


def test_gradients_by_hand():
    # x = -1, 1 with eps 3: mean 0, rstd 1/2, h = -1/2, 1/2. g = 0, 4:
    # mean(g) = 2, mean(g h) = 1; grad_in = 1/2 (g - 2 - h) = 1/2 (-1.5, 1.5)
    grad_in, grad_scale, grad_shift = norm_grad([[-1, 1]], [[0, 4]], eps=3.0)
    assert grad_in.tolist() == [[-0.75, 0.75]]
    assert grad_scale.tolist() == [0, 2]
    assert grad_shift.tolist() == [0, 4]
    skipped = norm_grad([[-1, 1]], [[0, 4]], residual=[[10, 20]], eps=3.0)[0]
    assert skipped.tolist() == [[9.25, 20.75]]
    masked = norm_grad([[-1, 1]], [[0, 4]], residual=[[10, 20]], after_relu=1, eps=3.0)[0]
    assert masked.tolist() == [[0, 20.75]]


def test_the_branch_of_the_block_before_gets_its_share():
    """As `scaled_add_grad` has it: what the forward pass left out learns nothing, not even NaN."""
    given = [[-1, 1]], [[0, 4]]
    for after_relu, want in ((0, [[-0.75, 0.75]]), (1, [[0, 0.75]])):
        grad_in, branch = norm_grad(*given, after_relu=after_relu, depth=4, eps=3.0)
        assert grad_in.tolist() == want
        assert branch.tolist() == [[4 * g for g in want[0]]]
    spoilt, branch = norm_grad(given[0], [[0, NAN]], depth=0)
    assert np.isnan(spoilt).all()
    assert branch.tolist() == [[0, 0]]


@pytest.mark.parametrize(("rows", "cols"), [(0, 5), (5, 0), (1, 1), (9, 33), (3, 300)])
@pytest.mark.parametrize(("scaled", "depth"), [(0, NAN), (1, 1.25), (1, 0.0)])
def test_a_sum_and_its_norm_have_the_bits_of_both(rows, cols, scaled, depth):
    rng = np.random.default_rng(rows + cols)
    a, b = rng.normal(size=(2, rows, cols)).astype(np.float32)
    scale, shift = rng.normal(size=(2, cols)).astype(np.float32)
    if a.size > 1:
        b.reshape(-1)[-1] = NAN
    n = rows * cols
    total = run_host("scaled_add", a=a, b=b, scale=[depth], out=n, n=n, scaled=scaled)["out"]
    want = norm(total[:n].reshape(rows, cols), scale, shift)
    got = run_host(
        "add_norm",
        a=a,
        b=b,
        depth=[depth],
        scale=scale,
        shift=shift,
        eps=1e-5,
        total=n,
        out=n,
        mean=rows,
        rstd=rows,
        rows=rows,
        cols=cols,
        scaled=scaled,
    )
    np.testing.assert_array_equal(got["total"], total)
    np.testing.assert_array_equal(got["out"][:n].reshape(rows, cols), want[0])
    np.testing.assert_array_equal(got["mean"], want[1])
    np.testing.assert_array_equal(got["rstd"], want[2])


def test_a_sum_and_its_norm_by_hand():
    """3 + 2 x -1 and 1 + 2 x 2: 1 and 5, with mean 3 and a deviation of 2."""
    got = run_host(
        "add_norm",
        a=[3, 1],
        b=[-1, 2],
        depth=[2],
        scale=[1, 10],
        shift=[0, 7],
        eps=1e-12,
        total=2,
        out=2,
        mean=1,
        rstd=1,
        rows=1,
        cols=2,
        scaled=1,
    )
    assert got["total"].tolist() == [1, 5]
    assert (got["mean"][0], got["rstd"][0]) == (3, 0.5)
    assert got["out"].tolist() == [-1, 17]


def test_tiles_that_do_not_fit_are_refused():
    names = ("x", "mean", "rstd", "scale", "grad_out", "residual", "depth")
    with pytest.raises(ValueError, match="3 tiles"):
        run_host(
            "layer_norm_grad",
            **dict.fromkeys(names, np.zeros(1)),
            **dict.fromkeys(("grad_in", "grad_branch", "grad_scale", "grad_shift"), 1),
            with_branch=0,
            rows=1,
            cols=1,
            tiles=3,
            with_residual=0,
            after_relu=0,
        )


def test_gradient_against_central_differences():
    rng = np.random.default_rng(1)
    x, weight = rng.normal(size=(2, 5, 37)) * 2
    scale, shift = rng.normal(size=(2, 37))
    eps = 1e-3

    def loss():
        return float((normalised(x, scale, shift, eps)[0] * weight).sum())

    _, mean, rstd = normalised(x, scale, shift, eps)
    got = layer_norm_gradients(x, mean, rstd, scale, weight)
    for gradient, array in zip(got, (x, scale, shift), strict=True):
        want = numeric_gradient(loss, array)
        np.testing.assert_allclose(gradient, want, rtol=1e-6, atol=1e-7)


@given(st.integers(0, 2**32 - 1))
def test_the_gradient_sees_no_shift_and_no_stretch_of_a_row(seed):
    """The output does not change along either, so that the gradient is at right angles to both."""
    rng = np.random.default_rng(seed)
    x, g = rng.normal(size=(2, 4, 33)).astype(np.float32)
    grad_in = norm_grad(x, g, eps=1e-12)[0].astype(np.float64)
    assert np.abs(grad_in.sum(axis=1)).max() < 1e-4
    assert np.abs((grad_in * x).sum(axis=1)).max() < 1e-4


@pytest.mark.parametrize("cols", [8, 33, 256])
def test_as_pytorch_has_it(cols):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    rng = np.random.default_rng(cols)
    x, g = (rng.normal(size=(2, 50, cols)) * 3).astype(np.float32)
    scale, shift = rng.normal(size=(2, cols)).astype(np.float32)
    tensors = [torch.tensor(v, requires_grad=True) for v in (x, scale, shift)]
    want = torch.nn.functional.layer_norm(tensors[0], (cols,), *tensors[1:], eps=1e-5)
    want.backward(torch.tensor(g))
    np.testing.assert_allclose(norm(x, scale, shift)[0], want.detach(), rtol=1e-4, atol=1e-5)
    for got, tensor in zip(norm_grad(x, g, scale), tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad, rtol=1e-4, atol=1e-4)
