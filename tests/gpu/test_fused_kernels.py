"""The fused kernels on a GPU against their twins, at edge sizes."""

from __future__ import annotations

import numpy as np
import pytest
from fused_cases import SIZES, apply_case, td_case
from pair_runs import assert_same, run_on

from onegraph.kernels.fused.td_pass import ROWS, SHARED_LIMIT

pytestmark = pytest.mark.gpu

#: Sums of some hundred products of size 1 in another order; absolute, by array.
TD_TOLERANCE = dict.fromkeys(
    ("td", "loss", "q_taken", "hidden0", "hidden1", "grad_head", "grad1", "grad0"), 2e-5
)
#: Adam divides by the root of a square: an element whose gradient is almost nothing may differ.
APPLY_TOLERANCE = {
    "grad": 2e-5, "theta": 2e-5, "m": 2e-5, "v": 2e-5, "target": 2e-6, "partial": 1e-2,
    "clip": 1e-4, "record": 1e-4, "history": 1e-4,
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("cluster", [4, 8])
@pytest.mark.parametrize("rows", ROWS)
def test_td_pass(cuda, size, rows, cluster):
    case = td_case(size, rows=rows, cluster=cluster)
    if case["shared_bytes"] > SHARED_LIMIT:
        pytest.skip(f"{case['shared_bytes']} bytes of shared memory are more than a block has")
    assert_same(cuda, "td_pass", TD_TOLERANCE, **case)


@pytest.mark.parametrize("changes", [{"double_q": 0}, {"mse": 1}, {"skip": np.ones(1, np.int32)}])
def test_td_pass_variants(cuda, changes):
    assert_same(cuda, "td_pass", TD_TOLERANCE, **td_case((33, 16, 36, 52, 4, 1), **changes))


def test_td_pass_does_not_depend_on_its_shape(cuda):
    size = (64, 64, 256, 256, 2, 1)
    runs = [
        run_on(cuda, "td_pass", blocks, **td_case(size, rows=rows, cluster=8))
        for rows in ROWS
        for blocks in (8, 4096)
    ]
    for name, values in runs[0].items():
        for other in runs[1:]:
            np.testing.assert_array_equal(values, other[name], err_msg=name)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_apply_step(cuda, size):
    assert_same(cuda, "apply_step", APPLY_TOLERANCE, **apply_case(size))


@pytest.mark.parametrize(
    "changes", [{"every": 2}, {"every": 3}, {"prioritise": 0}, {"max_norm": 0.0}]
)
def test_apply_step_variants(cuda, changes):
    assert_same(
        cuda, "apply_step", APPLY_TOLERANCE, **apply_case((33, 16, 36, 52, 4, 1), **changes)
    )


def test_apply_step_skips_what_is_not_finite(cuda):
    case = apply_case((33, 16, 36, 52, 4, 1))
    case["grad1"][5] = np.nan
    found = assert_same(cuda, "apply_step", APPLY_TOLERANCE, **case)
    assert found["skip"][0] == 1
    for name in ("theta", "m", "v", "target"):
        np.testing.assert_array_equal(found[name], case[name])
