"""The twins of the kernels of large tiles, and what these take, by hand-computed values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegraph.kernels.catalogue import find
from onegraph.kernels.learner import gemm, matmul

PRECISIONS = ("float32", "tf32", "tf32x3")


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        ([(2048, 1024, 1024)], [(4, 1)]),  # 128 tiles of 128 x 128
        ([(1024, 1024, 2048)], [(4, 2)]),  # 64, of which two blocks share each sum
        ([(512, 512, 512)], [(2, 2)]),  # 64 tiles of 64 x 64
        ([(512, 512, 512)] * 3, [(3, 1)] * 3),  # 96 tiles of 128 x 64
        ([(512, 256, 256)], [(1, 1)]),  # 32 tiles of 64 x 64 would leave most of a GPU idle
        ([(512, 256, 256)] * 4, [(2, 1)] * 4),
        ([(64, 1024, 2048)], [(1, 2)]),
        ([(2048, 8, 1024)], [(0, 1)]),
        ([(2048, 8, 1024)] * 3, [(5, 1)] * 3),  # 96 tiles of 64 x 8
        ([(1024, 7, 2048)], [(0, 2)]),
        ([(2048, 8, 1024), (2048, 1024, 64)], [(0, 1), (4, 1)]),
        ([(0, 5, 3)], [(0, 1)]),
    ],
)
def test_plan(sizes, want):
    assert matmul.plan(sizes) == want


def test_no_sum_is_split_without_clusters():
    assert matmul.plan([(1024, 1024, 2048), (1024, 7, 2048)], largest_cluster=1) == [(4, 1), (0, 1)]


@pytest.mark.parametrize(
    ("kib", "want"),
    [
        (227, (4, 205_824)),  # Hopper: with what warpgroups need
        (163, (4, 110_592)),
        (99, (3, 82_944)),  # Ada: 110,592 bytes are too many
    ],
)
def test_tiles_fit_the_shared_memory_of_a_block(kib, want):
    product = ("a", "b", None, "out", (2048, 1024, 1024), 0, False, False)
    got = matmul.arguments([product], largest_cluster=1, largest_shared=kib * 1024)
    assert (got["form0"] >> 5 & 7, got["shared_bytes"]) == want


def test_large_tiles_are_not_for_gpus_of_little_shared_memory():
    """Turing: 64 KiB, of which the second tile needs 80."""
    assert matmul.is_wide([(2048, 1024, 1024)], 99 * 1024)
    assert not matmul.is_wide([(2048, 1024, 1024)], 64 * 1024)


@pytest.mark.parametrize(
    ("sizes", "wide"),
    [
        ([(64, 256, 256)] * 3, False),  # 48 tiles of 32 x 32
        ([(512, 256, 256)], True),  # 128
        ([(256, 256, 512)], False),
        ([(512, 512, 512)], True),
        ([(64, 1024, 2048)], True),  # 64, by two blocks each
        ([(512, 8, 512)], True),  # narrow, 2^18 elements
        ([(512, 8, 511)], False),
        ([(0, 8, 512)], False),
    ],
)
def test_which_products_have_large_tiles(sizes, wide):
    assert matmul.is_wide(sizes) is wide


@pytest.mark.parametrize(
    ("size", "precision", "large"),
    [
        ((1024, 1024, 1024), "float32", True),
        ((1024, 1024, 1024), "tf32", True),
        ((1024, 1024, 1024), "tf32x3", False),  # cuBLASLt has none of these
        ((1024, 1024, 1023), "float32", False),
        ((4, 4, 4096), "tf32x3", True),
        ((4, 4, 4095), "float32", False),
    ],
)
def test_which_products_are_cublaslts(size, precision, large):
    assert matmul.is_large(*size, precision) is large


def test_the_longest_sum_comes_first():
    """The blocks that have least to do are the last to start."""
    given = [(0, 0, None, 0, (64, 64, k), 0, False, False) for k in (512, 2048, 512, 1024)]
    got = matmul.arguments([(f"a{i}", *rest) for i, (_, *rest) in enumerate(given)])
    assert [got[f"k{i}"] for i in range(4)] == [2048, 1024, 512, 512]
    assert [got[f"a{i}"] for i in range(4)] == ["a1", "a3", "a0", "a2"]


def test_tf32_of_a_float():
    """Ten bits behind the point. 1 + 2^-11 is halfway; a TF32 number stays what it is."""
    ulp = 2.0**-10
    given = f32(1, 1 + ulp, 1 + ulp / 4, 1 + ulp * 0.9, -1 - ulp * 0.9, 0, np.inf, -np.inf)
    want = f32(1, 1 + ulp, 1, 1 + ulp, -1 - ulp, 0, np.inf, -np.inf)
    np.testing.assert_array_equal(matmul.as_tf32(given), want)
    # The payload that a GPU gives NaN would carry into the sign, were the bits added to.
    canonical = np.array([0x7FFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(matmul.as_tf32(canonical)).all()


@given(st.floats(2.0**-60, 2.0**60, width=32), st.booleans())
def test_tf32_is_within_two_thirds_of_its_last_place(x, negative):
    value = f32(-x if negative else x)
    got = matmul.as_tf32(value)
    assert got.view(np.uint32)[0] & 0x1FFF == 0
    ulp = 2.0 ** (np.floor(np.log2(x)) - 10)
    assert abs(float(got[0]) - float(value[0])) <= 0.67 * ulp
    np.testing.assert_array_equal(matmul.as_tf32(got), got)


def arguments(extra: np.ndarray, out: np.ndarray, epilogue: int, trans_a: bool = False) -> dict:
    a, b = f32(1, 2, 3, 4), f32(5, 6, 7, 8)
    return matmul.arguments([(a, b, extra, out, (2, 2, 2), epilogue, trans_a, False)])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("epilogue", "extra", "trans_a", "want"),
    [
        (gemm.NONE, f32(9, 9), False, [19, 22, 43, 50]),
        (gemm.NONE, f32(9, 9), True, [26, 30, 38, 44]),
        (gemm.BIAS, f32(1, -1), False, [20, 21, 44, 49]),
        (gemm.BIAS_RELU, f32(-20, 0), False, [0, 22, 23, 50]),
        (gemm.RELU_GRAD, f32(1, 0, np.nan, 2), False, [19, 0, 0, 50]),
    ],
)
def test_products_that_tf32_holds_exactly(precision, epilogue, extra, trans_a, want):
    out = np.full(4, np.nan, np.float32)
    find(f"matmul_{precision}").twin(**arguments(extra, out, epilogue, trans_a))
    assert out.tolist() == want


@pytest.mark.parametrize("precision", PRECISIONS)
def test_sums_of_columns_are_of_b_itself(precision):
    sums, out = f32(0, 0), np.zeros(4, np.float32)
    b = f32(1 + 2.0**-20, 1, 1, 1)
    given = (f32(1, 1, 1, 1), b, sums, out, (2, 2, 2), gemm.BIAS_GRAD, True, False)
    find(f"matmul_{precision}").twin(**matmul.arguments([given]))
    assert sums.tolist() == [2 + 2.0**-20, 2]


def test_wrong_arguments_are_refused():
    given = arguments(f32(0, 0), np.zeros(4, np.float32), gemm.NONE)
    run = find("matmul_float32").twin
    with pytest.raises(ValueError, match="the members take 1 turns, and 2 are asked for"):
        run(**{**given, "turns": 2})
    with pytest.raises(ValueError, match="bytes of shared memory"):
        run(**{**given, "shared_bytes": 4})
    both = matmul.form(gemm.NONE, 1, 1, trans_a=True, trans_b=True)
    with pytest.raises(ValueError, match="both factors transposed"):
        run(**{**given, "form0": both})
    split = matmul.form(gemm.NONE, 0, 4, trans_a=False, trans_b=False)
    with pytest.raises(ValueError, match="a cluster of 2 blocks can't be split by 4"):
        run(**{**given, "form0": split, "cluster": 2})
