"""Attention among the tokens of a row, and its gradient."""

import math

import numpy as np
import pytest
from central_differences import numeric_gradient
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.learner.attention_core import attention
from onegraph.kernels.learner.attention_core_grad import attention_gradient

NAN, INF = math.nan, math.inf


def core(qkv, heads=1, scale=1.0):
    qkv = np.asarray(qkv, np.float32)
    rows, groups, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    out = run_host(
        "attention_core",
        qkv=qkv,
        out=rows * groups * width,
        prob=rows * heads * groups * groups,
        rows=rows,
        groups=groups,
        width=width,
        heads=heads,
        scale=scale,
    )
    n = rows * groups * width
    prob = out["prob"][: n // width * heads * groups] if n else np.zeros(0, np.float32)
    return out["out"][:n].reshape(rows, groups, width), prob.reshape(rows, heads, groups, groups)


def core_grad(qkv, grad_out, heads=1, scale=1.0):
    qkv = np.asarray(qkv, np.float32)
    rows, groups, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    out = run_host(
        "attention_core_grad",
        qkv=qkv,
        prob=core(qkv, heads, scale)[1],
        grad_out=grad_out,
        slope=rows * heads * groups * groups,
        grad_qkv=qkv.size,
        rows=rows,
        groups=groups,
        width=width,
        heads=heads,
        scale=scale,
    )
    return out["grad_qkv"][: qkv.size].reshape(qkv.shape)


def test_two_tokens_by_hand():
    # scores of token 0: 0 and log 3; of token 1, whose query is 0: 0 and 0
    log3 = math.log(3)
    out, prob = core([[[1, 0, 4], [0, log3, 8]]])
    np.testing.assert_allclose(prob, [[[[1 / 4, 3 / 4], [1 / 2, 1 / 2]]]], rtol=1e-6)
    np.testing.assert_allclose(out, [[[7], [6]]], rtol=1e-6)
    # a scale of 0 makes them all alike
    assert core([[[1, 0, 4], [0, log3, 8]]], scale=0.0)[0].tolist() == [[[6], [6]]]


def test_gradient_of_two_tokens_by_hand():
    # prob 1/2 throughout. g = 1 at token 0: grad_v = 1/2, 1/2; of_prob = 4, 8; mix 6;
    # slope = -1, 1; grad_q0 = -k0 + k1 = 2; grad_k = -q0, q0
    qkv = [[[0, 1, 4], [0, 3, 8]]]
    assert core_grad(qkv, [[[1], [0]]]).tolist() == [[[2, 0, 0.5], [0, 0, 0.5]]]
    qkv = [[[5, 1, 4], [0, 1, 8]]]
    assert core_grad(qkv, [[[1], [0]]]).tolist() == [[[0, -5, 0.5], [0, 5, 0.5]]]


def test_a_single_token_gives_its_value():
    qkv = np.arange(12).reshape(1, 1, 12)
    assert core(qkv, heads=2)[0].tolist() == [[[8, 9, 10, 11]]]
    assert core_grad(qkv, np.ones((1, 1, 4)), heads=2).tolist() == [[[0] * 8 + [1] * 4]]


def test_large_scores_do_not_overflow():
    qkv = np.zeros((1, 2, 3))
    qkv[0, :, 0], qkv[0, :, 1], qkv[0, :, 2] = 1e4, (1, -1), (3, 5)
    assert core(qkv)[0].tolist() == [[[3], [3]]]


@pytest.mark.parametrize(
    ("score", "probability"),
    [(NAN, [NAN, NAN]), (INF, [NAN, NAN]), (-INF, [1, 0])],
)
def test_scores_that_are_not_finite(score, probability):
    # query 0 of value 1 meets keys 0 and `score`; row 1 is sound
    qkv = np.zeros((2, 2, 3))
    qkv[:, 0, 0], qkv[0, 1, 1] = 1, score
    prob = core(qkv)[1]
    np.testing.assert_array_equal(prob[0, 0, 0], probability)
    assert (prob[1] == 0.5).all()


def test_heads_do_not_see_each_other():
    rng = np.random.default_rng(0)
    qkv = rng.normal(size=(3, 5, 3, 2, 4))  # two heads of width 4
    both = core(qkv.reshape(3, 5, 24), heads=2)[0].reshape(3, 5, 2, 4)
    for head in range(2):
        alone = core(qkv[..., head, :].reshape(3, 5, 12))[0]
        np.testing.assert_array_equal(both[:, :, head], alone)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_tokens_in_another_order_give_the_results_in_that_order(seed, groups):
    rng = np.random.default_rng(seed)
    qkv, order = rng.normal(size=(2, groups, 12)), rng.permutation(groups)
    out, prob = core(qkv, heads=2)
    np.testing.assert_allclose(prob.sum(axis=3), 1, rtol=1e-5)
    np.testing.assert_allclose(core(qkv[:, order], heads=2)[0], out[:, order], atol=1e-5)


def test_an_empty_batch():
    assert core(np.zeros((0, 4, 24)), heads=2)[0].shape == (0, 4, 8)
    assert core_grad(np.zeros((0, 4, 24)), np.zeros((0, 4, 8)), heads=2).shape == (0, 4, 24)


def test_too_many_tokens_are_refused():
    with pytest.raises(ValueError, match="65 tokens"):
        core(np.zeros((1, 65, 3)))


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_gradient_against_central_differences(heads):
    rng = np.random.default_rng(heads)
    qkv, weight = rng.normal(size=(2, 4, 18)), rng.normal(size=(2, 4, 6))
    scale = 0.6

    def loss():
        return float((attention(qkv, heads, scale)[0] * weight).sum())

    got, _ = attention_gradient(qkv, attention(qkv, heads, scale)[1], weight, heads, scale)
    np.testing.assert_allclose(got, numeric_gradient(loss, qkv), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("groups", "width", "heads"), [(8, 32, 4), (5, 6, 3), (64, 4, 1)])
def test_as_pytorch_has_it(groups, width, heads):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    rng = np.random.default_rng(groups)
    qkv = rng.normal(size=(7, groups, 3 * width)).astype(np.float32)
    g = rng.normal(size=(7, groups, width)).astype(np.float32)
    tensor = torch.tensor(qkv, requires_grad=True)
    parts = [
        part.reshape(7, groups, heads, width // heads).transpose(1, 2)
        for part in tensor.split(width, dim=2)
    ]
    want = torch.nn.functional.scaled_dot_product_attention(*parts)
    want = want.transpose(1, 2).reshape(7, groups, width)
    want.backward(torch.tensor(g))
    scale = (width // heads) ** -0.5
    np.testing.assert_allclose(core(qkv, heads, scale)[0], want.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(core_grad(qkv, g, heads, scale), tensor.grad, rtol=1e-3, atol=1e-5)
