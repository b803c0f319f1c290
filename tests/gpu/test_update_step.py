"""`update_step` on a GPU against its twin, bit for bit, on any grid and whatever a block holds."""

from __future__ import annotations

import numpy as np
import pytest
from pair_runs import assert_same, run_on
from update_cases import LAYOUTS, PARTS_ON, no_share, update_case

from onegraph.kernels.fused.update_step import STATIC_BYTES, held_of, slot_bytes
from onegraph.kernels.learner.budget import Component

pytestmark = pytest.mark.gpu

FULL = PARTS_ON["full"]


@pytest.mark.parametrize("parts", PARTS_ON)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("held", [1, 2])
def test_update_step(cuda, layout, parts, held):
    case = update_case(LAYOUTS[layout], held=held, **PARTS_ON[parts])
    fits(cuda, case)
    assert_same(cuda, "update_step", **case)


@pytest.mark.parametrize(
    "changes",
    [
        *({"every": 2}, {"every": 3}, {"max_norm": 0.0}, {"max_norm": 1e9}, {"vaccinated": 5}),
        *({"n": n} for n in (0, 1, 255, 257, 2000)),
    ],
    ids=str,
)
def test_update_step_variants(cuda, changes):
    case = update_case(LAYOUTS["odd"], **FULL, **changes)
    fits(cuda, case)
    assert_same(cuda, "update_step", **case)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["grad", "aux", "vaccine", "m"])
def test_update_step_of_what_is_not_finite(cuda, where, bad):
    case = update_case(LAYOUTS["odd"], **FULL)
    fits(cuda, case)
    case[where][1000] = bad
    found = assert_same(cuda, "update_step", **case)
    assert found["skip"][0] == (where in ("grad", "aux"))


def test_update_step_without_a_share(cuda):
    case = update_case(LAYOUTS["odd"], **FULL)
    case = no_share(case, Component.SELECTIVITY, Component.DENOISE)
    fits(cuda, case)
    case["grad"][1023] = case["aux"][7] = np.nan
    assert assert_same(cuda, "update_step", **case)["skip"][0] == 0


def test_every_grid_of_update_step_gives_the_same(cuda):
    """One block does all; a few hold a part of their tiles; with more than there are, some none."""
    case = update_case(LAYOUTS["many"], **FULL)
    fits(cuda, case)
    runs = [run_on(cuda, "update_step", blocks, **case) for blocks in (1, 2, 3, 7, 100, 4096)]
    for name, values in runs[0].items():
        for other in runs[1:]:
            np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_update_step_of_a_million_parameters(cuda):
    """More than the blocks of a GPU hold at once, in the shape of a run."""
    for floats in (1_116_168, 4_000_008):
        flags = {"with_aux": 0, "with_vaccine": 0}
        case = update_case((floats,) * 7)
        held = held_of(case["tiles"], cuda.largest_shared, **flags)
        case |= {"held": held, "shared_bytes": held * slot_bytes(**flags)}
        fits(cuda, case)
        assert_same(cuda, "update_step", **case)


def test_update_step_again_and_again(cuda):
    """The barrier's word serves one launch after another."""
    case = update_case(LAYOUTS["aligned"])
    for _ in range(3):
        found = run_on(cuda, "update_step", **case)
        case["barrier"] = found["barrier"]
    assert found["barrier"][0] == 0x80000000


def fits(cuda, case):
    """Skip a case whose block asks for more shared memory than the GPU's blocks have."""
    if case["shared_bytes"] + STATIC_BYTES > cuda.largest_shared:
        pytest.skip(f"{case['shared_bytes']} bytes of shared memory are more than a block has")
