"""The replay kernels on a GPU: the replay's table, and each kernel bit for bit against its twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from replay.contract import Make, ReplayContract
from replay.implementations import KernelReplay, SpreadReplay

from onegraph.kernels.catalogue import DTYPES, find
from onegraph.kernels.common.layout import (
    COUNTERS,
    DIAGNOSTICS,
    SCHEDULES,
    Counter,
    Flag,
    Schedule,
)
from onegraph.kernels.device import Device, HostDevice
from onegraph.kernels.replay import (
    raw_weights,
    refresh_drawn,
    refresh_slot,
    refresh_touched,
    sample_batch,
    tree,
)

pytestmark = pytest.mark.gpu

Array = NDArray[Any]
Args = dict[str, Any]

#: A launch that covers its work, and one that must stride over it.
CAPS = [4096, 1]
CAPACITIES = [1, 31, 32, 33, 1000, 1025, 40_000]


class TestKernelsOnCuda(ReplayContract):
    @pytest.fixture(params=CAPS)
    def make(self, cuda: Device, request: pytest.FixtureRequest) -> Make:
        return lambda spec: KernelReplay(cuda, spec, request.param)


class TestSpreadKernelsOnCuda(ReplayContract):
    @pytest.fixture(params=CAPS)
    def make(self, cuda: Device, request: pytest.FixtureRequest) -> Make:
        return lambda spec: SpreadReplay(cuda, spec, request.param)


def poison(n: int, dtype: str) -> Array:
    """`n` elements of nonsense, which a kernel must not read or leave behind."""
    kind = DTYPES[dtype]
    return np.full(n, np.nan if kind.kind == "f" else 77, kind)


def on(device: Device, kernel: str, args: Args, max_blocks: int) -> dict[str, Array]:
    """Launch once; what every array that the kernel may write holds afterwards."""
    uploaded: Args = {}
    for name, value in args.items():
        if isinstance(value, np.ndarray):
            # A device has no arrays of nothing: what is empty gets an element that must not count.
            value = device.upload(value if value.size else np.ones(1, value.dtype), name)
        uploaded[name] = value
    device.run(kernel, max_blocks=max_blocks, **uploaded)
    written = [p.name for p in find(kernel).params if p.access in ("out", "inout")]
    return {name: uploaded[name].to_host_checkpoint() for name in written}


def assert_pair(cuda: Device, kernel: str, args: Args, max_blocks: int) -> None:
    """Host and GPU leave the same bits; a NaN equals any NaN."""
    expected = on(HostDevice(), kernel, args, max_blocks)
    got = on(cuda, kernel, args, max_blocks)
    for name, right in expected.items():
        assert np.array_equal(got[name], right, equal_nan=right.dtype.kind == "f"), name


def make_tree(rng: np.random.Generator, capacity: int, zeros: float = 0.3) -> tuple[Array, Array]:
    leaves = rng.lognormal(0, 2, capacity).astype(np.float32)
    leaves[rng.random(capacity) < zeros] = 0
    nodes = np.empty(tree.node_count(capacity))
    tree.rebuild(leaves, nodes)
    return leaves, nodes


def make_counters(rng: np.random.Generator, **values: int) -> Array:
    counters = rng.integers(0, 1 << 40, COUNTERS)
    for name, value in values.items():
        counters[Counter[name]] = value
    return counters


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(params=CAPS)
def cap(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value


@pytest.mark.parametrize("n", [0, 1, 255, 256, 1000, 65_537])
@pytest.mark.parametrize("batches", [0, 1, 2])
def test_philox_thresholds(cuda, rng, cap, n, batches) -> None:
    for total, step in ((12_345.678, 3), (0.0, 2**32 + 1), (np.nan, 0), (np.inf, 7)):
        args = {
            "total": np.array([total]),
            "counters": make_counters(rng, RNG=step),
            "thresholds": poison(n + 3, "f64"),
            "n": n,
            "seed": 0xFEDCBA9876543210,
            "strata": n // batches if batches else 0,
        }
        assert_pair(cuda, "philox_thresholds", args, cap)


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("n", [0, 1, 33, 1000])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 1.0])
def test_tree_descend(cuda, rng, cap, capacity, n, zeros) -> None:
    leaves, nodes = make_tree(rng, capacity, zeros)
    thresholds = rng.uniform(-0.1, 1.1, n) * nodes[-1]
    thresholds[: min(n, 4)] = [np.nan, np.inf, -np.inf, nodes[-1]][: min(n, 4)]
    args = {
        "leaves": leaves,
        "nodes": nodes,
        "thresholds": thresholds,
        "generation": rng.integers(0, 2**32, capacity, dtype=np.uint32),
        "index": poison(n + 1, "i32"),
        "sampled_generation": poison(n + 1, "u32"),
        "n": n,
        "leaf_count": capacity,
    }
    assert_pair(cuda, "tree_descend", args, cap)


@pytest.mark.parametrize(
    ("lanes", "slots", "filled"), [(1, 1, 1), (3, 1, 3), (1, 50, 50), (7, 100, 350), (64, 33, 2112)]
)
@pytest.mark.parametrize("n_step", [1, 3, 200])
def test_nstep_assemble(cuda, rng, cap, lanes, slots, filled, n_step) -> None:
    rows, n = lanes * slots, 700
    reward = rng.normal(size=rows).astype(np.float32)
    reward[rng.random(rows) < 0.02] = np.inf
    choices = [0] * 20 + [Flag.TERMINATED, Flag.TRUNCATED, Flag.INVALID, 3, 5, 6, 7]
    for head in {filled // lanes % slots, slots // 2}:
        args = {
            "index": rng.integers(-3, rows + 3, n).astype(np.int32),
            "reward": reward,
            "flags": rng.choice(choices, rows).astype(np.uint8),
            "counters": make_counters(rng, HEAD=head, FILLED=filled),
            "last": poison(n + 1, "i32"),
            "ret": poison(n + 1, "f32"),
            "discount": poison(n + 1, "f32"),
            "n": n,
            "lanes": lanes,
            "slots": slots,
            "n_step": n_step,
            "gamma": 0.997,
        }
        assert_pair(cuda, "nstep_assemble", args, cap)


@pytest.mark.parametrize("n", [0, 1, 257])
@pytest.mark.parametrize(("width", "src_stride", "dst_stride"), [(1, 1, 1), (5, 8, 8), (8, 8, 16)])
def test_gather_rows(cuda, rng, cap, n, width, src_stride, dst_stride) -> None:
    src = rng.normal(size=100 * src_stride).astype(np.float32)
    src[::7] = np.nan
    args = {
        "src": src,
        "index": rng.integers(-2, 103, n).astype(np.int32),
        "dst": poison(n * dst_stride + 1, "f32"),
        "n": n,
        "width": width,
        "src_stride": src_stride,
        "dst_stride": dst_stride,
        "rows": 100,
    }
    assert_pair(cuda, "gather_rows", args, cap)


@pytest.mark.parametrize(("n", "width", "padded"), [(0, 3, 8), (1, 1, 8), (257, 5, 8), (33, 8, 8)])
def test_pad_rows(cuda, rng, cap, n, width, padded) -> None:
    args = {
        "src": rng.normal(size=n * width + 1).astype(np.float32),
        "dst": poison(n * padded + 1, "f32"),
        "n": n,
        "width": width,
        "padded": padded,
    }
    assert_pair(cuda, "pad_rows", args, cap)


@pytest.mark.parametrize("dtype", ["f32", "i32"])
@pytest.mark.parametrize("n", [0, 1, 1023])
def test_gather_scalars(cuda, rng, cap, dtype, n) -> None:
    args = {
        "src": (rng.normal(size=100) * 1e6).astype(DTYPES[dtype]),
        "index": rng.integers(-2, 103, n).astype(np.int32),
        "dst": poison(n + 1, dtype),
        "n": n,
        "rows": 100,
    }
    assert_pair(cuda, f"gather_{dtype}", args, cap)


@pytest.mark.parametrize("n", [0, 1, 31, 1024, 5000])
@pytest.mark.parametrize("beta", [0.0, 0.4, 0.5, 0.73, 1.0, np.nan])
def test_importance_weights(cuda, rng, n, beta) -> None:
    leaves, nodes = make_tree(rng, 1000)
    schedule = np.full(SCHEDULES, np.nan)
    schedule[Schedule.BETA] = beta
    for total in (nodes[-1], 0.0, np.nan, np.inf):
        args = {
            "leaves": leaves,
            "total": np.array([total]),
            "index": rng.integers(-2, 1003, n).astype(np.int32),
            "counters": make_counters(rng, FILLED=900),
            "schedule": schedule,
            "weights": poison(n + 1, "f32"),
            "n": n,
            "leaf_count": 1000,
        }
        assert_pair(cuda, "importance_weights", args, 1)


@pytest.mark.parametrize("n", [0, 1, 257, 5000, 300_000])
@pytest.mark.parametrize("beta", [0.0, 0.4, np.nan])
def test_weights_in_two_launches(cuda, rng, cap, n, beta) -> None:
    leaves, nodes = make_tree(rng, 1000)
    schedule = np.full(SCHEDULES, np.nan)
    schedule[Schedule.BETA] = beta
    parts = raw_weights.parts_of(n)
    args = {
        "leaves": leaves,
        "total": nodes[-1:],
        "index": rng.integers(-2, 1003, n).astype(np.int32),
        "counters": make_counters(rng, FILLED=900),
        "schedule": schedule,
        "raw": poison(n + 1, "f64"),
        "largest": poison(parts, "f64"),
        "n": n,
        "leaf_count": 1000,
        "parts": parts,
    }
    assert_pair(cuda, "raw_weights", args, cap)
    found = on(HostDevice(), "raw_weights", args, cap)
    scaling = {**found, "weights": poison(n + 1, "f32"), "n": n, "parts": parts}
    assert_pair(cuda, "scale_weights", scaling, cap)


def sampling(rng, capacity, lanes, n, n_step, weigh, width=5, padded=8, each=1) -> Args:
    slots = capacity // lanes
    filled = max(1, slots * 3 // 4) * lanes
    leaves, nodes = make_tree(rng, capacity)
    leaves[filled:] = 0
    tree.rebuild(leaves, nodes)
    schedule = np.full(SCHEDULES, np.nan)
    schedule[Schedule.BETA] = 0.4
    choices = [0] * 20 + [Flag.TERMINATED, Flag.TRUNCATED, Flag.INVALID, 3, 5]
    return {
        "leaves": leaves,
        "nodes": nodes,
        "generation": rng.integers(0, 2**32, capacity, dtype=np.uint32),
        "ring_state": rng.normal(size=capacity * padded).astype(np.float32),
        "ring_next_state": rng.normal(size=capacity * padded).astype(np.float32),
        "ring_action": rng.integers(0, 9, capacity).astype(np.int32),
        "ring_reward": rng.normal(size=capacity).astype(np.float32),
        "ring_flags": rng.choice(choices, capacity).astype(np.uint8),
        "counters": make_counters(rng, HEAD=filled // lanes % slots, FILLED=filled, RNG=11),
        "schedule": schedule,
        "index": poison(n + 1, "i32"),
        "sampled_generation": poison(n + 1, "u32"),
        "state": poison(n * padded + 1, "f32"),
        "next_state": poison(n * padded + 1, "f32"),
        "action": poison(n + 1, "i32"),
        "ret": poison(n + 1, "f32"),
        "discount": poison(n + 1, "f32"),
        "weights": poison(n + 1, "f32"),
        "ticket": np.zeros(1, np.uint32),
        "n": n,
        "leaf_count": capacity,
        "width": width,
        "padded": padded,
        "lanes": lanes,
        "slots": slots,
        "n_step": n_step,
        "gamma": 0.997,
        "seed": 0xFEDCBA9876543210,
        "strata": n % 2 * n,
        "weigh": weigh,
        "each": each,
        "warps": sample_batch.warps_of(n, each),
    }


@pytest.mark.parametrize(("capacity", "lanes"), [(1, 1), (50, 1), (700, 7), (40_000, 64)])
@pytest.mark.parametrize("n", [0, 1, 64, 1023, 9000])
@pytest.mark.parametrize("n_step", [1, 3, 32, 70])
@pytest.mark.parametrize("weigh", [0, 1])
def test_sample_batch(cuda, rng, cap, capacity, lanes, n, n_step, weigh) -> None:
    width, padded = [(5, 8), (64, 64), (130, 136)][n_step % 3]
    args = sampling(rng, capacity, lanes, n, n_step, weigh, width, padded)
    assert_pair(cuda, "sample_batch", args, cap)


@pytest.mark.parametrize(("capacity", "lanes"), [(1, 1), (33, 1), (50, 1), (1025, 5), (40_000, 64)])
@pytest.mark.parametrize("n", [0, 1, 7, 9, 64, 1023, 9000])
@pytest.mark.parametrize(
    ("n_step", "width", "padded"),
    [(1, 5, 8), (3, 64, 64), (4, 130, 136), (5, 3, 5), (70, 17, 20)],
)
def test_sample_batch_of_several_rows_a_warp(
    cuda, rng, cap, capacity, lanes, n, n_step, width, padded
) -> None:
    together = sample_batch.TOGETHER
    args = sampling(rng, capacity, lanes, n, n_step, n % 2, width, padded, together)
    assert_pair(cuda, "sample_batch", args, cap)


@pytest.mark.parametrize("each", [1, sample_batch.TOGETHER])
@pytest.mark.parametrize("total", [0.0, np.nan])
def test_sample_batch_of_a_tree_that_is_broken(cuda, rng, each, total) -> None:
    """Whatever the nodes hold, every index is a leaf's."""
    args = sampling(rng, 1025, 5, 100, 3, 1, each=each)
    args["nodes"][-1] = total
    args["nodes"][:5] = total
    assert_pair(cuda, "sample_batch", args, 4096)


