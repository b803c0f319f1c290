"""Value networks by expectile regression, and what their spread does to a TD error."""

import math

import numpy as np
import pytest
from block_runs import run_pass
from central_differences import numeric_gradient
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.learner.expectile_loss import expectile_terms, taken_value
from onegraph.kernels.learner.iql_modulate import advantage_factor
from onegraph.stages.program import MatmulOp, Ref
from onegraph.trainer.blocks.emit import Emit
from onegraph.trainer.blocks.iql import Modulation, ValueNetworks
from onegraph.trainer.blocks.layout import Group, Layout

NAN, INF = math.nan, math.inf


# ------------------------------------------------------------------------ expectile regression


def regression(q, v_hi, v_lo, *, weight=None, high=0.75, low=0.25, **changes):
    """The kernel on a plain head of one action."""
    n = len(q)
    values = {
        "head": np.reshape(q, (n, 1)),
        "action": [0] * n,
        "actions": 1,
        "dueling": 0,
        **changes,
    }
    outputs = ("q", "loss_hi", "loss_lo", "grad_hi", "grad_lo")
    return run_host(
        "expectile_loss",
        weight=[1] * n if weight is None else weight,
        v_hi=v_hi,
        v_lo=v_lo,
        **dict.fromkeys(outputs, n),
        rows=n,
        high=high,
        low=low,
        **values,
    )


@pytest.mark.parametrize(
    ("q", "v", "high", "low"),
    [
        # u = q - v, loss = side u^2, gradient in v = -2 side u
        (3, 1, (0.75 * 4, -2 * 0.75 * 2), (0.25 * 4, -2 * 0.25 * 2)),  # u = 2: above
        (1, 3, (0.25 * 4, 2 * 0.25 * 2), (0.75 * 4, 2 * 0.75 * 2)),  # u = -2: below
        (5, 5, (0, 0), (0, 0)),  # u = 0
        (-1, -1.5, (0.1875, -0.75), (0.0625, -0.25)),
        (-1.5, -1, (0.0625, 0.25), (0.1875, 0.75)),
    ],
)
def test_expectile_losses_and_gradients(q, v, high, low):
    out = regression([q], [v], [v])
    assert (out["loss_hi"][0], out["grad_hi"][0]) == high
    assert (out["loss_lo"][0], out["grad_lo"][0]) == low
    assert out["q"].tolist() == [q]


def test_weights_scale_each_row_and_the_gradient_is_that_of_the_mean():
    out = regression([3, 1, 3, 1], [1, 3, 1, 3], [1, 3, 1, 3], weight=[1, 1, 0.5, 0])
    assert out["loss_hi"].tolist() == [3, 1, 1.5, 0]
    assert out["grad_hi"].tolist() == [-0.75, 0.25, -0.375, 0]
    assert out["loss_lo"].tolist() == [1, 3, 0.5, 0]
    assert out["grad_lo"].tolist() == [-0.25, 0.75, -0.125, 0]


def test_half_an_expectile_is_half_the_square():
    out = regression([3, -4], [0, 0], [1, 1], high=0.5, low=0.5)
    assert out["loss_hi"].tolist() == [4.5, 8]
    assert out["loss_lo"].tolist() == [2, 12.5]


def test_q_is_that_of_the_taken_action_of_a_dueling_head():
    # q(1) = 10 + 4 - (1 + 4 + 1) / 3 = 12
    out = regression(
        [0], [10], [14], head=[[1, 4, 1, 10]], action=[1], actions=3, dueling=1, high=0.75, low=0.25
    )
    assert out["q"].tolist() == [12]
    assert out["loss_hi"].tolist() == [3]
    assert out["loss_lo"].tolist() == [3]


@pytest.mark.parametrize("action", [-1, 3, 2**31 - 1, -(2**31)])
def test_an_action_out_of_range_poisons_its_row_only(action):
    head = np.zeros((2, 3))
    out = regression([0, 0], [1, 1], [1, 1], head=head, action=[action, 2], actions=3)
    for name, values in out.items():
        assert np.isnan(values[0]), name
        assert np.isfinite(values[1]), name


