"""The twins of the fused kernels: by hand, and against the kernels that they replace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fused_cases import SIZES, apply_case, layout, td_case
from gpu.test_fused_kernels import drawing, drawing_all, writing_back
from gpu.test_replay import on, poison, sampling
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_runs import run_host

from onegraph.kernels.common.layout import ADAM_GROUPS, DIAGNOSTICS, Counter, Schedule
from onegraph.kernels.device import HostDevice
from onegraph.kernels.fused.apply_step import blocks_of, tiles_of
from onegraph.kernels.fused.td_pass import ROWS, STATIC_BYTES, TwoLayers, fits, shared_bytes, takes
from onegraph.kernels.fused.write_back import Form

NET = (8, 4, 4)


# ---------------------------------------------------------------- td_pass by hand


def one_row(**changes: Any) -> dict[str, Any]:
    """One row through 4 inputs, layers of 4 and 4, and a plain head of two actions.

    W0 = 1, W1 = 2, b1 = (0, 0, 0, 1); the head's columns are (1, 1, 1, 1) and (1/2, 0, 0, 0), its
    biases (0, 1). The target network is zeros but for its head's biases, (5, 9).
    """
    case = td_case((1, 4, 4, 4, 2, 0))
    theta, target = np.zeros_like(case["theta"]), np.zeros_like(case["target"])

    def put(name: str, *values: float, of: np.ndarray = theta) -> None:
        at = case[name]
        of[at : at + len(values)] = values

    put("weight0", *np.eye(4).ravel())
    put("weight1", *(2 * np.eye(4)).ravel())
    put("bias1", 0, 0, 0, 1)
    put("weight2", 1, 0.5, 1, 0, 1, 0, 1, 0)
    put("bias2", 0, 1)
    put("bias2", 5, 9, of=target)
    return (
        case
        | {
            "state": np.array([1, -1, 2, 0], np.float32),
            "next_state": np.array([0, 0, 1, 0], np.float32),
            "theta": theta,
            "target": target,
            "action": np.zeros(1, np.int32),
            "ret": np.ones(1, np.float32),
            "discount": np.full(1, 0.5, np.float32),
            "raw": np.full(1, 0.25),
        }
        | changes
    )


def test_td_pass_of_one_row() -> None:
    found = run_host("td_pass", **one_row())
    assert found["hidden0"].tolist() == [1, 0, 2, 0]
    assert found["hidden1"].tolist() == [2, 0, 4, 1]
    # q = (2 + 0 + 4 + 1, 1 + 1); s_t: a0 = (0, 0, 1, 0), a1 = (0, 0, 2, 1), q = (3, 1): action 0,
    # which the target network values at 5
    assert found["q_taken"].tolist() == [7]
    assert found["td"].tolist() == [1 + 0.5 * 5 - 7] == [-3.5]
    assert found["weights"].tolist() == [1]
    assert found["loss"].tolist() == [3.5 - 0.5]  # Huber's, delta 1
    # the loss falls where q does: slope 1, through the first column of the head
    assert found["grad_head"].tolist() == [1, 0]
    assert found["grad1"].tolist() == [1, 0, 1, 1]
    assert found["grad0"].tolist() == [2, 0, 2, 0]


@pytest.mark.parametrize(
    ("changes", "td", "loss", "slope"),
    [
        # the target network chooses action 1, of value 9
        ({"double_q": 0}, -1.5, 1.0, 1.0),
        ({"mse": 1}, -3.5, 6.125, 3.5),
        ({"discount": np.zeros(1, np.float32)}, -6.0, 5.5, 1.0),
        ({"ret": np.full(1, 5.0, np.float32)}, 0.5, 0.125, -0.5),
        ({"raw": np.zeros(1)}, -3.5, 0.0, 0.0),
    ],
    ids=["not double", "squared", "terminal", "within delta", "of no weight"],
)
def test_td_pass_of_one_row_in_other_ways(changes, td: float, loss: float, slope: float) -> None:
    found = run_host("td_pass", **one_row(**changes))
    assert found["td"].tolist() == [td]
    assert found["loss"].tolist() == [loss]
    assert found["grad_head"].tolist() == [slope, 0]
    assert found["grad0"].tolist() == [2 * slope, 0, 2 * slope, 0]


def test_td_pass_of_an_action_that_is_none() -> None:
    found = run_host("td_pass", **one_row(action=np.array([2], np.int32)))
    assert np.isnan(found["td"]).all()
    assert np.isnan(found["q_taken"]).all()


# ---------------------------------------------------------------- td_pass at sizes


def layers(case: dict[str, Any], name: str, x: np.ndarray) -> list[np.ndarray]:
    """Both hidden layers and the head's values, in float64 and without the twin's code."""
    theta = case[name].astype(np.float64)
    widths = [case["inputs"], case["width0"], case["width1"], case["actions"] + case["dueling"]]
    found = []
    for i in range(3):
        at, bias = case[f"weight{i}"], case[f"bias{i}"]
        weight = theta[at : at + widths[i] * widths[i + 1]].reshape(widths[i], widths[i + 1])
        x = x @ weight + theta[bias : bias + widths[i + 1]]
        x = np.maximum(x, 0) if i < 2 else x
        found.append(x)
    return found


def action_values(case: dict[str, Any], head: np.ndarray) -> np.ndarray:
    if not case["dueling"]:
        return head
    advantages, value = head[:, :-1], head[:, -1:]
    return value + advantages - advantages.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("double", [0, 1])
def test_td_pass_against_float64(size, double: int) -> None:
    case = td_case(size, double_q=double)
    found = run_host("td_pass", **case)
    n, inputs = case["n"], case["inputs"]
    here, there = (case[s].reshape(n, inputs) for s in ("state", "next_state"))
    a0, a1, head = layers(case, "theta", here)
    target = action_values(case, layers(case, "target", there)[-1])
    select = action_values(case, layers(case, "theta", there)[-1]) if double else target
    rows = np.arange(n)
    bootstrap = target[rows, select.argmax(axis=1)] if n else np.zeros(0)
    q = action_values(case, head)[rows, case["action"]]
    td = case["ret"] + case["discount"] * bootstrap - q
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(found["td"][:n], td, **close)
    np.testing.assert_allclose(found["hidden0"][: a0.size], a0.ravel(), **close)
    np.testing.assert_allclose(found["hidden1"][: a1.size], a1.ravel(), **close)
    weights = case["raw"] / case["raw"].max(initial=1e-300)
    np.testing.assert_allclose(found["weights"][:n], weights, rtol=1e-6)
    # What a small step against the gradient of the parameters of the second layer would do.
    slope = -(weights * np.clip(td, -1, 1)) / max(n, 1)
    stride = case["actions"] + case["dueling"]
    d_head = np.zeros((n, stride))
    d_head[rows, case["action"]] = slope
    if case["dueling"]:
        d_head[:, :-1] -= slope[:, None] / case["actions"]
        d_head[:, -1] = slope
    np.testing.assert_allclose(found["grad_head"][: d_head.size], d_head.ravel(), **close)
    at = case["weight2"]
    weight2 = case["theta"][at : at + a1.shape[1] * stride].reshape(a1.shape[1], stride)
    d1 = (d_head @ weight2.T) * (a1 > 0)
    np.testing.assert_allclose(found["grad1"][: d1.size], d1.ravel(), **close)


@pytest.mark.parametrize("skip", [0, 1])
def test_td_pass_advances_a_learning_step(skip: int) -> None:
    case = td_case(SIZES[2], skip=np.full(1, skip, np.int32))
    found = run_host("td_pass", **case)
    scalars = {"program": 0, "lanes": 4, "slots": 7}
    names = ("counters", "schedule", "params", "skip")
    wanted = run_host("advance_counters", **{n: case[n] for n in names}, **scalars)
    for name in ("counters", "schedule"):
        np.testing.assert_array_equal(found[name], wanted[name])
    assert found["counters"][Counter.RNG] == case["counters"][Counter.RNG] + 1
    np.testing.assert_array_equal(found["seen"], case["diagnostics"][:DIAGNOSTICS])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width0": 118}, "widths 8, 118 and 84 are not all multiples of 4"),
        ({"bias0": 962}, "begin at 0, 962, .*not all of which are multiples of 4"),
        ({"rows": 4}, "2 tiles of 4 rows leave out some of 5"),
        ({"tiles": 1}, "1 tiles of 3 rows leave out some of 5"),
    ],
)
def test_td_pass_refuses_what_its_kernel_has_no_code_for(changes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_host("td_pass", **(td_case(SIZES[2]) | changes))


# ---------------------------------------------------------------- shared memory


def test_shared_bytes_by_hand() -> None:
    """A block has a slice of 4 columns of each layer: up to a multiple of four of one."""
    floats = {
        "W0, twice, and its biases": 2 * 8 * (4 + 4) + 2 * 4,
        "W1, twice, and its biases": 2 * 4 * (4 + 4) + 2 * 4,
        "W2, twice, and its biases": 2 * 4 * 3 + 2 * 4,
        "three passes' inputs": 3 * 3 * (8 + 4),
        "first outputs": 3 * 3 * (4 + 4),
        "second outputs": 3 * 3 * 4,
        "eight warps' sums": 8 * 3 * 3 * 4,
        "four blocks' head values": 4 * 3 * 3 * 3,
        "head values": 28,
        "their gradient": 12,
        "gradients": 3 * 4 + 4 * 3 * 4,
    }
    net = TwoLayers(*NET, 3)
    assert shared_bytes(net, 3, 4) == 4 * sum(floats.values()) == 3808
    assert fits(net, 3, 4, 3808 + STATIC_BYTES)
    assert not fits(net, 3, 4, 3808 + STATIC_BYTES - 1)


def test_more_rows_need_more_and_more_blocks_less() -> None:
    net = TwoLayers(64, 256, 256, 3)
    for cluster in (4, 8):
        sizes = [shared_bytes(net, rows, cluster) for rows in ROWS]
        assert sizes == sorted(sizes)
    for rows in ROWS:
        assert shared_bytes(net, rows, 8) < shared_bytes(net, rows, 4)


def test_columns_of_a_block_are_few_enough_for_the_copies_of_its_panels() -> None:
    """td_pass.cu gives a thread four columns; a block of more than 256 such threads has none."""
    widths = range(4, 40_000, 4)
    for cluster in (1, 4, 8):
        wide = next(w for w in widths if not fits(TwoLayers(4, w, 4, 1), 3, cluster, 227 * 1024))
        assert -(-wide // cluster) // 4 < 256
        wide = next(w for w in widths if not fits(TwoLayers(4, 4, w, 1), 3, cluster, 227 * 1024))
        assert -(-wide // cluster) // 4 < 256


def test_widths_that_there_is_code_for() -> None:
    assert takes(TwoLayers(8, 120, 84, 3))
    assert not any(takes(TwoLayers(*w, 3)) for w in ((6, 8, 8), (8, 6, 8), (8, 8, 6)))


# ---------------------------------------------------------------- apply_step by hand


def one_weight(**changes: Any) -> dict[str, Any]:
    """A row of x = 2 whose first layer's gradient is 1/2; all other activations are zero.

    Moments are zero, and the bias corrections those of the first step: Adam moves by the sign.
    """
    case = apply_case((1, 1, 1, 1, 1, 0))
    size = case["theta"].size
    schedule = np.zeros_like(case["schedule"])
    schedule[:4] = 0.5, 0.4, 0.0, 0.125  # tau, beta, epsilon, learning rate
    schedule[4:6] = 0.5, 0.25  # of beta1 = 1/2, beta2 = 3/4
    zero = np.zeros(1, np.float32)
    return (
        case
        | {
            "state": np.array([2], np.float32),
            "grad0": np.array([0.5], np.float32),
            "hidden0": zero,
            "grad1": zero,
            "hidden1": zero,
            "grad_head": zero,
            "theta": np.ones(size, np.float32),
            "m": np.zeros(size, np.float32),
            "v": np.zeros(size, np.float32),
            "target": np.zeros(size, np.float32),
            "schedule": schedule,
            "decay": np.zeros(ADAM_GROUPS, np.float32),
            "beta1": 0.5,
            "beta2": 0.75,
            "eps": 0.25,
            "max_norm": 0.0,
        }
        | changes
    )


def test_apply_step_of_one_weight() -> None:
    found = run_host("apply_step", **one_weight())
    case = one_weight()
    weight, bias = case["weight0"], case["bias0"]
    assert found["grad"][[weight, bias]].tolist() == [1.0, 0.5]
    assert found["partial"].tolist() == [1.25, 0, 0]
    assert found["clip"].tolist() == [np.float32(np.sqrt(1.25)), 1]
    assert found["skip"].tolist() == [0]
    # m = g / 2, and g without bias; v = g^2 / 4, and g^2 without
    assert found["m"][[weight, bias]].tolist() == [0.5, 0.25]
    assert found["v"][[weight, bias]].tolist() == [0.25, 0.0625]
    moved = [1 - 0.125 * 1 / (1 + 0.25), 1 - 0.125 * 0.5 / (0.5 + 0.25)]
    np.testing.assert_allclose(found["theta"][[weight, bias]], moved, rtol=1e-6)
    np.testing.assert_allclose(found["target"][[weight, bias]], np.array(moved) / 2, rtol=1e-6)
    assert found["barrier"].tolist() == [0x80000000]


def test_apply_step_clips() -> None:
    found = run_host("apply_step", **one_weight(max_norm=0.5, eps=0.0))
    case = one_weight()
    np.testing.assert_allclose(found["clip"], [np.sqrt(1.25), 0.5 / np.sqrt(1.25)], rtol=1e-6)
    scale = 0.5 / np.sqrt(1.25)
    np.testing.assert_allclose(found["m"][case["weight0"]], 0.5 * scale, rtol=1e-6)
    assert found["grad"][case["weight0"]] == 1  # as it was before


@pytest.mark.parametrize(("steps", "copied"), [(3, False), (4, True)])
def test_apply_step_copies_the_target_now_and_then(steps: int, copied: bool) -> None:
    counters = np.zeros_like(one_weight()["counters"])
    counters[Counter.ADAM_TRUNK] = steps
    found = run_host("apply_step", **one_weight(every=4, counters=counters))
    at = one_weight()["weight0"]
    assert found["target"][at] == (found["theta"][at] if copied else 0)


# ---------------------------------------------------------------- apply_step at sizes


def covered(case: dict[str, Any]) -> np.ndarray:
    """Which floats of the parameters are some tensor's."""
    widths = [case["inputs"], case["width0"], case["width1"], case["stride"]]
    found = np.zeros(case["theta"].size, bool)
    for i in range(3):
        for name, size in ((f"weight{i}", widths[i] * widths[i + 1]), (f"bias{i}", widths[i + 1])):
            found[case[name] : case[name] + size] = True
    return found


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("every", [0, 2])
def test_apply_step_against_the_kernels_that_it_replaces(size, every: int) -> None:
    case = apply_case(size, every=every)
    found = run_host("apply_step", **case)
    floats, own = case["theta"].size, covered(case)
    for name in ("theta", "m", "v", "target", "grad"):
        np.testing.assert_array_equal(found[name][~own], case[name][~own], err_msg=name)
    if case["n"]:
        x, d0 = (case[s].reshape(case["n"], -1).astype(float) for s in ("state", "grad0"))
        at, wide = case["weight0"], case["width0"]
        here = found["grad"][at : at + case["inputs"] * wide].reshape(-1, wide)
        np.testing.assert_allclose(here, x.T @ d0, rtol=1e-3, atol=1e-4)
        here = found["grad"][case["bias0"] : case["bias0"] + wide]
        np.testing.assert_allclose(here, d0.sum(axis=0), rtol=1e-3, atol=1e-4)

    norm = float(np.linalg.norm(found["grad"][own].astype(float)))
    assert found["clip"][0] == pytest.approx(norm, rel=1e-5)
    grad = np.where(own, found["grad"], np.float32(0))
    moved = run_host(
        "adam_step",
        **{n: case[n] for n in ("m", "v", "schedule", "decay", "beta1", "beta2", "eps")},
        param=case["theta"],
        grad=grad,
        clip=found["clip"],
        skip=np.zeros(1, np.int32),
        ends=np.full(ADAM_GROUPS, floats, np.int64),
        n=floats,
    )
    np.testing.assert_array_equal(found["m"][own], moved["m"][own])
    np.testing.assert_array_equal(found["theta"][own], moved["param"][own])
    target = run_host(
        "target_update",
        **{n: case[n] for n in ("target", "schedule", "counters", "every")},
        param=moved["param"],
        skip=np.zeros(1, np.int32),
        n=floats,
    )
    np.testing.assert_array_equal(found["target"][own], target["target"][own])
    names = ("td", "index", "sampled_generation", "generation", "leaves", "nodes", "owner")
    names += ("max_leaf", "diagnostics", "n", "leaf_count", "alpha")
    wanted = run_host("update_priorities", **{n: case[n] for n in names}, eps=case["leaf_eps"])
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_apply_step_may_leave_the_priorities_alone() -> None:
    case = apply_case(SIZES[3], prioritise=0)
    found = run_host("apply_step", **case)
    for name in ("leaves", "nodes", "diagnostics", "max_leaf"):
        np.testing.assert_array_equal(found[name], case[name])


