import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.contract import chi_square_bound

from onegraph.kernels.common.philox import philox_uniform
from onegraph.kernels.replay import tree

capacities = st.one_of(
    st.integers(1, 5000), st.sampled_from([1, 31, 32, 33, 1023, 1024, 1025, 4096, 4999, 5000])
)


@st.composite
def trees(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Leaves of random sizes, a random part of them zero, and their nodes."""
    capacity = draw(capacities)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 1.0, 20.0]))
    leaves = np.exp(rng.normal(0, spread, capacity).clip(-60, 60)).astype(np.float32)
    leaves[rng.random(capacity) < draw(st.sampled_from([0.0, 0.5, 0.99, 1.0]))] = 0
    nodes = np.full(tree.node_count(capacity), np.nan)
    tree.rebuild(leaves, nodes)
    return leaves, nodes, rng


def slow_scan(children: list[float]) -> list[float]:
    """The definition, an element at a time."""
    scan = [*children, *[0.0] * (32 - len(children))]
    for stride in (1, 2, 4, 8, 16):
        scan = [x + scan[i - stride] if i >= stride else x for i, x in enumerate(scan)]
    return scan


def slow_levels(leaves: np.ndarray) -> list[list[float]]:
    levels = [leaves.astype(np.float64).tolist()]
    while len(levels) == 1 or len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([slow_scan(below[i : i + 32])[-1] for i in range(0, len(below), 32)])
    return levels


def slow_descend(levels: list[list[float]], threshold: float) -> int:
    t = 0.0 if math.isnan(threshold) else threshold
    at = 0
    for below in reversed(levels[:-1]):
        children = below[at * 32 : at * 32 + 32]
        scan = slow_scan(children)
        positive = [c for c, value in enumerate(children) if value > 0]
        child = next((c for c in positive if t < scan[c]), positive[-1] if positive else 0)
        t -= scan[child - 1] if child else 0.0
        at = at * 32 + child
    return at


@pytest.mark.parametrize(
    ("leaves", "levels"),
    [
        (1, ((0, 1),)),
        (32, ((0, 1),)),
        (33, ((0, 2), (2, 1))),
        (1024, ((0, 32), (32, 1))),
        (1025, ((0, 33), (33, 2), (35, 1))),
        (1 << 20, ((0, 32768), (32768, 1024), (33792, 32), (33824, 1))),
    ],
)
def test_levels(leaves: int, levels: tuple[tuple[int, int], ...]) -> None:
    assert tree.tree_levels(leaves) == levels
    assert tree.node_count(leaves) == sum(size for _, size in levels)


def test_a_tree_without_leaves_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one leaf, got 0"):
        tree.tree_levels(0)


def test_scan_of_ones_counts() -> None:
    assert tree.scan32(np.ones(32)).tolist() == list(range(1, 33))


def test_the_order_of_summation() -> None:
    # 2^53 + 1 rounds to 2^53: the ones survive only where they meet each other first.
    children = [2.0**53, 1.0, 1.0, 1.0] + [0.0] * 28
    assert tree.scan32(children)[3] == 2.0**53 + 2
    assert tree.sum32(children) == 2.0**53 + 2
    children = [2.0**53, 0.0, 1.0, 1.0] + [0.0] * 28
    assert tree.sum32(children) == 2.0**53 + 2


@given(st.lists(st.floats(0, 1e30), min_size=32, max_size=32))
def test_scan_and_sum_are_the_definition(children: list[float]) -> None:
    scan = slow_scan(children)
    assert tree.scan32(children).tolist() == scan
    assert tree.sum32(children) == scan[-1]


@settings(deadline=None, max_examples=40)
@given(trees())
def test_nodes_are_the_definition(made: tuple[np.ndarray, np.ndarray, np.random.Generator]) -> None:
    leaves, nodes, _ = made
    assert nodes.tolist() == [x for level in slow_levels(leaves)[1:] for x in level]


@settings(deadline=None, max_examples=60)
@given(trees())
def test_the_root_is_the_sum(made: tuple[np.ndarray, np.ndarray, np.random.Generator]) -> None:
    leaves, nodes, _ = made
    assert nodes[-1] == pytest.approx(math.fsum(leaves.tolist()), rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(trees())
def test_the_descent_is_the_definition(
    made: tuple[np.ndarray, np.ndarray, np.random.Generator],
) -> None:
    leaves, nodes, rng = made
    total = nodes[-1]
    edges = np.cumsum(leaves, dtype=np.float64)[rng.integers(0, leaves.size, 8)]
    thresholds = np.concatenate(
        [
            rng.random(20) * total,
            edges,
            np.nextafter(edges, 0),
            [0.0, total, np.nextafter(total, 0), -1.0, np.nan, np.inf, -np.inf],
        ]
    )
    index = tree.descend(leaves, nodes, thresholds)
    levels = slow_levels(leaves)
    assert index.tolist() == [slow_descend(levels, t) for t in thresholds.tolist()]
    assert index.min() >= 0
    assert index.max() < leaves.size
    if total > 0:
        assert (leaves[index] > 0).all()


@settings(deadline=None, max_examples=60)
@given(trees(), st.integers(0, 300))
def test_a_refresh_is_a_rebuild(
    made: tuple[np.ndarray, np.ndarray, np.random.Generator], touched: int
) -> None:
    leaves, nodes, rng = made
    index = rng.integers(0, leaves.size, touched)
    leaves[index] = rng.random(touched).astype(np.float32)
    tree.refresh(leaves, nodes, index)
    whole = np.empty_like(nodes)
    tree.rebuild(leaves, whole)
    assert np.array_equal(nodes, whole)


@pytest.mark.soak
def test_ten_million_leaves_are_drawn_evenly_and_24_bits_would_not_do() -> None:
    leaves = np.ones(10_000_000, np.float32)
    nodes = np.empty(tree.node_count(leaves.size))
    tree.rebuild(leaves, nodes)
    fine, coarse = np.zeros(leaves.size, np.int64), np.zeros(leaves.size, np.int64)
    steps, draws = 200, 100_000
    for step in range(steps):
        u = philox_uniform(1, np.arange(draws), step, 1)[:, 0]
        fine += np.bincount(tree.descend(leaves, nodes, u * nodes[-1]), minlength=leaves.size)
        u24 = np.floor(u * 2**24) / 2**24
        coarse += np.bincount(tree.descend(leaves, nodes, u24 * nodes[-1]), minlength=leaves.size)
    expected = steps * draws / leaves.size
    bound = chi_square_bound(leaves.size - 1)
    assert ((fine - expected) ** 2).sum() / expected < bound
    assert ((coarse - expected) ** 2).sum() / expected > bound