def test_sample_batch_leaves_its_ticket_for_the_next_launch(cuda, rng) -> None:
    args = sampling(rng, 700, 7, 1000, 3, 1)
    expected = on(HostDevice(), "sample_batch", args, 4096)["weights"]
    held = {k: cuda.upload(v, k) if isinstance(v, np.ndarray) else v for k, v in args.items()}
    launch = cuda.prepare("sample_batch", held)
    for _ in range(200):
        cuda.memset(held["weights"])
        cuda.launch(launch)
        assert np.array_equal(held["weights"].to_host_checkpoint()[:1000], expected[:1000])


def priorities(rng, capacity: int, n: int, alpha: float, eps: float) -> Args:
    leaves, nodes = make_tree(rng, capacity)
    generation = rng.integers(0, 2**32, capacity, dtype=np.uint32)
    index = rng.integers(-1, capacity + 1, n).astype(np.int32)
    sampled = generation[index.clip(0, capacity - 1)]
    sampled[rng.random(n) < 0.1] ^= np.uint32(1)
    td = (rng.normal(size=n) * 10).astype(np.float32)
    td[rng.random(n) < 0.1] = np.nan
    td[rng.random(n) < 0.05] = -np.inf
    td[rng.random(n) < 0.05] = 3e38
    return {
        "td": td,
        "index": index,
        "sampled_generation": sampled,
        "generation": generation,
        "leaves": leaves,
        "nodes": nodes,
        "owner": np.full(capacity, -1, np.int32),
        "max_leaf": np.array([1.5], np.float32),
        "diagnostics": rng.integers(0, 1 << 40, DIAGNOSTICS),
        "n": n,
        "leaf_count": capacity,
        "alpha": alpha,
        "eps": eps,
    }


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("n", [0, 1, 32, 256, 1025, 3000])
@pytest.mark.parametrize(("alpha", "eps"), [(0.6, 1e-6), (1.0, 0.0), (0.5, 0.01), (2.0, 0.0)])
def test_update_priorities(cuda, rng, capacity, n, alpha, eps) -> None:
    assert_pair(cuda, "update_priorities", priorities(rng, capacity, n, alpha, eps), 1)


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("n", [0, 1, 32, 256, 1025, 70_000])
@pytest.mark.parametrize(("alpha", "eps"), [(0.6, 1e-6), (2.0, 0.0)])
def test_priorities_in_several_launches(cuda, rng, cap, capacity, n, alpha, eps) -> None:
    """Each launch like its twin, and all of them together like the one that does it at once."""
    args = priorities(rng, capacity, n, alpha, eps)
    at_once = on(HostDevice(), "update_priorities", args, 1)
    taken = ("td", "index", "sampled_generation", "generation", "owner", "diagnostics")
    claim = {k: args[k] for k in (*taken, "n", "leaf_count", "alpha", "eps")}
    claim["leaf"] = poison(n + 1, "f32")
    assert_pair(cuda, "claim_priorities", claim, cap)
    claimed = on(HostDevice(), "claim_priorities", claim, cap)
    write = {k: args[k] for k in ("index", "leaves", "max_leaf", "n", "leaf_count")}
    write |= {"leaf": claimed["leaf"], "owner": claimed["owner"]}
    assert_pair(cuda, "write_priorities", write, cap)
    written = on(HostDevice(), "write_priorities", write, cap)
    nodes = args["nodes"]
    touched = {k: args[k] for k in ("nodes", "index", "leaf_count", "n")}
    touched |= {"leaves": written["leaves"], "lanes": n * refresh_touched.LANES}
    assert_pair(cuda, "refresh_touched", touched, cap)
    alone = refresh_touched.pays(capacity, n)
    if alone:
        nodes = on(HostDevice(), "refresh_touched", touched, cap)["nodes"]
    for level in refresh_drawn.levels(capacity, 2 if alone else 1):
        refresh = {
            "leaves": written["leaves"],
            "nodes": nodes,
            "index": args["index"],
            "leaf_count": capacity,
            "level": level,
            "groups": min(n, tree.group_count(capacity, level)),
        }
        assert_pair(cuda, "refresh_drawn", refresh, cap)
        nodes = on(HostDevice(), "refresh_drawn", refresh, cap)["nodes"]
    found = {**claimed, **written, "nodes": nodes}
    for name, values in at_once.items():
        assert np.array_equal(found[name], values), name


