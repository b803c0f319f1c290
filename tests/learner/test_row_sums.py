"""Sums along and across rows: exact on whole numbers, and in the order that they state."""

import numpy as np
import pytest

from onegraph.kernels.learner.row_sums import sum_over_rows, warp_sum


@pytest.mark.parametrize("n", [0, 1, 7, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whole_numbers_add_exactly(n, dtype):
    rows = np.arange(3 * n, dtype=dtype).reshape(3, n)
    assert warp_sum(rows).tolist() == rows.sum(axis=1).tolist()
    assert sum_over_rows(rows.T).tolist() == rows.sum(axis=1).tolist()
    assert warp_sum(rows).dtype == sum_over_rows(rows.T).dtype == dtype


def test_the_warps_tree_and_the_lanes_order():
    # 1 + 2^-24 is 1 in float32: a small number survives only beside another small one.
    big, small = 1.0, 2.0**-24
    row = np.zeros((1, 64), np.float32)
    row[0, 0], row[0, 16], row[0, 48] = big, small, small
    # lane 16 adds its own two first, 2^-23, which lane 0 can then hold
    assert warp_sum(row)[0] == np.float32(1 + 2.0**-23)
    row[0, 48], row[0, 8] = 0, small
    # lane 0 takes lane 16's, then lane 8's: each is lost
    assert warp_sum(row)[0] == 1


def test_the_order_over_rows():
    big, small = 1.0, 2.0**-24
    column = np.zeros((64, 1), np.float32)
    column[0], column[1], column[3] = big, small, small
    assert sum_over_rows(column)[0] == np.float32(1 + 2.0**-23)  # l1 + l3 stand together
    column[3], column[2] = 0, small
    assert sum_over_rows(column)[0] == 1
