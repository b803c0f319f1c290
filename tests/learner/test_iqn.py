"""Quantile levels, embeddings, losses, values and readiness of the IQN head."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.kernels.learner.advance_counters import COLLECT, LEARN
from onegraph.kernels.learner.dqn_loss import write_head_gradient
from onegraph.kernels.learner.iqn_cosines import TauUse, quantile_levels
from onegraph.kernels.learner.iqn_loss import iqn_terms, quantile_huber_terms
from onegraph.kernels.learner.iqn_mix_grad import mix_gradients
from onegraph.kernels.learner.iqn_readiness import initial_readiness
from onegraph.kernels.learner.warp_sum import warp_sum

NAN, INF = math.nan, math.inf


# -------------------------------------------------------------------- levels and cosines


def levels_of(n, *, rng=1, collect=0, frequencies=1, program=LEARN, use=0, seed=3):
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG], counters[Counter.COLLECT] = rng, collect
    out = run_host(
        "iqn_cosines",
        tau=n,
        cosines=n * frequencies,
        counters=counters,
        n=n,
        frequencies=frequencies,
        program=program,
        use=use,
        seed=seed,
    )
    return out["tau"], out["cosines"].reshape(-1, frequencies)


def test_levels_are_uniform_and_inside_the_unit_interval():
    tau, _ = levels_of(100_000)
    assert 0 < tau.min() < 1e-4
    assert 1 - 1e-4 < tau.max() < 1
    counts = np.bincount((tau * 20).astype(int), minlength=20)
    assert np.sum((counts - 5000) ** 2 / 5000) < 43.8  # chi-square, 19 degrees, p = .001


def test_passes_steps_and_programs_draw_apart():
    drawn = [
        levels_of(64, rng=step, collect=50 + step, program=program, use=use)[0]
        for step, program, use in itertools.product((1, 2), (LEARN, COLLECT), TauUse)
    ]
    assert len({values.tobytes() for values in drawn}) == len(drawn)
    for one, other in itertools.combinations(drawn, 2):
        assert not np.intersect1d(one, other).size


@pytest.mark.parametrize(("program", "step"), [(LEARN, 7), (COLLECT, 11)])
def test_which_counter_numbers_the_step(program, step):
    tau, _ = levels_of(5, rng=8, collect=11, program=program, use=TauUse.TARGET)
    assert tau.tolist() == quantile_levels(3, 5, step, TauUse.TARGET).tolist()


def test_a_level_depends_on_its_place_alone():
    assert levels_of(1000)[0][:7].tolist() == levels_of(7)[0].tolist()


def test_cosines_of_the_levels():
    tau, cosines = levels_of(300, frequencies=64)
    expected = np.cos(np.pi * np.arange(64) * tau.astype(np.float64)[:, None])
    np.testing.assert_allclose(cosines, expected, atol=2.0**-24)
    assert (cosines[:, 0] == 1).all()


# -------------------------------------------------------------------- products


def test_product_of_features_and_embeddings():
    out = run_host(
        "iqn_mix",
        features=[[1, 2], [3, NAN]],
        phi=[[1, 1], [-3, 5], [2, 1], [4, -1]],
        z=8,
        rows=2,
        quantiles=2,
        hidden=2,
    )
    np.testing.assert_array_equal(out["z"], [1, 2, 0, 10, 6, NAN, 12, NAN])


@pytest.mark.parametrize(
    ("add", "depth", "features", "branch"),
    [
        (0, NAN, [9, 44], [NAN, NAN]),
        (1, NAN, [109, 244], [NAN, NAN]),
        (1, 0.5, [109, 244], [54.5, 122]),
        (0, 0.0, [9, 44], [0, 0]),
    ],
)
def test_gradient_of_the_product(add, depth, features, branch):
    out = run_host(
        "iqn_mix_grad",
        features=[[2, 3]],
        phi=[[1, -5], [4, 11]],
        grad_z=[[1, 7], [2, 4]],
        grad_phi=4,
        grad_features=[100, 200],
        depth=[depth],
        grad_branch=2,
        with_branch=int(not math.isnan(depth)),
        rows=1,
        quantiles=2,
        hidden=2,
        add=add,
    )
    np.testing.assert_array_equal(out["grad_branch"], branch)  # as it was, if it is not asked for
    assert out["grad_phi"].tolist() == [2, 0, 4, 12]  # 7 * 3 stops at the ReLU
    assert out["grad_features"].tolist() == features


def test_gradient_of_the_embedding_against_central_differences():
    rng = np.random.default_rng(0)
    rows, quantiles, hidden = 3, 5, 4
    features = rng.normal(size=(rows, hidden))
    before = rng.normal(size=(rows, quantiles, hidden))  # the ReLU
    pull = rng.normal(size=before.shape)

    def objective():
        return float((pull * (features[:, None] * np.maximum(before, 0))).sum())

    d_phi, d_features = mix_gradients(features, before, pull)
    for values, analytic in ((before, d_phi), (features, d_features)):
        np.testing.assert_allclose(
            analytic, central_differences(values, objective), rtol=1e-6, atol=1e-8
        )


def central_differences(values, objective, step=1e-6):
    numeric = np.empty_like(values)
    for index in np.ndindex(values.shape):
        value = values[index]
        values[index] = value + step
        above = objective()
        values[index] = value - step
        below = objective()
        values[index] = value
        numeric[index] = (above - below) / (2 * step)
    return numeric


# -------------------------------------------------------------------- loss


def loss_of(theta, targets, *, tau=None, select=None, actions=2, dueling=0, **given_values):
    """The kernel on heads [B, Q, A + d] and [B, Q', A + d]."""
    theta, targets = np.asarray(theta, np.float32), np.asarray(targets, np.float32)
    n, quantiles, stride = theta.shape
    values = {
        "action": [0] * n,
        "reward": [0] * n,
        "discount": [1] * n,
        "weight": [1] * n,
        "kappa": 1.0,
        **given_values,
    }
    out = run_host(
        "iqn_loss",
        head_tm1=theta,
        tau=np.full((n, quantiles), 0.5) if tau is None else tau,
        head_target=targets,
        head_select=np.zeros((n, stride)) if select is None else select,
        td=n,
        loss=n,
        q_taken=n,
        grad_head=theta.size,
        n=n,
        quantiles=quantiles,
        target_quantiles=targets.shape[1],
        actions=actions,
        dueling=dueling,
        **values,
    )
    out["grad_head"] = out["grad_head"][: theta.size].reshape(theta.shape)
    return out


@pytest.mark.parametrize(
    ("delta", "loss", "slopes"),
    [  # levels .25 and .75, kappa 1: the loss is rho(.25) + rho(.75) = huber
        (0.5, 0.125, [0.125, 0.375]),
        (2.0, 1.5, [0.25, 0.75]),
        (-2.0, 1.5, [-0.75, -0.25]),
        (0.0, 0, [0, 0]),
    ],
)
def test_quantile_huber_of_one_target(delta, loss, slopes):
    out = loss_of(
        [[[3, 9], [3, 9]]], [[[0, 0]]], tau=[[0.25, 0.75]], reward=[3 + delta], discount=[0]
    )
    assert out["td"].tolist() == [delta]
    assert out["loss"].tolist() == [loss]
    assert out["q_taken"].tolist() == [3]
    assert out["grad_head"].tolist() == [[[-slopes[0], 0], [-slopes[1], 0]]]


@pytest.mark.parametrize("kappa", [1.0, 0.25])
def test_quantile_huber_against_the_loop_of_the_paper(kappa):
    rng = np.random.default_rng(1)
    batch, n, n_t = 3, 4, 5
    theta, targets = rng.normal(size=(batch, n)), rng.normal(size=(batch, n_t)) * 2
    tau, weight = rng.uniform(size=(batch, n)), rng.uniform(size=batch)
    losses, slopes = np.zeros(batch), np.zeros((batch, n))
    for b in range(batch):
        for i in range(n):
            for j in range(n_t):
                delta = targets[b, j] - theta[b, i]
                side = abs(tau[b, i] - (1.0 if delta < 0 else 0.0))
                if abs(delta) <= kappa:
                    losses[b] += side * 0.5 * delta**2 / kappa / n_t
                    slopes[b, i] -= side * delta / kappa / n_t
                else:
                    losses[b] += side * (abs(delta) - 0.5 * kappa) / n_t
                    slopes[b, i] -= side * math.copysign(1, delta) / n_t
    weighted = weight[:, None] * slopes / batch
    terms = quantile_huber_terms(theta, tau, targets, weight, kappa)
    np.testing.assert_allclose(terms.loss, weight * losses, rtol=1e-12)
    np.testing.assert_allclose(terms.grad_theta, weighted, rtol=1e-12)

    single = theta.astype(np.float32)[:, :, None], targets.astype(np.float32)[:, :, None]
    out = loss_of(*single, tau=tau, actions=1, weight=weight, kappa=kappa)
    np.testing.assert_allclose(out["loss"], weight * losses, rtol=1e-5)
    np.testing.assert_allclose(out["grad_head"][:, :, 0], weighted, rtol=1e-4, atol=1e-7)


def test_the_target_is_that_of_the_selected_action_in_each_quantile():
    targets = [[[1, 10], [2, 20], [3, 30]]]
    for select, mean in (([[5, 0]], 2), ([[0, 5]], 20), ([[NAN, 0]], 20)):
        out = loss_of([[[0, 0]]], targets, select=select, reward=[1], discount=[0.5], action=[1])
        assert out["td"].tolist() == [1 + 0.5 * mean]


def test_dueling_quantiles_and_their_gradient():
    # theta = 10 + 4 - (1 + 4 + 1) / 3 = 12, target 13 + (1 - 2): delta -1 at level .5
    out = loss_of(
        [[[1, 4, 1, 10]]],
        [[[3, 1, 2, 13]]],
        select=[[0, 1, 0, 0]],
        actions=3,
        dueling=1,
        action=[1],
        discount=[1],
        reward=[-1],
    )
    assert out["q_taken"].tolist() == [12]
    assert out["td"].tolist() == [-1]
    assert out["loss"].tolist() == [0.25]
    np.testing.assert_allclose(
        out["grad_head"][0, 0], np.array([-1, 2, -1, 3]) / 3 * 0.5, rtol=1e-6
    )


@pytest.mark.parametrize("successor", [NAN, INF, -INF])
def test_a_terminal_row_never_sees_its_successor(successor):
    out = loss_of([[[0.5, 0]]], [[[successor] * 2]], reward=[1], discount=[0])
    assert out["td"].tolist() == [0.5]
    assert np.isfinite(out["loss"]).all()


@pytest.mark.parametrize("action", [-1, 2, 1000, -(2**31)])
@pytest.mark.parametrize("dueling", [0, 1])
def test_an_action_out_of_range_poisons_its_row_only(action, dueling):
    head = np.zeros((2, 3, 2 + dueling))
    out = loss_of(head, head, dueling=dueling, action=[action, 0], reward=[1, 1])
    for name in ("td", "loss", "q_taken"):
        assert np.isnan(out[name][0])
        assert np.isfinite(out[name][1])
    assert np.isnan(out["grad_head"][0]).any(axis=1).all()
    assert np.isfinite(out["grad_head"][1]).all()


def test_a_nan_reward_is_seen_in_every_output():
    out = loss_of([[[0, 0]] * 2], [[[0, 0]]], reward=[NAN])
    assert np.isnan([out["td"][0], out["loss"][0], *out["grad_head"][0, :, 0]]).all()


def test_an_infinite_target_gives_bounded_slopes():
    out = loss_of([[[0, 0]]], [[[INF, 0]]], tau=[[0.25]])
    assert out["td"].tolist() == out["loss"].tolist() == [INF]
    assert out["grad_head"].ravel().tolist() == [-0.25, 0]


def test_an_empty_batch_writes_nothing():
    out = loss_of(np.zeros((0, 3, 2)), np.zeros((0, 4, 2)))
    assert np.isnan(out["td"]).all()


@pytest.mark.parametrize("dueling", [0, 1])
def test_gradient_of_the_heads_against_central_differences(dueling):
    rng = np.random.default_rng(5 + dueling)
    batch, quantiles, samples, actions, kappa = 6, 4, 5, 3, 0.8
    stride = actions + dueling
    head = rng.normal(size=(batch, quantiles, stride))
    target, select = rng.normal(size=(batch, samples, stride)), rng.normal(size=(batch, stride))
    tau = rng.uniform(size=(batch, quantiles))
    action = rng.integers(actions, size=batch)
    reward, weight = rng.normal(size=batch), rng.uniform(0.2, 1, batch)
    discount = np.where(np.arange(batch) % 3, 0.9, 0.0)

    def terms():
        return iqn_terms(
            head,
            tau,
            target,
            select,
            action,
            reward,
            discount,
            weight,
            actions=actions,
            dueling=dueling,
            kappa=kappa,
        )

    grad = np.zeros((batch * quantiles, stride))
    write_head_gradient(
        grad,
        terms().grad_theta.ravel(),
        np.repeat(action, quantiles),
        actions=actions,
        dueling=dueling,
    )
    numeric = central_differences(head, lambda: terms().loss.mean())
    np.testing.assert_allclose(grad.reshape(head.shape), numeric, rtol=1e-6, atol=1e-8)


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.1, 3))
def test_the_loss_of_equal_quantiles_is_zero_and_of_others_positive(n, n_t, apart):
    tau = ((np.arange(n) + 0.5) / n)[None]
    same = quantile_huber_terms(np.ones((1, n)), tau, np.ones((1, n_t)), np.ones(1), 1.0)
    assert (same.loss[0], same.td[0]) == (0, pytest.approx(0, abs=1e-12))
    assert not same.grad_theta.any()
    off = quantile_huber_terms(np.ones((1, n)), tau, np.full((1, n_t), 1 + apart), np.ones(1), 1.0)
    assert off.loss[0] > 0
    assert (off.grad_theta < 0).all()


