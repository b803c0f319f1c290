"""The fused kernels on a GPU against their twins, at edge sizes."""

from __future__ import annotations

import numpy as np
import pytest
from fused_cases import SIZES, apply_case, td_case
from gpu.test_hindsight_kernels import RINGS, relabelling
from gpu.test_replay import CAPACITIES, Args, assert_pair, on, poison, priorities, sampling
from pair_runs import assert_same, run_on
from replay.contract import ReplayContract, spec_of
from replay.implementations import FusedReplay, insert_slots

from onegraph.kernels.catalogue import find
from onegraph.kernels.common.layout import (
    COUNTERS,
    SCHEDULE_PARAMS,
    SCHEDULES,
    Counter,
    Schedule,
)
from onegraph.kernels.device import HostDevice
from onegraph.kernels.fused import draw_batch
from onegraph.kernels.fused.td_pass import ROWS, TwoLayers, fits
from onegraph.kernels.fused.write_back import Form, blocks_of
from onegraph.kernels.replay import sample_batch
from onegraph.kernels.replay.hindsight_assemble import Strategy

pytestmark = pytest.mark.gpu


class TestFusedReplayOnCuda(ReplayContract):
    @pytest.fixture(params=[(4096, 1), (4096, sample_batch.TOGETHER), (1, sample_batch.TOGETHER)])
    def make(self, cuda, request):
        blocks, each = request.param
        return lambda spec: FusedReplay(cuda, spec, blocks, each)

    @pytest.mark.parametrize("form", list(Form))
    def test_each_form_of_a_write_back(self, cuda, form):
        """Which the sizes of the other tests do not choose."""
        pair = [
            FusedReplay(d, spec_of(0, lanes=3, slots=400), form=form) for d in (HostDevice(), cuda)
        ]
        rng = np.random.default_rng(0)
        index = rng.integers(-2, 1202, 900).astype(np.int32)
        for replay in pair:
            insert_slots(replay, np.zeros(1200))
            generation = np.ones(900, np.uint32)
            for step in range(5):
                replay.update(index, generation, np.float32(step) + index.astype(np.float32))
        for name in ("leaves", "nodes", "max_leaf", "owner"):
            one, other = (replay.read(f"replay_{name}") for replay in pair)
            np.testing.assert_array_equal(one, other, err_msg=name)


#: Sums of some hundred products of size 1 in another order; absolute, by array.
TD_TOLERANCE = dict.fromkeys(
    ("td", "loss", "q_taken", "hidden0", "hidden1", "grad_head", "grad1", "grad0"), 2e-5
)
#: Adam divides by the root of a square: an element whose gradient is almost nothing may differ.
APPLY_TOLERANCE = {
    "grad": 2e-5, "theta": 2e-5, "m": 2e-5, "v": 2e-5, "target": 2e-6, "partial": 1e-2,
    "clip": 1e-4, "record": 1e-4, "history": 1e-4,
}  # fmt: skip


def needs_clusters(cuda):
    if cuda.largest_cluster == 1:
        pytest.skip(f"{cuda.name} forms no clusters of blocks")


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("cluster", [4, 8])
@pytest.mark.parametrize("rows", ROWS)
def test_td_pass(cuda, size, rows, cluster):
    needs_clusters(cuda)
    case = td_case(size, rows=rows, cluster=cluster)
    _, inputs, width0, width1, actions, dueling = size
    net = TwoLayers(inputs, width0, width1, actions + dueling)
    if not fits(net, rows, cluster, cuda.largest_shared):
        pytest.skip(f"{case['shared_bytes']} bytes of shared memory are more than a block has")
    assert_same(cuda, "td_pass", TD_TOLERANCE, **case)


@pytest.mark.parametrize("changes", [{"double_q": 0}, {"mse": 1}, {"skip": np.ones(1, np.int32)}])
def test_td_pass_variants(cuda, changes):
    needs_clusters(cuda)
    assert_same(cuda, "td_pass", TD_TOLERANCE, **td_case((33, 16, 36, 52, 4, 1), **changes))


