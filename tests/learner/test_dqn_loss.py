"""TD targets, losses and gradients of the DQN head."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.learner.dqn_loss import dqn_terms, write_head_gradient
from onegraph.kernels.learner.heads import action_value, greedy_action

NAN, INF = math.nan, math.inf


def loss_of(head_tm1, head_target, *, head_select=None, actions=2, dueling=0, **given_values):
    n = len(head_tm1)
    values = {
        "action": [0] * n,
        "reward": [0] * n,
        "discount": [1] * n,
        "weight": [1] * n,
        "double_q": 0,
        "mse": 1,
        "delta": 1.0,
        "grad_head": np.zeros((n, actions + dueling)),
        **given_values,
    }
    out = run_host(
        "dqn_loss",
        head_tm1=head_tm1,
        head_select=head_target if head_select is None else head_select,
        head_target=head_target,
        td=n,
        loss=n,
        q_taken=n,
        n=n,
        actions=actions,
        dueling=dueling,
        **values,
    )
    out["grad_head"] = out["grad_head"].reshape(max(n, 1), -1)
    return out


@pytest.mark.parametrize(("double_q", "target"), [(0, 2), (1, 1)])
def test_dqn_takes_the_targets_best_and_double_dqn_the_onlines(double_q, target):
    out = loss_of([[0, 0]], [[1, 2]], head_select=[[5, 0]], double_q=double_q)
    assert out["td"].tolist() == [target]


@pytest.mark.parametrize(("discount", "target"), [(0.9, 10), (0, 1)])
def test_a_truncated_row_bootstraps_and_a_terminated_one_does_not(discount, target):
    out = loss_of([[0, 0]], [[10, 3]], reward=[1], discount=[discount])
    assert out["td"][0] == pytest.approx(target)


@pytest.mark.parametrize("next_q", [NAN, INF, -INF])
def test_a_terminal_row_never_sees_its_successor(next_q):
    out = loss_of([[0.5, 0]], [[next_q, next_q]], reward=[1], discount=[0])
    assert out["td"].tolist() == [0.5]


@pytest.mark.parametrize(
    ("td", "mse", "delta", "loss", "slope"),
    [
        (0.5, 0, 1.0, 0.125, 0.5),
        (1.0, 0, 1.0, 0.5, 1),
        (3.0, 0, 1.0, 2.5, 1),
        (-3.0, 0, 1.0, 2.5, -1),
        (-3.0, 0, 2.0, 4, -2),
        (3.0, 1, 1.0, 4.5, 3),
        (-3.0, 1, 1.0, 4.5, -3),
    ],
)
def test_huber_and_mse(td, mse, delta, loss, slope):
    # two rows of weight .5: the gradient is that of the mean
    out = loss_of(
        [[0, 7], [0, 7]], [[0, 0]] * 2, reward=[td] * 2, weight=[0.5] * 2, mse=mse, delta=delta
    )
    assert out["loss"].tolist() == [0.5 * loss] * 2
    assert out["grad_head"].tolist() == [[-0.5 * slope / 2, 0]] * 2


def test_dueling_value_and_gradient():
    # q(1) = 10 + 4 - (1 + 4 + 1) / 3 = 12
    out = loss_of(
        [[1, 4, 1, 10]],
        [[0, 0, 0, 0]],
        actions=3,
        dueling=1,
        action=[1],
        reward=[9],
        discount=[0],
        grad_head=np.full((1, 4), NAN),  # written whole: need not be zeroed
    )
    assert out["q_taken"].tolist() == [12]
    assert out["td"].tolist() == [-3]
    np.testing.assert_allclose(out["grad_head"], [[-1, 2, -1, 3]], rtol=1e-6)


def test_a_plain_head_touches_the_taken_action_alone():
    out = loss_of([[1, 2, 3]], [[0, 0, 0]], actions=3, action=[2], grad_head=[[7, 8, 9]])
    assert out["grad_head"].tolist() == [[7, 8, 3]]


@pytest.mark.parametrize("action", [-1, 2, 1000, -(2**31)])
@pytest.mark.parametrize("dueling", [0, 1])
def test_an_action_out_of_range_poisons_its_row_only(action, dueling):
    head = np.zeros((2, 2 + dueling))
    out = loss_of(head, head, dueling=dueling, action=[action, 0], reward=[1, 1])
    for name in ("td", "loss", "q_taken"):
        assert np.isnan(out[name][0])
        assert np.isfinite(out[name][1])
    assert np.isnan(out["grad_head"][0]).any()
    assert np.isfinite(out["grad_head"][1]).all()


@pytest.mark.parametrize(
    ("row", "best"),
    [([1, 3, 3], 1), ([NAN, 1, 0], 1), ([NAN, -INF, 2], 2), ([NAN, NAN, NAN], 0), ([-INF] * 3, 0)],
)
def test_greedy_action(row, best):
    assert greedy_action(np.array([[*row, 99]], np.float32), 3).tolist() == [best]


def test_a_nan_reward_is_seen_in_every_output():
    out = loss_of([[0, 0]], [[0, 0]], reward=[NAN], mse=0)
    assert np.isnan([out["td"][0], out["loss"][0], out["grad_head"][0, 0]]).all()


def test_an_empty_batch_writes_nothing():
    out = loss_of(np.zeros((0, 2)), np.zeros((0, 2)))
    assert np.isnan(out["td"]).all()


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=3, max_size=6),
    st.floats(-50, 50, width=32),
)
def test_dueling_values_average_to_the_state_value(advantages, value):
    actions = len(advantages)
    head = np.array([[*advantages, value]], np.float32)
    q = [action_value(head, np.array([a]), actions, 1)[0] for a in range(actions)]
    assert np.mean(q, dtype=np.float64) == pytest.approx(value, abs=1e-4)


class Mlp:
    """Linear, ReLU, Linear in float64, with its parameters in one flat vector."""

    def __init__(self, inputs, hidden, outputs, rng):
        self.shapes = [(inputs, hidden), (hidden,), (hidden, outputs), (outputs,)]
        self.flat = rng.normal(size=sum(map(math.prod, self.shapes)))

    def parts(self):
        sizes = np.cumsum([math.prod(s) for s in self.shapes])[:-1]
        return [p.reshape(s) for p, s in zip(np.split(self.flat, sizes), self.shapes, strict=True)]

    def forward(self, x):
        w1, b1, w2, b2 = self.parts()
        hidden = np.maximum(x @ w1 + b1, 0)
        return hidden, hidden @ w2 + b2

    def backward(self, x, hidden, grad_out):
        w2 = self.parts()[2]
        grad_hidden = (grad_out @ w2.T) * (hidden > 0)
        parts = [x.T @ grad_hidden, grad_hidden.sum(0), hidden.T @ grad_out, grad_out.sum(0)]
        return np.concatenate([p.ravel() for p in parts])


@pytest.mark.parametrize(
    ("mse", "dueling", "double_q"), list(itertools.product((0, 1), (0, 1), (0, 1)))
)
def test_gradient_against_central_differences(mse, dueling, double_q):
    rng = np.random.default_rng(100 * mse + 10 * dueling + double_q)
    batch, inputs, actions, delta = 24, 4, 3, 2.0
    online = Mlp(inputs, 6, actions + dueling, rng)
    target = Mlp(inputs, 6, actions + dueling, rng)
    s_tm1, s_t = rng.normal(size=(2, batch, inputs))
    action = rng.integers(actions, size=batch).astype(np.int32)
    reward, weight = rng.normal(size=batch) * 2, rng.uniform(0.2, 1, batch)
    discount = np.where(np.arange(batch) % 3, 0.9, 0.0)
    head_select, head_target = online.forward(s_t)[1], target.forward(s_t)[1]

    def terms():
        return dqn_terms(
            online.forward(s_tm1)[1],
            head_select,  # held: the target is a constant of the semi-gradient
            head_target,
            action,
            reward,
            discount,
            weight,
            actions=actions,
            dueling=dueling,
            double_q=double_q,
            mse=mse,
            delta=delta,
        )

    size = np.abs(terms().td)
    assert (size > delta).any(), "the Huber tail must be in the test"
    assert (size < delta).any()
    hidden, head = online.forward(s_tm1)
    grad_head = np.zeros_like(head)
    write_head_gradient(grad_head, terms().grad_q, action, actions=actions, dueling=dueling)
    analytic = online.backward(s_tm1, hidden, grad_head)

    numeric = np.empty_like(online.flat)
    step = 1e-6
    for i, value in enumerate(online.flat.copy()):
        online.flat[i] = value + step
        above = terms().loss.mean()
        online.flat[i] = value - step
        below = terms().loss.mean()
        online.flat[i] = value
        numeric[i] = (above - below) / (2 * step)
    np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-8)