def test_a_quantile_is_where_the_slopes_balance():
    samples = np.sort(np.random.default_rng(2).normal(size=1001))[None]
    for level in (0.1, 0.5, 0.9):
        theta = np.array([[np.quantile(samples, level)]])
        terms = quantile_huber_terms(theta, np.array([[level]]), samples, np.ones(1), 1e-9)
        assert abs(terms.grad_theta[0, 0]) < 2e-3


# -------------------------------------------------------------------- values and readiness


def values_of(weight, *, head=((1, 4), (3, 8)), plain=((10, 20),)):
    return run_host(
        "iqn_values",
        head=head,
        head_plain=plain,
        ready=[0, weight],
        values=2,
        rows=1,
        quantiles=2,
        stride=2,
    )["values"].tolist()


@pytest.mark.parametrize(
    ("weight", "values"), [(0, [10, 20]), (1, [2, 6]), (0.5, [6, 13]), (0.25, [8, 16.5])]
)
def test_blended_values(weight, values):
    assert values_of(weight) == values


def test_the_head_that_has_no_say_is_not_seen():
    bad = [[NAN, INF], [NAN, INF]]
    assert values_of(0, head=bad) == [10, 20]
    assert values_of(1, plain=bad[:1]) == [2, 6]
    assert np.isnan(values_of(0.5, head=bad)[0])


