"""The matmul kernel's twin and tiling by hand-computed values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegraph.kernels.learner import gemm, gemm_group, relu_epilogue


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("m", "n", "want"),
    [
        (1, 1, (8, 1, 1)),
        (16, 32, (8, 2, 1)),
        (17, 33, (8, 3, 2)),
        (64, 256, (8, 8, 8)),
        (256, 256, (16, 16, 8)),  # 64 tiles of 32 x 32 would leave half of a large GPU idle
        (512, 256, (32, 16, 8)),
        (0, 5, (8, 0, 1)),
    ],
)
def test_tiling(m, n, want):
    assert gemm.tiling(m, n) == want


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_tiles_cover_the_output_and_no_more(m, n):
    tile_m, tiles_m, tiles_n = gemm.tiling(m, n)
    assert tile_m in (8, 16, 32)
    assert 0 <= tiles_m * tile_m - m < tile_m
    assert 0 <= tiles_n * gemm.TILE_N - n < gemm.TILE_N


def _run(epilogue: int, extra: np.ndarray, trans_a: int = 0, trans_b: int = 0) -> list[float]:
    out = np.full(4, np.nan, np.float32)
    gemm.gemm(
        a=f32(1, 2, 3, 4),
        b=f32(5, 6, 7, 8),
        extra=extra,
        out=out,
        m=2,
        n=2,
        k=2,
        trans_a=trans_a,
        trans_b=trans_b,
        epilogue=epilogue,
        tile_m=8,
        tiles_m=1,
        tiles_n=1,
    )
    return out.tolist()


@pytest.mark.parametrize(
    ("epilogue", "extra", "want"),
    [
        (gemm.NONE, f32(), [19, 22, 43, 50]),
        (gemm.BIAS, f32(-20, 100), [-1, 122, 23, 150]),
        (gemm.BIAS_RELU, f32(-20, 100), [0, 122, 23, 150]),
        (gemm.RELU_GRAD, f32(0, 1, np.nan, 2), [0, 22, 0, 50]),
    ],
)
def test_epilogues(epilogue, extra, want):
    assert _run(epilogue, extra) == want


def test_bias_grad():
    sums = np.full(3, np.nan, np.float32)
    assert _run(gemm.BIAS_GRAD, sums) == [19, 22, 43, 50]
    np.testing.assert_array_equal(sums, f32(12, 14, np.nan))


def test_transposed():
    assert _run(gemm.NONE, f32(), 1, 0) == [26, 30, 38, 44]
    assert _run(gemm.NONE, f32(), 0, 1) == [17, 23, 39, 53]


def test_tiles_that_leave_outputs_out_are_refused():
    empty = f32()
    with pytest.raises(ValueError, match=r"leave out \[9, 1\]"):
        gemm.gemm(empty, empty, empty, empty, 9, 1, 0, 0, 0, 0, 8, 1, 1)


def test_a_group_is_what_its_members_are():
    outs = [np.full(4, np.nan, np.float32) for _ in range(2)]
    sums = np.full(2, np.nan, np.float32)
    args = {}
    for i in range(gemm_group.MEMBERS):
        args |= {f"a{i}": f32(1, 2, 3, 4), f"b{i}": f32(5, 6, 7, 8), f"extra{i}": sums}
        args |= {f"out{i}": outs[i % 2], f"m{i}": 2 if i < 2 else 0, f"n{i}": 2, f"k{i}": 2}
        args[f"form{i}"] = gemm_group.form(
            gemm.BIAS_GRAD if i == 1 else gemm.NONE, 8, trans_a=i == 1, trans_b=False
        )
    gemm_group.gemm_group(**args, tiles=2)
    assert [out.tolist() for out in outs] == [[19, 22, 43, 50], [26, 30, 38, 44]]
    assert sums.tolist() == [12, 14]
    with pytest.raises(ValueError, match="the members have 2 tiles, and 3 are asked for"):
        gemm_group.gemm_group(**args, tiles=3)


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ([(2, 2, 2)], False),
        ([(2, 2, 2)] * 2, True),
        ([(2, 2, 2)] * 4, True),
        ([(2, 2, 2)] * 5, False),
        ([(2, 2, 2), (1024, 1024, 1024)], False),
        ([(2, 2, 2), (1024, 1024, 1023)], True),
    ],
)
def test_which_products_go_together(sizes, together):
    assert gemm_group.groups(sizes) is together


def test_relu_epilogue():
    out = f32(-1, 2, np.nan, np.inf)
    relu_epilogue.relu_epilogue(extra=out, out=out, n=3, grad=0)
    np.testing.assert_array_equal(out, f32(0, 2, np.nan, np.inf))
    out = f32(1, 2, 3, 4, 5)
    relu_epilogue.relu_epilogue(extra=f32(0, 1, np.nan, -1, 9), out=out, n=4, grad=1)
    assert out.tolist() == [0, 2, 0, 0, 5]
