"""The gradient budget: a table by hand, removal, what is not finite, and the bound it promises."""

import math

import numpy as np
import pytest
from block_runs import run_ops
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.common.layout import ADAM_GROUPS
from onegraph.kernels.learner.budget import Component, budget_scales
from onegraph.stages.program import Buffer
from onegraph.trainer.blocks.budget import GradientBudget
from onegraph.trainer.blocks.layout import Group, Layout, TensorSpec

NAN, INF = math.nan, math.inf

#: Two elements a group: 0, 1 trunk; 2, 3 selectivity; 4, 5 denoise; 6, 7 IQL; 8, 9 IQL low; 10, 11
#: IQN; 12, 13 attention.
ENDS = [2, 4, 6, 8, 10, 12, 14]


def budget(grad, shares, max_norm, *, aux=None, ends=ENDS, parts=3):
    n = len(grad)
    given = {"aux": grad if aux is None else aux, "ends": ends, "n": n, "parts": parts}
    given["with_aux"] = int(aux is not None)
    squares = run_host("component_norms", grad=grad, squares=8 * parts, **given)["squares"]
    return run_host(
        "apply_budget",
        grad=grad,
        squares=squares,
        shares=shares,
        norms=6,
        scales=6,
        partial=parts,
        max_norm=max_norm,
        **given,
    )


# Q, IQL_HIGH and IQL_LOW at shares .7, .2 and .1 of a norm of 10: caps 7, 2 and 1.
@pytest.mark.parametrize(
    ("norms", "max_norm", "scales"),
    [
        ([3, 1, 0.5], 10, [1, 1, 1]),  # all below
        ([14, 1, 0.5], 10, [0.5, 1, 1]),  # one above
        ([14, 8, 4], 10, [0.5, 0.25, 0.25]),  # all above
        ([7, 2, 1], 10, [1, 1, 1]),  # exactly at the caps
        ([0, 0, 4], 10, [1, 1, 0.25]),  # no gradient but one, which gets no more for it
        ([14, 8, 4], 0, [1, 1, 1]),  # no budget
        ([NAN, INF, 4], 10, [1, 1, 0.25]),  # not hidden
    ],
)
def test_scales_by_hand(norms, max_norm, scales):
    shares = np.array([0.7, 0.2, 0.1, 0, 0, 0])
    got = budget_scales(np.array([*norms, 5, 0, NAN]), shares, max_norm)
    assert got.tolist() == [*scales, 0, 0, 0]


def test_each_group_counts_for_its_component():
    grad = np.zeros(14)
    grad[[0, 2, 5, 7, 8, 11, 12]] = [3, 5, 7, 11, 13, 4, 17]
    out = budget(grad, [1 / 6] * 6, 60)  # each may have 10
    assert out["norms"].tolist() == [5, 11, 13, 7, 17, 5]
    want = np.float32([1, 10 / 11, 10 / 13, 1, 10 / 17, 1])
    assert out["scales"].tolist() == want.tolist()
    np.testing.assert_allclose(out["grad"][[0, 2, 5, 11]], [3, 5, 7, 4])
    np.testing.assert_allclose(out["grad"][[7, 8, 12]], [10, 10, 10], rtol=1e-6)


def test_an_auxiliary_gradient_is_the_denoise_component_and_is_added():
    grad, aux = np.zeros(14), np.zeros(14)
    grad[:2] = 3, 4
    grad[4:6] = NAN  # the sum of the step before, or anything
    aux[:2], aux[4:6] = [6, 0], [0, 8]
    out = budget(grad, [0.5, 0, 0, 0.5, 0, 0], 10, aux=aux)
    assert out["norms"][[Component.Q, Component.DENOISE]].tolist() == [5, 10]
    assert out["scales"].tolist() == [1, 0, 0, 0.5, 0, 0]
    assert out["grad"].tolist() == [3 + 3, 4, 0, 0, 0, 4, *[0] * 8]
    assert out["partial"].sum() == 36 + 16 + 16


