"""What an op is taken to cost: by hand, and what has to hold of any."""

from __future__ import annotations

from typing import Any

import pytest

from onegraph.stages.node_costs import Cost, cost_of
from onegraph.stages.program import Launch, LaunchGroup, MatmulGroup, MatmulOp, Memset, Ref


def product(m: int, n: int, k: int, out: str = "y") -> MatmulOp:
    return MatmulOp(m, n, k, Ref("a"), Ref("b"), Ref(out))


def relu(n: Any, out: str = "x") -> Launch:
    return Launch("relu_epilogue", {"extra": Ref("a"), "out": Ref(out), "n": n, "grad": 1})


@pytest.mark.parametrize(
    ("sizes", "nodes"),
    [
        ((1024, 1024, 256), 9.0),  # 2^28 multiply-adds, of which 2^25 are a node's
        ((2048, 1024, 256), 17.0),
        ((1, 1, 8), 2.2578),  # a short sum, however little there is to do
        ((1, 1, 256), 6.25),
        ((1, 1, 2048), 8.0),  # eight times the terms are not eight times the wait
        ((1 << 20, 1, 1), 3.0),  # two million floats: two nodes' worth of bytes
    ],
)
def test_products(sizes: tuple[int, int, int], nodes: float) -> None:
    assert cost_of(product(*sizes)).nodes == pytest.approx(nodes, rel=1e-3)


def test_other_kernels_cost_their_threads() -> None:
    spec_threads = 256 * 256
    assert cost_of(relu(spec_threads)).nodes <= 2.0
    assert cost_of(relu(8 * spec_threads)).work == 8 * cost_of(relu(spec_threads)).work
    assert cost_of(relu(Ref("n"))) == Cost()  # how many is known on the device alone
    assert cost_of(Memset(Ref("x"))).nodes == 1.0


def test_work_adds_up_and_the_longest_sum_is_waited_for() -> None:
    short, long = product(1024, 1024, 256), product(8, 8, 2048, "z")
    both = cost_of(MatmulGroup((short, long)))
    assert both.work == cost_of(short).work + cost_of(long).work
    assert both.floor == cost_of(long).floor > cost_of(short).floor
    two = cost_of(LaunchGroup((relu(1 << 20), relu(1 << 20, "z"))))
    assert two == Cost(2 * cost_of(relu(1 << 20)).work)
