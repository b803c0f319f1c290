"""What large batches and many lanes are done with: the same bits as the one-block kernels give."""

from __future__ import annotations

import numpy as np
import pytest
from gpu.test_replay import on, sampling
from hypothesis import given
from hypothesis import strategies as st
from replay.implementations import KernelReplay, SpreadReplay, insert_slots

from onegraph.kernels.device import HostDevice
from onegraph.kernels.replay import (
    raw_weights,
    refresh_drawn,
    refresh_slot,
    refresh_touched,
    sample_batch,
    tree,
)
from onegraph.trainer.legacy.replay import ReplaySpec


def spec_of(lanes: int, slots: int) -> ReplaySpec:
    return ReplaySpec(
        lanes=lanes,
        slots=slots,
        padded=8,
        seed=0,
        stratified=True,
        n_step=1,
        gamma=0.9,
        alpha=0.6,
        eps=1e-6,
    )


@given(
    lanes=st.sampled_from([1, 3, 40, 1100]),
    slots=st.integers(1, 40),
    n=st.integers(0, 3000),
    seed=st.integers(0, 2**32),
)
def test_a_replay_spread_over_the_device_holds_the_same_numbers(lanes, slots, n, seed) -> None:
    rng = np.random.default_rng(seed)
    device, spec = HostDevice(), spec_of(lanes, slots)
    pair = KernelReplay(device, spec), SpreadReplay(device, spec)
    held = rng.integers(1, slots + 2)
    index = rng.integers(-2, spec.capacity + 2, n).astype(np.int32)
    td = rng.normal(size=n).astype(np.float32)
    td[rng.random(n) < 0.05] = np.nan
    stale = rng.random(n) < 0.05
    for replay in pair:
        insert_slots(replay, np.zeros(held * lanes))
        inside = index.clip(0, spec.capacity - 1)
        generation = replay.read("replay_generation")[inside] + stale.astype(np.uint32)
        replay.update(index, generation, td)
    for name in ("leaves", "nodes", "max_leaf", "owner"):
        one, other = (replay.read(f"replay_{name}") for replay in pair)
        np.testing.assert_array_equal(one, other, err_msg=name)
    np.testing.assert_array_equal(*(replay.read("diagnostics") for replay in pair))
    np.testing.assert_array_equal(*(replay.weights(index, 0.4) for replay in pair))


def test_levels_by_twos_up_to_the_root() -> None:
    assert [list(refresh_drawn.levels(n)) for n in (1, 32, 33, 1024, 2**20, 10**7)] == [
        [1],
        [1],
        [1],
        [1],
        [1, 3],
        [1, 3, 5],
    ]
    assert list(refresh_drawn.levels(10**7, 2)) == [2, 4]
    assert [tree.group_count(2**20, level) for level in (1, 2, 3, 4)] == [1024, 32, 1, 1]


@pytest.mark.parametrize(
    ("leaf_count", "n", "pays"),
    [
        (1, 0, True),  # nothing either way
        (1, 1, False),
        (1024, 5, False),  # two levels: one launch has both
        (1025, 32, True),
        (1025, 33, False),  # as many as level 1 has nodes
        (2**20, 257, False),  # four levels
        (10**7, 65_536, True),
        (10**7, 312_500, False),
        (2**26, 65_536, True),
    ],
)
def test_where_level_1_has_a_launch_of_its_own(leaf_count, n, pays) -> None:
    assert refresh_touched.pays(leaf_count, n) is pays


def test_only_the_nodes_right_above_are_recomputed() -> None:
    """Leaves 33 and 1024 lie under the second and the last node of level 1."""
    leaves = np.ones(1025, np.float32)
    args = {
        "leaves": leaves,
        "nodes": np.full(tree.node_count(1025), -5.0),
        "index": np.array([33, 1024, -1, 1025, 34, 2], np.int32),
        "leaf_count": 1025,
        "n": 5,
        "lanes": 40,
    }
    nodes = on(HostDevice(), "refresh_touched", args, 1)["nodes"]
    assert np.flatnonzero(nodes != -5.0).tolist() == [1, 32]
    assert nodes[[1, 32]].tolist() == [32.0, 1.0]
    with pytest.raises(ValueError, match="5 nodes have 40 lanes, not 5"):
        on(HostDevice(), "refresh_touched", args | {"lanes": 5}, 1)


@given(st.integers(1, 5000), st.integers(0, 10**6), st.sampled_from([1, 3]))
def test_no_more_groups_are_touched_than_are_launched(lanes, first, level) -> None:
    width = 32 ** (level + 1)
    touched = (first + lanes - 1) // width - first // width + 1
    assert touched <= refresh_slot.groups_over(lanes, level) <= touched + 1


@pytest.mark.parametrize(("n", "parts"), [(0, 1), (1, 1), (256, 1), (257, 2), (10**6, 1024)])
def test_parts_of_a_batch(n, parts) -> None:
    assert raw_weights.parts_of(n) == parts


@pytest.mark.parametrize(
    ("n", "n_step", "each", "warps"),
    [
        (0, 1, 1, 0),
        (4096, 3, 1, 4096),
        (4097, 3, 8, 513),
        (65_536, 8, 8, 8192),
        (65_536, 9, 1, 65_536),
    ],
)
def test_rows_that_share_a_warp(n, n_step, each, warps) -> None:
    assert sample_batch.rows_each(n, n_step) == each
    assert sample_batch.warps_of(n, each) == warps


def test_a_warp_takes_one_row_or_those_that_there_is_code_for() -> None:
    args = sampling(np.random.default_rng(0), 33, 1, 5, 1, 1, each=3)
    with pytest.raises(ValueError, match="takes 1 row at a time or 8, not 3"):
        on(HostDevice(), "sample_batch", args, 1)