@pytest.mark.parametrize(("q", "v"), [(NAN, 0), (0, NAN), (INF, INF)])
def test_nan_reaches_losses_and_gradients(q, v):
    out = regression([q], [v], [v])
    assert np.isnan([out[n][0] for n in ("loss_hi", "loss_lo", "grad_hi", "grad_lo")]).all()


def test_no_rows_write_nothing():
    assert all(np.isnan(values).all() for values in regression([], [], []).values())


@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=9),
    st.floats(0.05, 0.95),
)
def test_the_losses_minimum_is_the_expectile(samples, expectile):
    """Where the slope is 0, the weighted distances above and below balance."""
    q = np.array(samples)

    def slope(v):
        return expectile_terms(q, np.full_like(q, v), np.ones_like(q), expectile).grad.sum()

    low, high = q.min(), q.max()
    assert slope(low) <= 1e-12
    assert slope(high) >= -1e-12
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    u = q - (low + high) / 2
    above, below = u[u > 0].sum(), -u[u < 0].sum()
    assert expectile * above == pytest.approx((1 - expectile) * below, abs=1e-9)


def test_a_high_expectile_is_above_a_low_one():
    q, ones = np.array([0.0, 1.0, 4.0]), np.ones(3)
    v = {0.7: 0.0, 0.3: 0.0}
    for expectile in v:
        for _ in range(2000):
            terms = expectile_terms(q, np.full(3, v[expectile]), ones, expectile)
            v[expectile] -= 0.1 * terms.grad.sum()
    # Between 1 and 4: .7 (4 - v) = .3 (v + v - 1), and .3 (4 - v) = .7 (v + v - 1).
    assert v[0.7] == pytest.approx(3.1 / 1.3, rel=1e-9)
    assert v[0.3] == pytest.approx(1.9 / 1.7, rel=1e-9)


def test_the_gradient_is_autograds():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    rng = np.random.default_rng(3)
    q, v_hi, v_lo = (rng.normal(size=64).astype(np.float32) for _ in range(3))
    weight = rng.uniform(0.1, 1, 64).astype(np.float32)
    out = regression(q, v_hi, v_lo, weight=weight, high=0.7, low=0.3)
    for name, value, expectile in (("hi", v_hi, 0.7), ("lo", v_lo, 0.3)):
        v = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        u = torch.tensor(q, dtype=torch.float64) - v
        losses = torch.tensor(weight) * torch.abs(expectile - (u < 0).double()) * u**2
        losses.mean().backward()
        np.testing.assert_allclose(out[f"loss_{name}"], losses.detach().numpy(), rtol=1e-5)
        np.testing.assert_allclose(out[f"grad_{name}"], v.grad.numpy(), rtol=1e-5)


# ------------------------------------------------------------------------ the networks

ROWS, S, PADDED, HIDDEN, ACTIONS = 21, 5, 8, 6, 3


def networks():
    return ValueNetworks(PADDED, HIDDEN, high=0.8, low=0.3, real_width=S)


def emitted(*, dueling=True):
    """One pass: forward, loss, backward; with the names of what they give."""
    block = networks()
    emit = Emit(Layout(block.tensors()), "p_", ROWS)
    values = block.forward(emit, Ref("s"))
    loss = block.loss(
        emit, Ref("head"), Ref("action"), Ref("weight"), actions=ACTIONS, dueling=dueling
    )
    block.backward(emit, Ref("s"))
    return emit, values, loss


def batch(*, dueling=True):
    rng = np.random.default_rng(5)
    s = np.zeros((ROWS, PADDED), np.float32)
    s[:, :S] = rng.normal(size=(ROWS, S))
    return {
        "s": s,
        "head": rng.normal(size=(ROWS, ACTIONS + dueling)).astype(np.float32),
        "action": rng.integers(ACTIONS, size=ROWS).astype(np.int32),
        "weight": rng.uniform(0.2, 1, ROWS).astype(np.float32),
    }


