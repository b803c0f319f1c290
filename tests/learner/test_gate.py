"""The selectivity gate and its gradients."""

import math

import numpy as np
import pytest
from central_differences import numeric_gradient
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.learner.gate_backward import gate_gradients
from onegraph.kernels.learner.gate_forward import gated, row_parts
from onegraph.kernels.learner.sigmoid import sigmoid64
from onegraph.stages.program import Launch
from onegraph.trainer.bench import BenchSubject, named_size
from onegraph.trainer.program import DqnPrograms

NAN, INF = math.nan, math.inf
LOG3 = math.log(3)


def forward(x, logit, width):
    rows, cols = np.shape(x)
    out = run_host(
        "gate_forward",
        x=x,
        logit=logit,
        out=rows * cols,
        rows=rows,
        cols=cols,
        width=width,
        parts=row_parts(rows),
    )["out"]
    return out.reshape(rows, cols)


def backward(x, logit, grad_out, width, *, l1=0.0, with_grad_in=1):
    rows, cols = np.shape(x)
    out = run_host(
        "gate_backward",
        x=x,
        logit=logit,
        grad_out=grad_out,
        grad_logit=cols,
        grad_in=rows * cols,
        rows=rows,
        cols=cols,
        width=width,
        l1=l1,
        with_grad_in=with_grad_in,
    )
    return out["grad_logit"], out["grad_in"][: rows * cols].reshape(rows, cols)


def test_features_are_scaled_by_their_sigmoids():
    # sigmoid(log 3) = 3/4, sigmoid(-log 3) = 1/4
    out = forward([[8, 8, 8], [-4, 0, 4]], [0, LOG3, -LOG3], 3)
    np.testing.assert_allclose(out, [[4, 6, 2], [-2, 0, 1]], rtol=1e-6)


def test_the_padding_is_zero_whatever_stands_there():
    assert forward([[8, NAN]], [0, NAN], 1).tolist() == [[4, 0]]
    grad_logit, grad_in = backward([[8, NAN]], [0, NAN], [[1, NAN]], 1, l1=1.0)
    assert grad_logit.tolist() == [0.25 * (8 + 1), 0]
    assert grad_in.tolist() == [[0.5, 0]]


@pytest.mark.parametrize(
    ("logit", "value"), [(-800, 0), (-INF, 0), (0, 0.5), (800, 1), (INF, 1), (NAN, NAN)]
)
def test_the_sigmoid_far_out(logit, value):
    np.testing.assert_equal(sigmoid64(logit)[0], value)
    assert np.isnan(value) or sigmoid64(logit)[1] == (0.25 if logit == 0 else 0)


def test_gradients_and_the_penalty_by_hand():
    # slope 1/4 at 0, 3/16 at log 3; sum of g x: 2 + 3 and 0 - 1
    x, g = [[2, 1], [1, 1]], [[1, 0], [3, -1]]
    grad_logit, grad_in = backward(x, [0, LOG3], g, 2)
    np.testing.assert_allclose(grad_logit, [5 / 4, -3 / 16], rtol=1e-6)
    np.testing.assert_allclose(grad_in, [[1 / 2, 0], [3 / 2, -3 / 4]], rtol=1e-6)
    penalised = backward(x, [0, LOG3], g, 2, l1=0.8)[0]
    np.testing.assert_allclose(penalised - grad_logit, [0.8 / 4, 0.8 * 3 / 16], rtol=1e-5)


def test_the_gradient_in_the_input_is_written_only_where_asked():
    grad_in = backward([[1, 2]], [0, 0], [[1, 1]], 2, with_grad_in=0)[1]
    assert np.isnan(grad_in).all()


def test_nan_stays_in_its_column():
    x = np.ones((40, 3))
    x[7, 1] = NAN
    grad_logit, grad_in = backward(x, np.zeros(3), np.ones((40, 3)), 3)
    assert np.isnan(grad_logit).tolist() == [False, True, False]
    assert np.isfinite(grad_in).all()


def test_an_empty_batch_leaves_the_penalty():
    grad_logit, _ = backward(np.zeros((0, 2)), [0, 0], np.zeros((0, 2)), 2, l1=4.0)
    assert grad_logit.tolist() == [1, 1]


def test_gradient_against_central_differences():
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(2, 11, 5))
    logit, l1 = rng.normal(size=5), 0.3

    def loss():
        return float((gated(x, logit) * weight).sum() + l1 * sigmoid64(logit)[0].sum())

    grad_logit, grad_in = gate_gradients(x, logit, weight, l1)
    np.testing.assert_allclose(grad_logit, numeric_gradient(loss, logit), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(grad_in, numeric_gradient(loss, x), rtol=1e-7, atol=1e-9)


@given(st.floats(-20, 20, width=32), st.floats(-1e6, 1e6, width=32))
def test_a_gate_never_enlarges(logit, value):
    out = forward([[value]], [logit], 1)[0, 0]
    assert abs(out) <= abs(value)
    assert out == 0 or np.sign(out) == np.sign(value)


def test_the_penalty_counts_once_among_the_passes_of_a_step():
    """The denoising pass shares the gate, but its loss has no penalty."""
    subject = BenchSubject(
        named_size("FULL"),
        {"replay.capacity": 1024, "network.gate_l1": 0.25, "learn.batch_size": 8},
    )
    learn = DqnPrograms(subject.shapes, subject.environment).learn()
    penalties = {
        op.args["grad_logit"].buffer: op.args["l1"]
        for _, op, _ in learn.all_ops()
        if isinstance(op, Launch) and op.kernel == "gate_backward"
    }
    assert penalties == {"grad": 0.25, "grad_vaccine": 0.25, "grad_aux": 0.0}