@pytest.mark.parametrize(
    ("lanes", "padded", "slots", "head"),
    [(1, 8, 1, 0), (5, 8, 4, 3), (33, 40, 3, 1), (300, 8, 2, 0), (4, 8, 4, 4), (4, 8, 4, -1)],
)
def test_insert_rows(cuda, rng, cap, lanes, padded, slots, head) -> None:
    rows = lanes * slots

    def values(n: int) -> Array:
        x = rng.normal(size=n).astype(np.float32)
        x[rng.random(n) < 0.02] = np.nan
        x[rng.random(n) < 0.01] = np.inf
        return x

    args = {
        "obs": values(lanes * padded),
        "action": rng.integers(0, 9, lanes).astype(np.int32),
        "reward": values(lanes),
        "step_flags": rng.integers(0, 8, lanes).astype(np.uint8),
        "next_obs": values(lanes * padded),
        "episode": rng.integers(0, 1 << 40, lanes),
        "counters": make_counters(rng, HEAD=head),
        "max_leaf": np.array([2.5], np.float32),
        "state": values(rows * padded),
        "ring_action": poison(rows, "i32"),
        "ring_reward": poison(rows, "f32"),
        "ring_flags": poison(rows, "u8"),
        "next_state": values(rows * padded),
        "ring_episode": poison(rows, "i64"),
        "generation": rng.integers(2**32 - 2, 2**32, rows, dtype=np.uint32),
        "leaves": poison(rows, "f32"),
        "diagnostics": rng.integers(0, 1 << 40, DIAGNOSTICS),
        "lanes": lanes,
        "padded": padded,
        "slots": slots,
    }
    assert_pair(cuda, "insert_rows", args, cap)