def objectives(theta, layout, given, *, dueling):
    """Values and mean losses of both networks in float64, without the project's ops."""
    head = given["head"].astype(np.float64)
    q = head[np.arange(ROWS), given["action"]]
    if dueling:
        q = q + head[:, ACTIONS] - head[:, :ACTIONS].mean(axis=1)
    values, losses = [], []
    for name, expectile in (("iql", 0.8), ("iql_low", 0.3)):
        w1, b1, w2, b2 = (
            layout[f"{name}.{part}"].values(theta)
            for part in ("hidden.weight", "hidden.bias", "value.weight", "value.bias")
        )
        v = (np.maximum(given["s"] @ w1 + b1, 0) @ w2 + b2)[:, 0]
        u = q - v
        side = np.where(u < 0, 1 - expectile, expectile)
        values.append(v)
        losses.append(given["weight"] * side * u**2)
    return values, losses


@pytest.mark.parametrize("dueling", [True, False])
def test_the_networks_gradients_are_those_of_central_differences(dueling):
    emit, values, loss = emitted(dueling=dueling)
    given, layout = batch(dueling=dueling), emit.layout
    theta = layout.initial(11)
    found = run_pass(emit, {"theta": theta, **given})

    exact = theta.astype(np.float64)
    want_values, want_losses = objectives(exact, layout, given, dueling=dueling)
    for ref, want in zip(
        (values.hi, values.lo, loss.loss_hi, loss.loss_lo),
        (*want_values, *want_losses),
        strict=True,
    ):
        np.testing.assert_allclose(found[ref.buffer], want, rtol=1e-4, atol=1e-5)
    wanted = numeric_gradient(
        lambda: sum(x.mean() for x in objectives(exact, layout, given, dueling=dueling)[1]), exact
    )
    got = found["grad"]
    for tensor in layout:
        scale = np.abs(tensor.values(wanted)).max()
        assert scale > 0, tensor.name
        np.testing.assert_allclose(
            tensor.values(got),
            tensor.values(wanted),
            rtol=0,
            atol=1e-4 * scale,
            err_msg=tensor.name,
        )


def test_each_network_is_a_group_of_its_own():
    layout = Layout(networks().tensors())
    count = PADDED * HIDDEN + HIDDEN + HIDDEN + 1
    for group, name in ((Group.IQL, "iql."), (Group.IQL_LOW, "iql_low.")):
        start, stop = layout.range_of(group)
        inside = [t for t in layout if start <= t.offset < stop]
        assert all(t.name.startswith(name) and t.group == group for t in inside)
        assert sum(t.size for t in inside) == count
    # The padding's weights start as zeros, and have no gradient to leave them.
    initial = layout["iql.hidden.weight"].values(layout.initial(0))
    assert not initial[S:].any()
    assert initial[:S].all()
    assert not np.array_equal(initial, layout["iql_low.hidden.weight"].values(layout.initial(0)))


def test_products_of_both_networks_stand_side_by_side_in_one_shape():
    emit, _, _ = emitted()
    products = [op for op in emit.ops if isinstance(op, MatmulOp)]
    assert len(products) == 10
    for first, second in zip(products[::2], products[1::2], strict=True):
        assert (first.m, first.n, first.k) == (second.m, second.n, second.k)
        assert first.epilogue == second.epilogue
        assert not first.writes() & (second.reads() - {"grad"})


# ------------------------------------------------------------------------ modulation


def modulated(td, q, v_hi, v_lo, *, k=1.0, eps=1.0, low=0.25, high=4.0):
    n = len(td)
    out = run_host(
        "iql_modulate",
        td=td,
        q=q,
        v_hi=v_hi,
        v_lo=v_lo,
        rows=n,
        k=k,
        eps=eps,
        low=low,
        high=high,
    )
    return out["td"].tolist()


