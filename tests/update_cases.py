"""Arguments of `update_step`, of any size, and what the kernels that it replaces make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from pair_runs import run_host

from onegraph.kernels.common.layout import ADAM_GROUPS, COUNTERS, DIAGNOSTICS, SCHEDULES, Counter
from onegraph.kernels.fused.update_step import (
    ENDS,
    MOST_HELD,
    blocks_of,
    slot_bytes,
    terms_of,
    tiles_of,
)
from onegraph.kernels.learner.budget import COMPONENT_OF
from onegraph.kernels.learner.publish import RECORD

RING = 7
PARTS = 5

#: Where groups end: nothing, one parameter, groups of one, aligned and not, a tile and more.
LAYOUTS: dict[str, tuple[int, ...]] = {
    "none": (0,) * 7,
    "one": (1,) * 7,
    "ones": (1, 2, 3, 4, 5, 6, 7),
    "aligned": (264, 1288, 1288, 1304, 2328, 2336, 2344),
    "odd": (1023, 1024, 2049, 2049, 2050, 5003, 5007),
    "some first": (0, 0, 1500, 1500, 1500, 1501, 1501),
    "one group": (70_008,) * 7,
    "many": (30_000, 30_104, 41_000, 52_008, 63_016, 120_024, 127_000),
}

#: What a step may have: each part alone, and all of them.
PARTS_ON: dict[str, dict[str, Any]] = {
    "plain": {},
    "budget": {"budget_norm": 0.05},
    "aux": {"with_aux": 1},
    "vaccine": {"with_vaccine": 1},
    "readies": {"readies": 1, "modulates": 1},
    "full": {
        "budget_norm": 0.05,
        "with_aux": 1,
        "with_vaccine": 1,
        "readies": 1,
        "modulates": 1,
    },
}


def update_case(
    ends: tuple[int, ...], seed: int = 0, n: int = 33, held: int = 2, **changes: Any
) -> dict[str, Any]:
    """Arguments of `update_step`; the vaccine's gradient conflicts with the main one."""
    rng = np.random.default_rng(seed)
    floats = max(ends)

    def normal(size: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(size) * scale).astype(np.float32)

    schedule = np.zeros(SCHEDULES)
    schedule[:4] = 0.01, 0.5, 0.1, 1e-3
    schedule[4:] = np.linspace(0.1, 0.9, SCHEDULES - 4)
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG] = counters[Counter.ADAM_TRUNK] = 4
    grad = normal(floats, 0.1)
    tiles = tiles_of(ends)
    case: dict[str, Any] = {
        "theta": normal(floats),
        "m": normal(floats, 0.1),
        "v": normal(floats, 0.1) ** 2,
        "target": normal(floats),
        "grad": grad,
        "aux": normal(floats, 0.1),
        "vaccine": (normal(floats, 0.1) - grad).astype(np.float32),
        "decay": np.linspace(0, 0.06, ADAM_GROUPS, dtype=np.float32),
        "shares": np.array([0.4, 0.2, 0.1, 0.1, 0.1, 0.1]),
        "barrier": np.zeros(1, np.uint32),
        "norms": 6,
        "scales": 6,
        "removed": np.full(1, 9, np.float32),
        "clip": 2,
        "skip": 1,
        "counters": counters,
        "schedule": schedule,
        "diagnostics": np.arange(DIAGNOSTICS),
        "loss": normal(n) ** 2,
        "td": normal(n),
        "q_taken": normal(n),
        "record": np.zeros(RECORD),
        "history": np.zeros(RING * RECORD),
        "ready": np.array([0.7, 0.4]),
        "q": normal(n),
        "v_hi": normal(n) + 1,
        "v_lo": normal(n) - 1,
        **dict(zip(ENDS, ends, strict=True)),
        "tiles": tiles,
        "blocks": blocks_of(tiles),
        "held": held,
        "with_aux": 0,
        "with_vaccine": 0,
        "vaccinated": (1 << ADAM_GROUPS) - 1,
        "budget_norm": 0.0,
        "max_norm": 1.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "every": 0,
        "n": n,
        "ring": RING,
        "readies": 0,
        "ready_decay": 0.9,
        "ready_low": 0.1,
        "ready_high": 2.0,
        "modulates": 0,
        "modulate_k": 1.0,
        "modulate_eps": 1e-3,
        "modulate_low": 0.5,
        "modulate_high": 2.0,
        **changes,
    }
    flags = {name: case[name] for name in ("with_aux", "with_vaccine")}
    assert 1 <= held <= MOST_HELD
    return {
        **case,
        "shared_bytes": held * slot_bytes(**flags),
        "partial": tiles * terms_of(**flags),
    }


