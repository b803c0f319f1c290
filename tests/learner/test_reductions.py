"""column_sum, batch_stats, grad_norm_partial and clip_factor against values worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host


def test_column_sum_by_hand():
    x = [[1, 2, 3], [10, 20, 30]]
    assert run_host("column_sum", x=x, out=3, rows=2, cols=3)["out"].tolist() == [11, 22, 33]
    assert run_host("column_sum", x=[], out=2, rows=0, cols=2)["out"].tolist() == [0, 0]


def test_column_sum_keeps_a_nan_in_its_column():
    out = run_host("column_sum", x=[[1, math.nan], [2, 3]], out=2, rows=2, cols=2)["out"]
    assert out[0] == 3
    assert math.isnan(out[1])


def test_batch_stats_by_hand():
    out = run_host("batch_stats", loss=[1, 3], td=[-4, 2], q_taken=[5, 6], stats=4, n=2)["stats"]
    assert out.tolist() == [2, 3, 5.5, 4]


def test_batch_stats_of_nothing_and_of_a_nan():
    empty = run_host("batch_stats", loss=[], td=[], q_taken=[], stats=4, n=0)["stats"]
    assert empty.tolist() == [0, 0, 0, 0]
    td = [1, math.nan, 2]
    mixed = run_host("batch_stats", loss=[1, 1, 1], td=td, q_taken=[6, 6, 6], stats=4, n=3)["stats"]
    assert mixed[0] == 1
    assert mixed[2] == 6
    assert np.isnan(mixed[[1, 3]]).all()


@given(st.lists(st.floats(-1e6, 1e6, width=32), max_size=1500))
def test_batch_stats_against_exact_sums(td):
    n = len(td)
    out = run_host("batch_stats", loss=td, td=td, q_taken=td, stats=4, n=n)["stats"]
    assert out[0] == pytest.approx(math.fsum(td) / max(n, 1), abs=1e-6)
    assert out[1] == pytest.approx(math.fsum(map(abs, td)) / max(n, 1), rel=1e-12)
    assert out[3] == max(map(abs, td), default=0)


@pytest.mark.parametrize("parts", [1, 3, 64])
@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 5000])
def test_partial_sums_cover_every_element_once(n, parts):
    grad = np.arange(n) % 7
    partial = run_host("grad_norm_partial", grad=grad, partial=parts, n=n, parts=parts)["partial"]
    assert partial.sum() == (grad**2).sum()  # small integers: exact


def test_a_large_finite_gradient_has_a_finite_norm():
    big = float(np.finfo(np.float32).max)
    out = run_host("grad_norm_partial", grad=[big, big], partial=1, n=2, parts=1)["partial"]
    assert out[0] == pytest.approx(2 * big**2)


@pytest.mark.parametrize(
    ("partial", "max_norm", "norm", "scale", "skip"),
    [
        ([9, 16], 10.0, 5, 1, 0),
        ([9, 16], 5.0, 5, 1, 0),
        ([9, 16], 2.5, 5, 0.5, 0),
        ([9, 16], 0.0, 5, 1, 0),
        ([0, 0], 1.0, 0, 1, 0),
        ([math.inf, 1], 1.0, math.inf, 0, 1),
        ([math.nan, 1], 1.0, math.nan, 0, 1),
        ([math.nan], 0.0, math.nan, 0, 1),
    ],
)
def test_clip_factor(partial, max_norm, norm, scale, skip):
    parts = len(partial)
    out = run_host("clip_factor", partial=partial, clip=2, skip=1, parts=parts, max_norm=max_norm)
    np.testing.assert_array_equal(out["clip"], np.array([norm, scale], np.float32))
    assert out["skip"].tolist() == [skip]


@pytest.mark.parametrize(
    ("grad", "max_norm", "clip", "skip"),
    [
        ([3, 4], 10.0, [5, 1], 0),
        ([3, -4], 2.5, [5, 0.5], 0),
        ([], 1.0, [0, 1], 0),
        ([3, math.nan], 10.0, [math.nan, 0], 1),
    ],
)
def test_grad_norm_by_hand(grad, max_norm, clip, skip):
    sizes = {"partial": 2, "clip": 2, "skip": 1, "n": len(grad), "parts": 2}
    out = run_host("grad_norm", grad=grad, ticket=[0], max_norm=max_norm, **sizes)
    np.testing.assert_array_equal(out["clip"], np.array(clip, np.float32))
    assert (out["skip"].tolist(), out["ticket"].tolist()) == ([skip], [0])
