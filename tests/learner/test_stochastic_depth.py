"""Which blocks a step keeps, and the skip that their outputs are added by."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.common.layout import COUNTERS, Counter, StreamTag
from onegraph.kernels.common.philox import philox_uniform
from onegraph.kernels.learner.depth_masks import depth_masks

NAN, INF = math.nan, math.inf


def masks(step, blocks, drop, seed=7):
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG] = step + 1  # as advance_counters leaves it
    out = run_host(
        "depth_masks", counters=counters, scale=blocks, blocks=blocks, drop=drop, seed=seed
    )
    return out["scale"][:blocks]


def many(blocks, drop, steps=4000):
    drawn = np.zeros((steps, blocks), np.float32)
    for step in range(steps):
        counters = np.full(COUNTERS, step + 1)
        depth_masks(counters, drawn[step], blocks=blocks, drop=np.float64(drop), seed=7)
    return drawn


def test_survival_falls_linearly_and_the_expectation_stays_one():
    drawn = many(4, 0.5)
    keep = np.array([7 / 8, 6 / 8, 5 / 8, 4 / 8])
    survived = drawn > 0
    np.testing.assert_array_equal(drawn, survived * (1 / keep).astype(np.float32))
    # five standard errors of a mean of 4,000 draws
    error = 5 * np.sqrt((1 - keep) / keep / 4000)
    assert (np.abs(drawn.mean(axis=0) - 1) < error).all()
    # one draw a block: no two of them go together
    assert np.abs(np.corrcoef(survived.T) - np.eye(4)).max() < 5 / np.sqrt(4000)


def test_without_drop_every_block_is_kept_as_it_is():
    assert (many(3, 0.0, 200) == 1).all()


def test_a_last_block_that_never_survives_has_scale_zero():
    drawn = many(2, 1.0, 500)
    assert (drawn[:, 1] == 0).all()
    assert set(drawn[:, 0]) == {0, 2}
    assert (many(1, 1.0, 50) == 0).all()


def test_no_blocks():
    assert masks(3, 0, 0.5).size == 0


def test_the_draw_is_that_of_its_step_seed_and_stream():
    u = philox_uniform(9, np.arange(5), 41, StreamTag.DEPTH)[:, 0]
    keep = 1 - np.arange(1, 6) / 5 * 0.9
    assert ((masks(41, 5, 0.9, seed=9) > 0) == (u < keep)).all()
    assert StreamTag.DEPTH == 5


def test_a_step_past_the_counters_word_wraps():
    np.testing.assert_array_equal(masks(2**32 + 5, 9, 0.9), masks(5, 9, 0.9))


@given(st.integers(0, 10**9), st.integers(1, 40), st.floats(0, 1))
def test_scales_are_finite_and_either_zero_or_at_least_one(step, blocks, drop):
    scale = masks(step, blocks, drop)
    assert np.isfinite(scale).all()
    assert ((scale == 0) | (scale >= 1)).all()


def added(a, b, scale=None):
    n = len(a)
    given = {"scale": [NAN if scale is None else scale], "scaled": int(scale is not None)}
    return run_host("scaled_add", a=a, b=b, out=n, n=n, **given)["out"][:n].tolist()


@pytest.mark.parametrize(("scale", "out"), [(None, [11, 22]), (2.0, [21, 42]), (0.0, [1, 2])])
def test_scaled_add(scale, out):
    assert added([1, 2], [10, 20], scale) == out


def test_a_block_left_out_reaches_nothing():
    assert added([1, 2, 3], [NAN, INF, -INF], 0.0) == [1, 2, 3]
    out = run_host("scaled_add_grad", grad_out=[NAN, INF, 1], scale=[0], grad_b=3, n=3)
    assert out["grad_b"].tolist() == [0, 0, 0]


def test_gradient_of_the_scaled_summand():
    out = run_host("scaled_add_grad", grad_out=[1, -2, NAN], scale=[4], grad_b=3, n=3)["grad_b"]
    np.testing.assert_array_equal(out, [4, -8, NAN])


def test_nothing_to_add():
    assert added([], []) == []
    assert np.isnan(run_host("scaled_add_grad", grad_out=[], scale=[1], grad_b=0, n=0)["grad_b"])