def test_apply_step_skips_what_is_not_finite_and_still_writes_priorities() -> None:
    case = apply_case(SIZES[3])
    case["grad1"][5] = np.inf
    found = run_host("apply_step", **case)
    assert found["skip"].tolist() == [1]
    for name in ("theta", "m", "v", "target"):
        np.testing.assert_array_equal(found[name], case[name])
    assert (found["leaves"] != case["leaves"]).any()


def test_tiles_and_blocks() -> None:
    """33 x 36: two by two; 36 x 52: two by two; 52 x 5: two by one."""
    assert tiles_of(33, 36, 52, 5) == 4 + 4 + 2
    assert blocks_of(33, 36, 52, 5) == 12


# ---------------------------------------------------------------- draw_rows


@pytest.mark.parametrize("n", [0, 1, 65])
@pytest.mark.parametrize(("width", "padded"), [(5, 8), (130, 136), (300, 304)])
def test_draw_rows_is_sample_batch_but_for_the_scale_of_its_weights(n, width, padded) -> None:
    args = drawing(np.random.default_rng(3), 700, 7, n, 3, width, padded)
    sampled = sampling(np.random.default_rng(3), 700, 7, n, 3, 1, width, padded)
    wanted = on(HostDevice(), "sample_batch", sampled, 1)
    found = on(HostDevice(), "draw_rows", args, 1)
    for name, values in found.items():
        if name != "raw":
            np.testing.assert_array_equal(values, wanted[name], err_msg=name)
    if n:
        scaled = (found["raw"][:n] / found["raw"][:n].max()).astype(np.float32)
        np.testing.assert_array_equal(scaled, wanted["weights"][:n])