def separate(case: dict[str, Any]) -> dict[str, np.ndarray]:
    """What the kernels that `update_step` replaces make of its arguments, one after the other."""
    ends = [case[name] for name in ENDS]
    floats = max(ends)
    found = {"grad": case["grad"], "removed": case["removed"]}
    sized: dict[str, Any] = {"n": floats, "parts": PARTS}
    given = sized | {"ends": ends, "aux": case["aux"], "with_aux": case["with_aux"]}
    squares = run_host("component_norms", grad=found["grad"], squares=8 * PARTS, **given)["squares"]
    found |= run_host(
        "apply_budget",
        grad=found["grad"],
        squares=squares,
        shares=case["shares"],
        norms=6,
        scales=6,
        partial=PARTS,
        max_norm=case["budget_norm"],
        **given,
    )
    if case["with_vaccine"]:
        vaccine = case["vaccine"].copy()
        start = 0
        for group, end in enumerate(ends):
            if not case["vaccinated"] >> group & 1:
                vaccine[start:end] = 0
            start = end
        dots = run_host(
            "vaccine_partial", grad=found["grad"], vaccine=vaccine, dots=2 * PARTS, **sized
        )
        found |= run_host(
            "project_gradient",
            grad=found["grad"],
            vaccine=vaccine,
            dots=dots["dots"],
            removed=1,
            partial=PARTS,
            **sized,
        )
    found |= run_host(
        "clip_factor",
        partial=found["partial"],
        clip=2,
        skip=1,
        parts=PARTS,
        max_norm=case["max_norm"],
    )
    now = {name: case[name] for name in ("schedule", "counters", "diagnostics")}
    moved = run_host(
        "adam_step",
        param=case["theta"],
        **{name: case[name] for name in ("m", "v", "decay", "beta1", "beta2", "eps", "schedule")},
        **{name: found[name] for name in ("grad", "clip", "skip")},
        ends=ends,
        n=floats,
    )
    found |= {"theta": moved["param"], "m": moved["m"], "v": moved["v"]}
    found |= run_host(
        "maintain",
        target=case["target"],
        param=found["theta"],
        **{name: case[name] for name in ("loss", "td", "q_taken", "record", "history")},
        **{name: found[name] for name in ("clip", "skip")},
        **now,
        size=floats,
        **{name: case[name] for name in ("every", "n", "ring")},
        blocks=3,
    )
    found |= {"ready": case["ready"], "td": case["td"]}
    if case["readies"]:
        found |= run_host(
            "iqn_readiness",
            loss=case["loss"],
            skip=found["skip"],
            ready=case["ready"],
            n=case["n"],
            **{name: case[f"ready_{name}"] for name in ("decay", "low", "high")},
        )
    if case["modulates"]:
        found |= run_host(
            "iql_modulate",
            **{name: case[name] for name in ("td", "q", "v_hi", "v_lo")},
            rows=case["n"],
            **{name: case[f"modulate_{name}"] for name in ("k", "eps", "low", "high")},
        )
    del found["partial"]
    return found


def no_share(case: dict[str, Any], *components: int) -> dict[str, Any]:
    """The case without a share for some components, which the vaccine then leaves alone."""
    shares = case["shares"].copy()
    shares[list(components)] = 0
    gone = [group for group, component in COMPONENT_OF.items() if component in components]
    kept = case["vaccinated"] & ~sum(1 << group for group in gone)
    return case | {"shares": shares, "vaccinated": kept}