@pytest.mark.parametrize(
    ("td", "q", "hi", "lo", "factor"),
    [
        (2, 0, 0, 0, 1),  # nothing above the low value
        (-2, 1, 3, 1, 1),
        (2, 1, 1, 0, math.exp(0.5)),  # 1 / (1 + eps)
        (-2, 1, 1, 0, math.exp(0.5)),
        (2, -1, 0, 0, math.exp(-1)),
        (2, 1, -5, 0, math.exp(1)),  # crossed values: the spread counts as 0
        (2, 1.5, 0, 0, 4),  # exp(1.5) is above the bound
        (2, -1.5, 0, 0, 0.25),
        (2, 1e30, 0, 0, 4),
        (2, -1e30, 0, 0, 0.25),
        (2, INF, 0, 0, 4),
        (2, -INF, 0, 0, 0.25),
        (2, 3, INF, 0, 1),  # an infinite spread makes any advantage nothing
    ],
)
def test_the_factor_of_a_td_error(td, q, hi, lo, factor):
    assert modulated([td], [q], [hi], [lo])[0] == pytest.approx(td * factor, rel=1e-7)


def test_the_exponent_is_bounded_before_it_overflows():
    assert modulated([1], [1e30], [0], [0], high=1e300)[0] == np.float32(math.exp(20))


@pytest.mark.parametrize(
    "given", [(NAN, 0, 0, 0), (1, NAN, 0, 0), (1, 0, NAN, 0), (1, 0, 0, NAN), (1, INF, INF, 0)]
)
def test_nan_stays_for_the_priority_update_to_drop(given):
    assert np.isnan(modulated(*([x] for x in given)))


def test_a_nan_row_keeps_its_leaf_and_is_counted():
    td = modulated([1, 1], [NAN, 0], [0, 0], [0, 0])
    leaves = np.array([5, 5], np.float32)
    out = run_host(
        "update_priorities",
        td=td,
        index=[0, 1],
        sampled_generation=[1, 1],
        generation=[1, 1],
        leaves=leaves,
        nodes=[10],
        owner=[-1, -1],
        max_leaf=[5],
        diagnostics=[0] * 8,
        n=2,
        leaf_count=2,
        alpha=1.0,
        eps=0.0,
    )
    assert out["leaves"].tolist() == [5, 1]
    assert out["nodes"].tolist() == [6]
    assert out["diagnostics"].tolist()[0] == 1


def test_no_td_errors():
    assert np.isnan(modulated([], [], [], [])).all()


finite = st.floats(-1e6, 1e6, width=32)


@given(finite, finite, finite, finite, st.floats(0, 10), st.floats(1e-6, 10))
def test_the_factor_stays_between_its_bounds_and_rises_with_q(q, more, hi, lo, k, eps):
    def factor(value):
        v = (np.array([x], np.float32) for x in (value, hi, lo))
        return advantage_factor(*v, k=k, eps=eps, low=0.5, high=2.0)[0]

    assert 0.5 <= factor(q) <= 2.0
    assert factor(min(q, more)) <= factor(max(q, more))


def test_modulation_is_one_launch_over_the_networks_values():
    emit, values, loss = emitted()
    before = len(emit.ops)
    Modulation(k=2.0, eps=0.5, low=0.1, high=9.0).emit(emit, Ref("td"), loss.q, values)
    assert len(emit.ops) == before + 1
    td = np.random.default_rng(7).normal(size=ROWS).astype(np.float32)
    found = run_pass(emit, {"theta": emit.layout.initial(0), **batch(), "td": td})
    q, hi, lo = (found[r.buffer].astype(np.float64) for r in (loss.q, values.hi, values.lo))
    exponent = 2 * (q - lo) / (np.maximum(hi - lo, 0) + 0.5)
    np.testing.assert_allclose(found["td"], td * np.clip(np.exp(exponent), 0.1, 9), rtol=1e-6)


def test_the_head_is_read_in_its_own_dtype():
    head = np.array([[1.0, 2.0]])
    assert taken_value(head, np.array([1]), actions=2, dueling=0).dtype == np.float64
