"""The vaccine projection: tables by hand, orthogonality, and when the gradient stays as it is."""

import math

import numpy as np
import pytest
from block_runs import run_ops
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.stages.program import Buffer
from onegraph.trainer.blocks.layout import Layout, TensorSpec
from onegraph.trainer.blocks.vaccine import VaccineProjection

NAN, INF = math.nan, math.inf


def project(grad, vaccine, parts=2):
    n = len(grad)
    given = {"grad": grad, "vaccine": vaccine, "n": n, "parts": parts}
    dots = run_host("vaccine_partial", dots=2 * parts, **given)["dots"]
    return run_host("project_gradient", dots=dots, removed=1, partial=parts, **given)


@pytest.mark.parametrize(
    ("grad", "vaccine", "want", "removed"),
    [
        ([1, 0], [-1, 1], [0.5, 0.5], -0.5),  # conflict: g.v = -1, v.v = 2
        ([-3, 4, 1], [2, 0, 0], [0, 4, 1], -1.5),  # conflict in one coordinate
        ([1, 2], [3, 4], [1, 2], 0),  # agreement
        ([1, -1], [1, 1], [1, -1], 0),  # orthogonal already
        ([1, 2], [0, 0], [1, 2], 0),  # no vaccine gradient
        ([1, -2], [-0.5, 1], [0, 0], -2),  # exactly against it: nothing is left
    ],
)
def test_by_hand(grad, vaccine, want, removed):
    out = project(grad, vaccine)
    assert out["grad"].tolist() == want
    assert out["removed"].tolist() == [removed]
    assert out["partial"].sum() == np.square(want).sum()


@pytest.mark.parametrize(
    ("grad", "vaccine"),
    [([1, NAN], [-1, 1]), ([1, 2], [NAN, -9]), ([1, 2], [-INF, 0]), ([-INF, 2], [1, 1])],
)
def test_what_is_not_finite_leaves_the_gradient(grad, vaccine):
    np.testing.assert_array_equal(project(grad, vaccine)["grad"], np.float32(grad))


def test_a_bad_gradient_shows_in_the_norm():
    assert np.isnan(project([1, NAN], [-1, 1])["partial"].sum())


numbers = st.lists(st.floats(-1e3, 1e3, width=32), min_size=12, max_size=12)


@given(numbers, numbers)
def test_the_result_never_conflicts(grad, vaccine):
    g, v = np.float32(grad), np.float32(vaccine)
    out = project(g, v)["grad"].astype(np.float64)
    rounding = 2.0**-23 * np.abs(np.float64(g) * v).sum() + 1e-40 * np.abs(v).sum()
    before, after = float(np.float64(g) @ v), float(out @ v)
    if before < 0:
        assert abs(after) <= 3 * rounding
        assert np.linalg.norm(out) <= np.linalg.norm(np.float64(g)) * (1 + 1e-6)
    else:
        assert out.tolist() == g.tolist()


def test_the_emitted_projection():
    layout = Layout([TensorSpec("a.weight", (20, 20))])
    rng = np.random.default_rng(0)
    vaccine = rng.normal(size=layout.size).astype(np.float32)
    grad = (rng.normal(size=layout.size) - vaccine).astype(np.float32)
    part = VaccineProjection(layout, parts=4)
    flat = [Buffer(name, (layout.size,), "f32") for name in ("grad", "grad_vaccine")]
    got = run_ops(part.ops(), (*part.buffers(), *flat), {"grad": grad, "grad_vaccine": vaccine})
    assert abs(float(got["grad"].astype(np.float64) @ vaccine)) < 1e-4
    assert got["vaccine_removed"][0] < 0
