"""Products whose rows follow one another in memory: which do, and that they are one product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onegraph.kernels.device import HostDevice
from onegraph.kernels.device.base import DeviceArray, Matmul, Product, stacked
from onegraph.kernels.learner.row_stacks import Rows, rows_of, stacks


def product(row: int, rows: int, **changes: Any) -> Rows:
    """Rows `row` on of ``x [., 4] w [4, 3]``, with a mask if one is asked for."""
    given: dict[str, Any] = {
        "sizes": (rows, 3, 4),
        "a": ("x", 4 * row),
        "b": ("w", 0),
        "out": ("y", 3 * row),
        "extra": ("bias", 0),
        "rest": "",
        "trans_a": False,
        "epilogue": "bias",
    }
    return rows_of(**{**given, **changes})


def test_rows_that_follow_one_another_are_a_stack() -> None:
    assert stacks([product(0, 2), product(2, 5), product(7, 1)]) == [[0, 1, 2]]
    # Whatever order they are given in: a stack begins with its first row.
    assert stacks([product(7, 1), product(0, 2), product(2, 5)]) == [[1, 2, 0]]


def test_what_is_between_two_keeps_them_apart() -> None:
    assert stacks([product(0, 2), product(3, 1)]) == [[0], [1]]
    assert stacks([product(0, 1), product(9, 1), product(1, 1), product(10, 1)]) == [[0, 2], [1, 3]]
    assert stacks([]) == []


@pytest.mark.parametrize(
    "other",
    [
        {"b": ("w", 12)},
        {"b": ("v", 0)},
        {"a": ("z", 8)},
        {"out": ("z", 6)},
        {"out": ("y", 7)},
        {"extra": ("bias", 3)},
        {"epilogue": "bias_relu"},
        {"rest": "tf32"},
        {"trans_a": True},
        {"sizes": (2, 2, 4), "out": ("y", 6)},
    ],
)
def test_another_product_is_another_stack(other: dict[str, Any]) -> None:
    assert stacks([product(0, 2), product(2, 2, **other)]) == [[0], [1]]


def test_a_mask_goes_by_rows_and_a_bias_does_not() -> None:
    masked = [product(r, 2, epilogue="relu_grad", extra=("mask", 3 * r)) for r in (0, 2)]
    assert stacks(masked) == [[0, 1]]
    masked[1] = product(2, 2, epilogue="relu_grad", extra=("mask", 0))
    assert stacks(masked) == [[0], [1]]


@pytest.mark.parametrize("sizes", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_a_product_without_elements_is_by_itself(sizes: tuple[int, int, int]) -> None:
    empty = product(0, 0, sizes=sizes, out=("y", 0))
    assert stacks([empty, product(0, 2, out=("z", 0))]) == [[0], [1]]


def test_gradients_of_weights_are_no_rows() -> None:
    parts = [product(r, 2, epilogue="bias_grad", extra=("sums", 0)) for r in (0, 2)]
    assert stacks(parts) == [[0], [1]]


# ---------------------------------------------------------------- on a device


def values(array: DeviceArray) -> np.ndarray:
    return np.asarray(array.to_host_checkpoint()).reshape(-1)


@pytest.mark.parametrize("epilogue", ["none", "bias", "relu_grad"])
def test_a_stack_is_one_product_of_all_rows(epilogue: Any) -> None:
    device, random = HostDevice(), np.random.default_rng(3)

    def upload(*shape: int) -> DeviceArray:
        return device.upload(random.integers(-3, 4, shape).astype(np.float32))

    x, w, mask, bias = upload(6, 2), upload(2, 3), upload(6, 3), upload(3)
    apart, at_once = (device.allocate((6, 3), "f32") for _ in range(2))

    def part(out: DeviceArray, first: int, rows: int) -> Product:
        extra = {"bias": bias, "relu_grad": mask.view(3 * first, (3 * rows,))}.get(epilogue)
        a, to = x.view(2 * first, (2 * rows,)), out.view(3 * first, (3 * rows,))
        return Product(Matmul(rows, 3, 2, epilogue=epilogue), a, w, to, extra)

    cuts = ((0, 1), (1, 3), (4, 2))
    members = [part(at_once, *cut) for cut in cuts]
    (found,) = stacked(members)
    assert found.spec == replace(members[0].spec, m=6)
    for p in [part(apart, *cut) for cut in cuts]:
        device.matmul(p.spec, p.a, p.b, p.out, p.extra)
    device.matmul(found.spec, found.a, found.b, found.out, found.extra)
    np.testing.assert_array_equal(values(at_once), values(apart))


def test_what_is_no_stack_stays_as_it_is() -> None:
    device = HostDevice()
    x, w, y = (device.allocate((4,), "f32", name) for name in "xwy")
    members = [Product(Matmul(2, 2, 2), x, w, y), Product(Matmul(1, 2, 2), x.view(0, (2,)), w, w)]
    assert stacked(members) == members