def test_readiness_through_a_run():
    ready = initial_readiness(0.0)
    for loss, skip, ema, weight in [
        ([NAN, 1], 0, NAN, 0),  # not even the first step counts
        ([3, 5], 0, 4, 0),  # the first: the mean itself, above high
        ([2, 2], 0, 3, 0),  # at high
        ([1, 1], 0, 2, 0.5),
        ([1, 1], 1, 2, 0.5),  # skipped
        ([INF, 1], 0, 2, 0.5),
        ([NAN, 1], 0, 2, 0.5),
        ([0, 0], 0, 1, 1),  # at low
        ([0, 0], 0, 0.5, 1),
        ([10, 10], 0, 5.25, 0),  # and back
    ]:
        ready = run_host(
            "iqn_readiness",
            loss=loss,
            skip=[skip],
            ready=ready,
            n=2,
            decay=0.5,
            low=1.0,
            high=3.0,
        )["ready"]
        np.testing.assert_array_equal(ready, [ema, weight])


def test_no_losses_leave_the_readiness_as_it_is():
    ready = run_host(
        "iqn_readiness", loss=[], skip=[0], ready=[2, 0.5], n=0, decay=0.5, low=1.0, high=3.0
    )["ready"]
    assert ready.tolist() == [2, 0.5]


# -------------------------------------------------------------------- sums


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 100])
def test_warp_sum_is_the_sum(n):
    values = np.random.default_rng(n).integers(-9, 9, (3, n)).astype(np.float64)
    assert warp_sum(values).tolist() == values.sum(axis=1).tolist()
    assert warp_sum(values.astype(np.float32)).dtype == np.float32


def test_warp_sum_keeps_to_its_order():
    # lane 0: 2^24 + 1 is lost in float32; across lanes 0 and 1, 1 + 1 is not
    values = np.zeros(64, np.float32)
    values[0], values[32] = 2.0**24, 1
    assert warp_sum(values) == 2.0**24
    values[1], values[33], values[32] = 1, 1, 0
    assert warp_sum(values) == 2.0**24 + 2