@pytest.mark.parametrize("cluster", [4, 8])
def test_td_pass_does_not_depend_on_rows_and_grid(cuda, cluster):
    needs_clusters(cuda)
    size = (64, 64, 160, 256, 2, 1)
    runs = [
        run_on(cuda, "td_pass", blocks, **td_case(size, rows=rows, cluster=cluster))
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


def drawing(rng, capacity: int, lanes: int, n: int, n_step: int, width: int, padded: int) -> Args:
    """Arguments of `draw_rows`: those of `sample_batch`, but for its weights and its ticket."""
    args = sampling(rng, capacity, lanes, n, n_step, 1, width, padded)
    for name in ("weights", "ticket", "weigh", "each", "warps"):
        del args[name]
    return args | {"raw": poison(n + 1, "f64")}


@pytest.mark.parametrize(("capacity", "lanes"), [(1, 1), (50, 1), (700, 7), (40_000, 64)])
@pytest.mark.parametrize("n", [0, 1, 65, 5000])
@pytest.mark.parametrize("n_step", [1, 3, 70])
@pytest.mark.parametrize(("width", "padded"), [(5, 8), (128, 128), (130, 136), (300, 304)])
@pytest.mark.parametrize("cap", [1, 4096])
def test_draw_rows(cuda, cap, capacity, lanes, n, n_step, width, padded):
    """Rows wider than a warp holds at a time come to their end, and no further."""
    rng = np.random.default_rng(5)
    args = drawing(rng, capacity, lanes, n, n_step, width, padded)
    assert_pair(cuda, "draw_rows", args, cap)


@pytest.mark.parametrize("actions", [255, 256, 300])
def test_td_pass_of_a_head_wider_than_a_block(cuda, actions):
    """Each bias of the head is fetched, whatever the number of threads."""
    needs_clusters(cuda)
    size = (9, 8, 16, 16, actions, 1)
    assert_same(cuda, "td_pass", TD_TOLERANCE, **td_case(size, rows=3, cluster=4))


def test_every_grid_of_apply_step_gives_the_same(cuda):
    """One block does all; a few share the tiles; with more than there are, some have none."""
    size = (33, 16, 36, 52, 4, 1)
    runs = [run_on(cuda, "apply_step", blocks, **apply_case(size)) for blocks in (1, 2, 3, 5, 4096)]
    for name, values in runs[0].items():
        for other in runs[1:]:
            np.testing.assert_array_equal(values, other[name], err_msg=name)


def advancing(rng, args: Args, skip: int) -> Args:
    """What the draws that advance the counters take beside their draw's arguments."""
    schedule = np.full(SCHEDULES, 0.4)
    params = np.zeros(SCHEDULE_PARAMS)
    for quad in (0, 4, 12):  # tau, beta, learning rate
        params[quad : quad + 4] = 2, 0.9, 0.1, 100
    params[16:19] = 50, 0.9, 0.999
    counters = rng.integers(1, 40, COUNTERS)
    for name in (Counter.RNG, Counter.HEAD, Counter.FILLED):
        counters[name] = args["counters"][name]
    for name in ("ticket", "weigh", "warps"):
        args.pop(name, None)
    turn = int(rng.integers(0, 2))
    return args | {
        "counters": counters,
        "schedule": schedule,
        "params": params,
        "skip": np.array([skip], np.int32),
        "raw": poison(args["n"] + 1, "f64"),
        "largest": np.array([0.0, 7.0]) if turn == 0 else np.array([7.0, 0.0]),
        "barrier": np.array([turn << 31], np.uint32),
    }


def drawing_all(rng, capacity, lanes, n, n_step, width, padded, each) -> Args:
    """Arguments of `draw_batch`."""
    args = sampling(rng, capacity, lanes, n, n_step, 1, width, padded, each)
    return advancing(rng, args, n % 2) | {"blocks": draw_batch.blocks_of(n, each)}


@pytest.mark.parametrize(("capacity", "lanes"), [(1, 1), (33, 1), (1025, 5), (40_000, 64)])
@pytest.mark.parametrize("n", [0, 1, 9, 65, 512, 5000, 70_000])
@pytest.mark.parametrize(("n_step", "width", "padded"), [(1, 5, 8), (5, 130, 136), (2, 3, 5)])
@pytest.mark.parametrize("each", [1, sample_batch.TOGETHER])
@pytest.mark.parametrize("cap", [1, 3, 4096])
def test_draw_batch(cuda, cap, each, capacity, lanes, n, n_step, width, padded):
    rng = np.random.default_rng(n)
    args = drawing_all(rng, capacity, lanes, n, n_step, width, padded, each)
    assert_pair(cuda, "draw_batch", args, cap)


@pytest.mark.parametrize("beta", [0.0, 1.0, np.nan])
def test_draw_batch_of_any_weights(cuda, beta):
    """All of one size; all zero."""
    args = drawing_all(np.random.default_rng(1), 700, 7, 300, 3, 5, 8, 1)
    args["schedule"][Schedule.BETA] = beta
    assert_pair(cuda, "draw_batch", args, 4096)


def test_draw_batch_step_after_step(cuda):
    """The barrier, both places of the largest, and the counters are ready for the next launch."""
    args = drawing_all(np.random.default_rng(3), 700, 7, 3000, 3, 5, 8, sample_batch.TOGETHER)
    kept = [p.name for p in find("draw_batch").params if p.access == "inout"]
    held = {k: cuda.upload(v, k) if isinstance(v, np.ndarray) else v for k, v in args.items()}
    launch = cuda.prepare("draw_batch", held)
    for _ in range(20):
        wanted = on(HostDevice(), "draw_batch", args, 4096)
        cuda.launch(launch)
        for name, values in wanted.items():
            np.testing.assert_array_equal(held[name].to_host_checkpoint(), values, err_msg=name)
        args |= {name: wanted[name] for name in kept}


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(("lanes", "slots", "turns", "ends"), RINGS)
@pytest.mark.parametrize(("n", "n_step"), [(0, 1), (1, 1), (2, 3), (700, 40)])
def test_draw_relabelled(cuda, strategy, lanes, slots, turns, ends, n, n_step):
    rng = np.random.default_rng(n)
    args = relabelling(rng, strategy, lanes, slots, turns, ends, n, n_step, 1)
    args = advancing(rng, args, n % 2) | {"raw": n}
    assert_same(cuda, "draw_relabelled", **args, blocks=draw_batch.blocks_of(n, 1))


def writing_back(rng, capacity: int, n: int, form: Form, alpha: float = 0.6) -> Args:
    """Arguments of `write_back`; the barrier is as an odd number of launches left it."""
    return priorities(rng, capacity, n, alpha, 1e-6) | {
        "leaf": poison(n + 1, "f32"),
        "barrier": np.full(1, 1 << 31, np.uint32),
        "ticket": np.zeros(1, np.uint32),
        "form": int(form),
        "blocks": blocks_of(n, capacity),
    }


@pytest.mark.parametrize("capacity", [*CAPACITIES, 32_769, 1_100_000])
@pytest.mark.parametrize("n", [0, 1, 33, 256, 1025, 70_000])
@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("cap", [1, 3, 4096])
def test_write_back(cuda, cap, form, n, capacity):
    assert_pair(cuda, "write_back", writing_back(np.random.default_rng(n), capacity, n, form), cap)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("same", [0, 1024])
def test_write_back_of_one_slot_many_times(cuda, form, same):
    """All positions claim one slot, or none; the highest that may write wins."""
    args = writing_back(np.random.default_rng(1), 1025, 3000, form)
    args["index"][:] = same
    args["sampled_generation"][:] = args["generation"][same]
    assert_pair(cuda, "write_back", args, 4096)
    args["sampled_generation"] += np.uint32(1)
    assert_pair(cuda, "write_back", args, 4096)


@pytest.mark.parametrize("form", Form)
def test_write_back_leaves_its_barrier_and_ticket_for_the_next_launch(cuda, form):
    args = writing_back(np.random.default_rng(2), 40_000, 3000, form)
    held = {k: cuda.upload(v, k) if isinstance(v, np.ndarray) else v for k, v in args.items()}
    launch = cuda.prepare("write_back", held)
    wanted = on(HostDevice(), "write_back", args, 4096)
    for _ in range(50):
        cuda.launch(launch)
        for name in ("leaves", "nodes", "max_leaf", "owner", "ticket"):
            np.testing.assert_array_equal(held[name].to_host_checkpoint(), wanted[name])