@pytest.mark.parametrize(
    ("lanes", "slots", "head"),
    [
        (1, 1, 0),
        (1, 40, 33),
        (31, 3, 1),
        (33, 40, 39),
        (2000, 20, 7),
        (9000, 5, 3),
        (5, 4, 4),
        (5, 4, -1),
    ],
)
def test_refresh_inserted(cuda, rng, lanes, slots, head) -> None:
    capacity = lanes * slots
    leaves, nodes = make_tree(rng, capacity)
    if 0 <= head < slots:
        leaves[head * lanes : (head + 1) * lanes] = rng.random(lanes)
    args = {
        "leaves": leaves,
        "nodes": nodes,
        "counters": make_counters(rng, HEAD=head),
        "lanes": lanes,
        "slots": slots,
        "leaf_count": capacity,
    }
    assert_pair(cuda, "refresh_inserted", args, 1)
    for level in refresh_drawn.levels(capacity):
        groups = refresh_slot.groups_over(lanes, level)
        assert_pair(cuda, "refresh_slot", {**args, "level": level, "groups": groups}, 4096)
        assert_pair(cuda, "refresh_slot", {**args, "level": level, "groups": groups}, 1)
        spread = on(HostDevice(), "refresh_slot", {**args, "level": level, "groups": groups}, 1)
        args["nodes"] = spread["nodes"]
