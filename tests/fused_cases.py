"""Arguments of the fused kernels, of any size, for tests on either device."""

from __future__ import annotations

from typing import Any

import numpy as np

from onegraph.kernels.common.layout import (
    COUNTERS,
    DIAGNOSTICS,
    SCHEDULE_PARAMS,
    SCHEDULES,
    Counter,
)
from onegraph.kernels.fused.apply_step import blocks_of, tiles_of
from onegraph.kernels.fused.td_pass import TwoLayers, shared_bytes
from onegraph.kernels.learner.advance_counters import initial_schedule
from onegraph.kernels.learner.publish import RECORD
from onegraph.kernels.replay import tree

#: n, inputs, H0, H1, actions, dueling: empty, one, odd, a whole block, more rows than clusters.
SIZES = (
    (0, 8, 16, 16, 2, 1),
    (1, 8, 4, 4, 2, 1),
    (5, 8, 120, 84, 3, 0),
    (33, 16, 36, 52, 4, 1),
    (64, 64, 256, 256, 2, 1),
    (129, 24, 64, 252, 1, 0),
    (700, 8, 40, 20, 19, 1),
)

RING = 7


def layout(size: tuple[int, ...]) -> tuple[dict[str, int], int]:
    """Offsets of the tensors, with gaps between them, and the floats of the whole."""
    _, inputs, width0, width1, actions, dueling = size
    stride = actions + dueling
    at, offsets = 0, {}
    for i, (rows, columns) in enumerate(((inputs, width0), (width0, width1), (width1, stride))):
        for name, floats in ((f"weight{i}", rows * columns), (f"bias{i}", columns)):
            offsets[name] = at
            at += -(-floats // 8) * 8
    return offsets, at


def td_case(size: tuple[int, ...], seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Arguments of `td_pass`."""
    n, inputs, width0, width1, actions, dueling = size
    rng = np.random.default_rng(seed)
    offsets, floats = layout(size)
    params = np.zeros(SCHEDULE_PARAMS)
    params[12:16] = 0, 1e-3, 1e-3, 1
    params[17:19] = 0.9, 0.999
    rows, cluster = changes.pop("rows", 3), changes.pop("cluster", 4)

    def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    stride = actions + dueling
    case: dict[str, Any] = {
        "state": normal(n * inputs),
        "next_state": normal(n * inputs),
        "theta": normal(floats, scale=0.2),
        "target": normal(floats, scale=0.2),
        "action": rng.integers(0, actions, n).astype(np.int32),
        "ret": normal(n),
        "discount": np.where(rng.random(n) < 0.2, 0, 0.97).astype(np.float32),
        "raw": rng.random(n) + 0.1,
        "counters": np.arange(COUNTERS),
        "schedule": initial_schedule(params),
        "params": params,
        "skip": np.zeros(1, np.int32),
        "diagnostics": np.arange(DIAGNOSTICS),
        "seen": DIAGNOSTICS,
        "weights": n,
        "td": n,
        "loss": n,
        "q_taken": n,
        "hidden0": n * width0,
        "hidden1": n * width1,
        "grad_head": n * stride,
        "grad1": n * width1,
        "grad0": n * width0,
        "n": n,
        "inputs": inputs,
        "width0": width0,
        "width1": width1,
        "actions": actions,
        "dueling": dueling,
        "double_q": 1,
        "mse": 0,
        "delta": 1.0,
        **offsets,
        "rows": rows,
        "tiles": -(-n // rows),
        "cluster": cluster,
        "shared_bytes": shared_bytes(TwoLayers(inputs, width0, width1, stride), rows, cluster),
    }
    return {**case, **changes}


def apply_case(size: tuple[int, ...], seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Arguments of `apply_step`."""
    n, inputs, width0, width1, actions, dueling = size
    stride, leaf_count = actions + dueling, 3_000
    rng = np.random.default_rng(seed)
    offsets, floats = layout(size)

    def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    leaves = rng.random(leaf_count).astype(np.float32)
    nodes = np.zeros(tree.node_count(leaf_count))
    tree.rebuild(leaves, nodes)
    generation = np.ones(leaf_count, np.uint32)
    schedule = np.zeros(SCHEDULES)
    schedule[:4] = 0.01, 0.5, 0.1, 1e-3
    schedule[4:] = 0.1
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG] = counters[Counter.ADAM_TRUNK] = 4
    shape = (inputs, width0, width1, stride)
    case: dict[str, Any] = {
        "state": normal(n * inputs),
        "hidden0": np.maximum(normal(n * width0), 0),
        "hidden1": np.maximum(normal(n * width1), 0),
        "grad0": normal(n * width0, scale=0.1),
        "grad1": normal(n * width1, scale=0.1),
        "grad_head": normal(n * stride, scale=0.1),
        "theta": normal(floats),
        "m": normal(floats, scale=0.1),
        "v": normal(floats, scale=0.1) ** 2,
        "target": normal(floats),
        "grad": np.full(floats, 7, np.float32),
        "partial": tiles_of(*shape),
        "barrier": np.zeros(1, np.uint32),
        "clip": 2,
        "skip": 1,
        "counters": counters,
        "schedule": schedule,
        "decay": np.full(7, 0.01, np.float32),
        "td": normal(n),
        "loss": normal(n) ** 2,
        "q_taken": normal(n),
        "index": rng.integers(0, leaf_count, n).astype(np.int32),
        "sampled_generation": np.ones(n, np.uint32),
        "generation": generation,
        "leaves": leaves,
        "nodes": nodes,
        "owner": np.full(leaf_count, -1, np.int32),
        "max_leaf": np.ones(1, np.float32),
        "diagnostics": np.arange(DIAGNOSTICS),
        "seen": np.arange(DIAGNOSTICS)[::-1],
        "record": np.zeros(RECORD),
        "history": np.zeros(RING * RECORD),
        "n": n,
        "inputs": inputs,
        "width0": width0,
        "width1": width1,
        "stride": stride,
        **offsets,
        "blocks": blocks_of(*shape),
        "max_norm": 1.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "every": 0,
        "ring": RING,
        "prioritise": 1,
        "leaf_count": leaf_count,
        "alpha": 0.6,
        "leaf_eps": 1e-6,
    }
    return {**case, **changes}