# ---------------------------------------------------------------- draw_batch


def test_draw_batch_by_hand() -> None:
    """Of leaves 1 and 3 four strata draw 0, 1, 1, 1; at beta 1 they weigh 2 and 2/3, so 1 and 1/3.

    The second place of `largest` is this launch's; the step's counters advance.
    """
    args = drawing_all(np.random.default_rng(0), 2, 1, 4, 1, 5, 8, 1)
    leaves = np.array([1, 3], np.float32)
    args["counters"][Counter.FILLED] = 2
    args["schedule"][Schedule.BETA] = 1
    args |= {"leaves": leaves, "nodes": np.array([4.0]), "strata": 4, "skip": np.zeros(1, np.int32)}
    args |= {"barrier": np.array([1 << 31], np.uint32), "largest": np.array([9.0, 0.0])}
    found = on(HostDevice(), "draw_batch", args, 1)
    assert found["index"][:4].tolist() == [0, 1, 1, 1]
    np.testing.assert_allclose(found["weights"][:4], [1, 1 / 3, 1 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(found["raw"][:4], [2, 2 / 3, 2 / 3, 2 / 3], rtol=1e-15)
    assert found["largest"].tolist() == [0, 2]
    assert found["barrier"].tolist() == [0]
    assert found["counters"][Counter.RNG] == args["counters"][Counter.RNG] + 1
    # beta goes from .9 to .1 in a hundred steps, by a cosine; the step after the eleventh reads it
    assert found["schedule"][Schedule.BETA] == pytest.approx(
        0.1 + 0.4 * (1 + np.cos(np.pi * 12 / 100))
    )


@pytest.mark.parametrize("n", [0, 1, 65, 1300])
@pytest.mark.parametrize(("capacity", "lanes"), [(1, 1), (33, 1), (1025, 5)])
def test_draw_batch_is_the_kernels_that_it_replaces(n, capacity, lanes) -> None:
    args = drawing_all(np.random.default_rng(n), capacity, lanes, n, 3, 5, 8, 8)
    found = on(HostDevice(), "draw_batch", args, 1)
    sampled = sampling(np.random.default_rng(n), capacity, lanes, n, 3, 1, 5, 8, 8)
    for name, values in on(HostDevice(), "sample_batch", sampled, 1).items():
        if name != "ticket":
            np.testing.assert_array_equal(found[name], values, err_msg=name)
    names = ("counters", "schedule", "params", "skip")
    advance = {name: args[name] for name in names} | {"program": 0, "lanes": 3, "slots": 4}
    for name, values in on(HostDevice(), "advance_counters", advance, 1).items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_draw_batch_refuses_rows_that_do_not_share_a_warp() -> None:
    args = drawing_all(np.random.default_rng(0), 33, 1, 5, 1, 5, 8, 8)
    with pytest.raises(ValueError, match="takes 1 row at a time or 8, not 2"):
        on(HostDevice(), "draw_batch", args | {"each": 2}, 1)


# ---------------------------------------------------------------- write_back


def test_write_back_by_hand() -> None:
    """Position 3 has the last word on slot 2; slot 0 was overwritten, and slot 1 gets no number."""
    args = {
        "td": np.array([1, 7, np.nan, 3, 5], np.float32),
        "index": np.array([2, 0, 1, 2, 3], np.int32),
        "sampled_generation": np.array([1, 1, 1, 1, 1], np.uint32),
        "generation": np.array([2, 1, 1], np.uint32),
        "leaf": poison(5, "f32"),
        "leaves": np.array([0.25, 0.5, 0], np.float32),
        "nodes": np.array([0.75]),
        "owner": np.full(3, -1, np.int32),
        "max_leaf": np.array([2], np.float32),
        "diagnostics": np.zeros(DIAGNOSTICS, np.int64),
        "barrier": np.zeros(1, np.uint32),
        "ticket": np.zeros(1, np.uint32),
        "n": 5,
        "leaf_count": 3,
        "alpha": 1.0,
        "eps": 0.0,
        "blocks": 1,
    }
    for form in Form:
        found = on(HostDevice(), "write_back", args | {"form": int(form)}, 1)
        assert found["leaf"].tolist() == [1, 0, 0, 3, 0]
        assert found["leaves"].tolist() == [0.25, 0.5, 3]
        assert found["nodes"].tolist() == [3.75]
        assert found["owner"].tolist() == [-1, -1, -1]
        assert found["max_leaf"].tolist() == [3]
        assert found["diagnostics"].tolist() == [1, 1, *[0] * (DIAGNOSTICS - 2)]
        assert found["barrier"].tolist() == [1 << 31]
    with pytest.raises(ValueError, match="3 is not a valid Form"):
        on(HostDevice(), "write_back", args | {"form": 3}, 1)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 300),
    capacity=st.sampled_from([1, 31, 33, 700, 1025, 33_000]),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    form=st.sampled_from(Form),
    seed=st.integers(0, 2**32 - 1),
)
def test_write_back_is_the_kernel_that_it_replaces(n, capacity, alpha, form, seed) -> None:
    args = writing_back(np.random.default_rng(seed), capacity, n, form, alpha)
    found = on(HostDevice(), "write_back", args, 1)
    own = ("leaf", "barrier", "ticket", "form", "blocks")
    wanted = {name: value for name, value in args.items() if name not in own}
    for name, values in on(HostDevice(), "update_priorities", wanted, 1).items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_the_cases_have_gaps_and_aligned_tensors() -> None:
    for size in SIZES:
        offsets, floats = layout(size)
        assert all(at % 8 == 0 for at in offsets.values())
        assert floats % 8 == 0
