"""Bit flipping and hindsight on a GPU: each kernel bit for bit against its twin."""

import numpy as np
import pytest
from pair_runs import assert_same
from replay.hindsight_rings import random_ring

from onegraph.kernels.common.layout import SCHEDULES, Flag
from onegraph.kernels.replay import tree
from onegraph.kernels.replay.hindsight_assemble import Strategy

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("lanes", [1, 3, 4, 5, 131])
@pytest.mark.parametrize(("bits", "padded"), [(1, 8), (3, 8), (15, 32), (33, 72), (64, 128)])
@pytest.mark.parametrize("max_steps", [0, 1, 4])
def test_env_bit_flip(cuda, lanes, bits, padded, max_steps):
    rng = np.random.default_rng(lanes)
    state = {
        "lane_steps": np.zeros(lanes),
        "lane_episode": np.zeros(lanes),
        "obs": np.full((lanes, padded), np.nan),
    }
    for step in range(10):
        out = assert_same(
            cuda,
            "env_bit_flip",
            action=rng.integers(-1, bits + 1, lanes),
            **state,
            obs_tm1=lanes * padded,
            obs_t=lanes * padded,
            reward=lanes,
            flags=lanes,
            episode=lanes,
            lanes=lanes,
            bits=bits,
            padded=padded,
            max_steps=max_steps,
            seed=2**63 + 5,
            reset=int(step == 0),
        )
        state = {name: out[name] for name in state}


#: Lanes, slots, slots written, chance that a row ends an episode. The last has one long episode.
RINGS = [
    (1, 1, 1, 0.3),
    (3, 1, 5, 0.3),
    (1, 50, 50, 0.05),
    (7, 100, 60, 0.1),
    (5, 33, 50, 0.5),
    (64, 40, 133, 0.02),
    (2, 200, 317, 0.0),
]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(("lanes", "slots", "turns", "ends"), RINGS)
@pytest.mark.parametrize(("n", "n_step"), [(0, 1), (1, 1), (2, 3), (37, 5), (700, 40)])
def test_hindsight_assemble(cuda, strategy, lanes, slots, turns, ends, n, n_step):
    rng = np.random.default_rng(n)
    ring = random_ring(
        rng,
        lanes=lanes,
        slots=slots,
        turns=turns,
        ends=ends,
        invalid=0.01,
        strategy=strategy,
        n_step=n_step,
        gamma=0.97,
        achieved=3,
        seed=2**63 + 5,
        step=2**32 + n,
    )
    assert_same(
        cuda, "hindsight_assemble", **ring.arguments(rng.integers(-2, lanes * slots + 2, n))
    )


@pytest.mark.parametrize("width", [1, 31, 32, 33, 70])
def test_hindsight_assemble_with_wide_goals(cuda, width):
    rng = np.random.default_rng(width)
    ring = random_ring(
        rng, lanes=4, slots=30, turns=41, padded=152, width=width, achieved=75, n_step=6, ends=0.1
    )
    for row in range(0, 120, 3):  # so that goals of this width are met
        ring.next_state[row] = ring.next_state[(row + 8) % 120]
    assert_same(cuda, "hindsight_assemble", **ring.arguments(rng.integers(0, 120, 400)))


@pytest.mark.parametrize("head", [-1, 30, 2**40])
def test_a_head_outside_the_ring_is_taken_modulo_its_slots(cuda, head):
    rng = np.random.default_rng(1)
    ring = random_ring(rng, lanes=4, slots=30, turns=41, n_step=6)
    ring.head = head
    assert_same(cuda, "hindsight_assemble", **ring.arguments(rng.integers(0, 120, 400)))


def relabelling(rng, strategy, lanes, slots, turns, ends, n, n_step, weigh):
    """Arguments of `sample_relabelled`."""
    rows = lanes * slots
    ring = random_ring(
        rng,
        lanes=lanes,
        slots=slots,
        turns=turns,
        ends=ends,
        strategy=strategy,
        n_step=n_step,
        achieved=3,
        seed=2**63 + 5,
        step=2**32 + n,
    )
    written = np.arange(rows) < ring.filled
    leaves = np.where(written & (ring.flags & Flag.INVALID == 0), rng.random(rows), 0)
    nodes = np.empty(tree.node_count(rows))
    tree.rebuild(leaves.astype(np.float32), nodes)
    args = ring.arguments(np.zeros(n, np.int32))
    width, padded = 7, ring.padded
    batch = {
        "leaves": leaves,
        "nodes": nodes,
        "generation": rng.integers(0, 2**32, rows),
        "ring_state": rng.normal(size=(rows, padded)),
        "ring_next_state": args.pop("next_state"),
        "ring_action": rng.integers(0, 9, rows),
        **{f"ring_{name}": args.pop(name) for name in ("reward", "flags", "episode")},
        "schedule": np.full(SCHEDULES, 0.4),
        "sampled_generation": n,
        "state": n * padded,
        "next_state": n * padded,
        "action": n,
        "weights": n,
        "ticket": np.zeros(1),
        "leaf_count": rows,
        "width": width,
        "strata": n // 2,
        "weigh": weigh,
        "goal": 5,
        "goal_width": args.pop("width"),
    }
    for name in ("last", "donor"):
        del args[name]
    return args | batch | {"index": n}


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(("lanes", "slots", "turns", "ends"), RINGS)
@pytest.mark.parametrize(("n", "n_step", "weigh"), [(0, 1, 1), (1, 1, 1), (2, 3, 0), (700, 40, 1)])
def test_sample_relabelled(cuda, strategy, lanes, slots, turns, ends, n, n_step, weigh):
    rng = np.random.default_rng(n)
    args = relabelling(rng, strategy, lanes, slots, turns, ends, n, n_step, weigh)
    assert_same(cuda, "sample_relabelled", **args)


@pytest.mark.parametrize("n", [0, 1, 257, 3000])
@pytest.mark.parametrize(
    ("width", "src_stride", "dst_stride", "achieved", "goal", "goal_width"),
    [(8, 8, 8, 0, 4, 4), (30, 32, 30, 0, 15, 15), (30, 32, 32, 3, 20, 7), (5, 8, 40, 0, 4, 4)],
)
def test_gather_relabelled(cuda, n, width, src_stride, dst_stride, achieved, goal, goal_width):
    rng, rows = np.random.default_rng(n), 300
    src, after = rng.normal(size=(2, rows, src_stride)).astype(np.float32)
    src[3], after[4] = np.nan, np.inf
    assert_same(
        cuda,
        "gather_relabelled",
        src=src,
        next_state=after,
        index=rng.integers(-2, rows + 2, n),
        donor=rng.integers(-rows, rows + 2, n),
        dst=n * dst_stride,
        n=n,
        width=width,
        src_stride=src_stride,
        dst_stride=dst_stride,
        achieved=achieved,
        goal=goal,
        goal_width=goal_width,
        rows=rows,
    )