@pytest.mark.parametrize("bad", [NAN, INF])
def test_what_is_not_finite_reaches_the_check_unless_its_component_is_removed(bad):
    shares = [0.7, 0, 0.3, 0, 0, 0]
    grad = np.zeros(14)
    grad[[0, 8]] = 1, bad
    out = budget(grad, shares, 10)
    assert not np.isfinite(out["grad"][8])
    assert not np.isfinite(out["partial"].sum())
    grad[[6, 8]] = bad, 1  # IQL_HIGH is removed
    out = budget(grad, shares, 10, aux=np.full(14, bad))  # and so is DENOISE
    assert out["grad"].tolist() == [1, *[0] * 7, 1, *[0] * 5]
    assert np.isfinite(out["partial"]).all()


def test_without_a_budget_only_removal_acts():
    out = budget(np.arange(14.0), [1, 0, 0, 0, 0, 0], 0)
    assert out["grad"].tolist() == [0, 1, *[0] * 8, 10, 11, 0, 0]


@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=28, max_size=28),
    st.lists(st.integers(0, 5), min_size=6, max_size=6).filter(any),
    st.floats(1e-6, 1e6),
)
def test_the_sum_keeps_to_the_whole_norm(values, weights, max_norm):
    shares = np.array(weights) / sum(weights)
    out = budget(np.float32(values[:14]), shares, max_norm, aux=np.float32(values[14:]))
    assert np.sqrt(out["partial"].sum()) <= max_norm * (1 + 1e-5)


def layout():
    return Layout([TensorSpec(f"{g.name}.weight", (3, 5), g) for g in Group])


def test_the_emitted_budget():
    plan = layout()
    size = plan.size
    parts = GradientBudget(
        plan, {Component.Q: 0.75, Component.DENOISE: 0.25}, 4.0, parts=5, aux="grad_aux"
    )
    grad, aux = np.zeros(size), np.zeros(size)
    plan["TRUNK.weight"].values(grad)[0, :2] = 3, 4
    plan["IQL.weight"].values(grad)[...] = NAN
    plan["TRUNK.weight"].values(aux)[0, 2] = 2
    got = run_ops(
        parts.ops(),
        (
            *parts.buffers(),
            Buffer("grad", (size,), "f32"),
            Buffer("grad_aux", (size,), "f32"),
            Buffer("adam_ends", (ADAM_GROUPS,), "i64"),
        ),
        {"grad": grad, "grad_aux": aux, "adam_ends": plan.ends},
    )
    np.testing.assert_allclose(got["budget_scales"], [0.6, 0, 0, 0.5, 0, 0], rtol=1e-6)
    want = np.zeros(size)
    plan["TRUNK.weight"].values(want)[0, :3] = 1.8, 2.4, 1
    np.testing.assert_allclose(got["grad"], want, rtol=1e-6)
    assert got["norm_partial"].sum() == pytest.approx(1.8**2 + 2.4**2 + 1)


def test_the_emitted_budget_of_one_gradient():
    plan = layout()
    part = GradientBudget(plan, {Component.Q: 0.5, Component.DENOISE: 0.5}, 10.0, parts=2)
    grad = np.zeros(plan.size)
    plan["DENOISE.weight"].values(grad)[0, :2] = 6, 8
    flat = Buffer("grad", (plan.size,), "f32")
    ends = Buffer("adam_ends", (ADAM_GROUPS,), "i64")
    given = {"grad": grad, "adam_ends": plan.ends}
    got = run_ops(part.ops(), (*part.buffers(), flat, ends), given)
    assert plan["DENOISE.weight"].values(got["grad"])[0].tolist() == [3, 4, 0, 0, 0]


@pytest.mark.parametrize(
    ("shares", "max_norm", "message"),
    [
        ({Component.Q: 0.7}, 1, r"sum to 0.7; change q \(0.7\)"),
        ({Component.Q: 1.5, Component.DENOISE: -0.5}, 1, "from 0 up"),
        ({Component.Q: NAN}, 1, "from 0 up"),
        ({Component.Q: 1.0}, -1, "from 0 up"),
    ],
)
def test_shares_that_are_none(shares, max_norm, message):
    with pytest.raises(ValueError, match=message):
        GradientBudget(layout(), shares, max_norm, parts=1)
