"""Projection, cross entropy and values of the categorical head."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.learner.c51_loss import categorical_terms, spread_logit_gradient
from onegraph.kernels.learner.categorical import project

NAN, INF = math.nan, math.inf
P = [0.1, 0.2, 0.4, 0.2, 0.1]


@pytest.mark.parametrize(
    ("reward", "discount", "projected"),
    [  # five atoms at -2, -1, 0, 1, 2
        (0, 1, P),
        (1, 1, [0, 0.1, 0.2, 0.4, 0.3]),
        (-1, 1, [0.3, 0.4, 0.2, 0.1, 0]),
        (0.5, 1, [0.05, 0.15, 0.3, 0.3, 0.2]),
        (0, 0.5, [0, 0.2, 0.6, 0.2, 0]),
        (2, 0.5, [0, 0, 0, 0.2, 0.8]),
        (1, 0, [0, 0, 0, 1, 0]),
        (0.25, 0, [0, 0, 0.75, 0.25, 0]),
        (2, 0, [0, 0, 0, 0, 1]),
        (-2, 0, [1, 0, 0, 0, 0]),
        (100, 1, [0, 0, 0, 0, 1]),
        (-100, 1, [1, 0, 0, 0, 0]),
        (INF, 1, [0, 0, 0, 0, 1]),
        (-INF, 0, [1, 0, 0, 0, 0]),
        (NAN, 1, [NAN] * 5),
    ],
)
def test_projection(reward, discount, projected):
    got = project(
        np.array([P]), np.array([float(reward)]), np.array([float(discount)]), 5, -2.0, 2.0
    )
    np.testing.assert_allclose(got[0], projected, atol=1e-15)


def test_the_identity_is_exact_on_an_uneven_support():
    p = np.random.default_rng(0).dirichlet(np.ones(51), size=3)
    assert project(p, np.zeros(3), np.ones(3), 51, -0.7, 13.1).tolist() == p.tolist()


@given(
    st.integers(2, 60),
    st.floats(-30, 30, width=32),
    st.floats(0, 1, width=32),
    st.floats(-10, 9),
    st.floats(0.1, 20),
    st.integers(0, 2**32 - 1),
)
def test_projected_mass_sums_to_one_and_keeps_its_mean(atoms, reward, discount, low, wide, seed):
    p = np.random.default_rng(seed).dirichlet(np.ones(atoms), size=1)
    m = project(p, np.array([reward]), np.array([discount]), atoms, low, low + wide)
    assert (m >= 0).all()
    assert m.sum() == pytest.approx(1, abs=1e-12)
    z = np.linspace(low, low + wide, atoms)
    reached = np.clip(reward + discount * z, low, low + wide)
    assert (m[0] * z).sum() == pytest.approx((p[0] * reached).sum(), abs=1e-9)


def loss_of(head, target, *, select=None, actions=2, dueling=0, v_min=-2.0, v_max=2.0, **given):
    """The kernel on heads [B, A + d, K]."""
    head, target = np.asarray(head, np.float32), np.asarray(target, np.float32)
    n, _, atoms = head.shape
    values = {
        "action": [0] * n,
        "reward": [0] * n,
        "discount": [1] * n,
        "weight": [1] * n,
        **given,
    }
    out = run_host(
        "c51_loss",
        head_tm1=head,
        head_target=target,
        head_select=np.zeros((n, actions)) if select is None else select,
        td=n,
        loss=n,
        q_taken=n,
        grad_head=head.size,
        n=n,
        actions=actions,
        dueling=dueling,
        atoms=atoms,
        v_min=v_min,
        v_max=v_max,
        **values,
    )
    out["grad_head"] = out["grad_head"][: head.size].reshape(head.shape)
    return out


def test_cross_entropy_of_a_uniform_head():
    # All mass on atom 3: CE = log 5 = KL, as a point has no entropy; slope p - m.
    out = loss_of(np.zeros((1, 2, 5)), np.zeros((1, 2, 5)), reward=[1], discount=[0], weight=[0.5])
    assert out["td"][0] == pytest.approx(math.log(5))
    assert out["loss"][0] == pytest.approx(math.log(5) / 2)
    assert out["q_taken"][0] == pytest.approx(0, abs=1e-7)
    np.testing.assert_allclose(out["grad_head"][0, 0], np.array([1, 1, 1, -4, 1]) / 10, rtol=1e-6)
    assert not out["grad_head"][0, 1].any()


def test_what_agrees_has_no_priority_but_its_entropy_for_a_loss():
    head = np.zeros((1, 2, 5), np.float32)
    head[0, 0] = np.log(P)
    out = loss_of(head, head)
    entropy = -np.dot(P, np.log(P))
    assert out["td"][0] == pytest.approx(0, abs=1e-6)
    assert out["td"][0] >= 0
    assert out["loss"][0] == pytest.approx(entropy)
    np.testing.assert_allclose(out["grad_head"], 0, atol=1e-7)


def test_the_target_is_that_of_the_selected_action():
    target = np.full((1, 2, 5), -50.0)
    target[0, 0, 1] = target[0, 1, 3] = 50
    for select, atom in (([[1, 0]], 1), ([[0, 1]], 3), ([[NAN, 0]], 3)):
        out = loss_of(np.zeros((1, 2, 5)), target, select=select)
        assert np.argmin(out["grad_head"][0, 0]) == atom


def test_dueling_combines_atom_by_atom():
    # advantages 3 and 1 at atom 1, value 7: the logit is 7 + 3 - 2 = 8 for action 0
    head = np.zeros((1, 3, 2))
    head[0, :, 1] = 3, 1, 7
    out = loss_of(head, head, dueling=1, reward=[0.5], discount=[0], v_min=0.0, v_max=1.0)
    p = 1 / (1 + math.exp(-8))
    assert out["q_taken"][0] == pytest.approx(p)
    g = p - 0.5
    np.testing.assert_allclose(out["grad_head"][0], np.outer([0.5, -0.5, 1], [-g, g]), rtol=1e-6)


@pytest.mark.parametrize("successor", [NAN, INF, -INF])
def test_a_terminal_row_never_sees_its_successor(successor):
    out = loss_of(np.zeros((1, 2, 5)), np.full((1, 2, 5), successor), reward=[1], discount=[0])
    assert out["td"][0] == pytest.approx(math.log(5))


@pytest.mark.parametrize("action", [-1, 2, 1000, -(2**31)])
@pytest.mark.parametrize("dueling", [0, 1])
def test_an_action_out_of_range_poisons_its_row_only(action, dueling):
    head = np.zeros((2, 2 + dueling, 5))
    out = loss_of(head, head, dueling=dueling, action=[action, 0])
    for name in ("td", "loss", "q_taken"):
        assert np.isnan(out[name][0])
        assert np.isfinite(out[name][1])
    assert np.isnan(out["grad_head"][0]).any()
    assert np.isfinite(out["grad_head"][1]).all()


@pytest.mark.parametrize("bad", [{"reward": [NAN]}, {"head": NAN}, {"head": INF}, {"target": NAN}])
def test_a_nan_is_seen(bad):
    heads = {"head": np.zeros((1, 2, 5)), "target": np.zeros((1, 2, 5))}
    for name in heads.keys() & bad.keys():
        heads[name][0, 0, 2] = bad[name]
    out = loss_of(heads["head"], heads["target"], **{k: bad[k] for k in bad.keys() - heads.keys()})
    assert np.isnan([out["td"][0], out["loss"][0], *out["grad_head"][0, 0]]).all()


def test_an_impossible_atom_costs_nothing_where_there_is_no_mass():
    head = np.zeros((1, 2, 5), np.float32)
    head[0, 0, 0] = -INF
    out = loss_of(head, head, reward=[1], discount=[0])
    assert out["loss"][0] == pytest.approx(math.log(4))
    assert np.isfinite(out["grad_head"]).all()


def test_an_empty_batch_writes_nothing():
    assert np.isnan(loss_of(np.zeros((0, 2, 5)), np.zeros((0, 2, 5)))["td"]).all()


@pytest.mark.parametrize("atoms", [0, 1, 257])
def test_atoms_that_no_head_can_have(atoms):
    with pytest.raises(ValueError, match=f"{atoms} atoms; a head has 2 to 256"):
        loss_of(np.zeros((1, 2, atoms)), np.zeros((1, 2, atoms)))
    with pytest.raises(ValueError, match=f"{atoms} atoms"):
        values_of(np.zeros((1, 2, atoms)))


@pytest.mark.parametrize("dueling", [0, 1])
def test_gradient_against_central_differences(dueling):
    rng = np.random.default_rng(7 + dueling)
    batch, actions, atoms = 6, 3, 7
    shape = batch, actions + dueling, atoms
    head, target = rng.normal(size=shape), rng.normal(size=shape)
    select = rng.normal(size=(batch, actions))
    action = rng.integers(actions, size=batch)
    reward, weight = rng.normal(size=batch), rng.uniform(0.2, 1, batch)
    discount = np.where(np.arange(batch) % 3, 0.9, 0.0)

    def terms():
        return categorical_terms(
            head,
            target,
            select,
            action,
            reward,
            discount,
            weight,
            actions=actions,
            dueling=dueling,
            v_min=-3.0,
            v_max=2.5,
        )

    analytic = spread_logit_gradient(terms().grad_logits, action, actions=actions, dueling=dueling)
    step = 1e-6
    numeric = np.empty_like(head)
    for index in np.ndindex(shape):
        value = head[index]
        head[index] = value + step
        above = terms().loss.mean()
        head[index] = value - step
        below = terms().loss.mean()
        head[index] = value
        numeric[index] = (above - below) / (2 * step)
    np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-8)


def values_of(head, *, dueling=0, v_min=-2.0, v_max=2.0):
    head = np.asarray(head, np.float32)
    rows, blocks, atoms = head.shape
    actions = blocks - dueling
    return run_host(
        "c51_values",
        head=head,
        values=rows * actions,
        rows=rows,
        actions=actions,
        dueling=dueling,
        atoms=atoms,
        v_min=v_min,
        v_max=v_max,
    )["values"].reshape(rows, actions)


def test_expected_values():
    with np.errstate(divide="ignore"):
        head = np.log([[P, [0, 0, 0, 0, 1], [0.5, 0, 0, 0, 0.5], [0, 0.25, 0, 0.75, 0]]])
    np.testing.assert_allclose(values_of(head), [[0, 2, 0, 0.5]], atol=1e-7)


def test_expected_values_of_a_dueling_head():
    head = np.zeros((1, 3, 2))
    head[0, :, 1] = 3, 1, 7
    expected = [1 / (1 + math.exp(-8)), 1 / (1 + math.exp(-6))]
    np.testing.assert_allclose(values_of(head, dueling=1, v_min=0.0, v_max=1.0)[0], expected)


def test_a_nan_distribution_has_the_value_nan_alone():
    head = np.zeros((1, 2, 5))
    head[0, 0, 4] = NAN
    got = values_of(head)[0]
    assert np.isnan(got[0])
    assert got[1] == pytest.approx(0, abs=1e-7)
