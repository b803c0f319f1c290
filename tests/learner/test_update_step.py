"""The twin of `update_step`: by hand, and against the kernels that it replaces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_runs import run_host
from update_cases import LAYOUTS, PARTS_ON, no_share, separate, update_case

from onegraph.kernels.common.layout import Counter
from onegraph.kernels.fused.update_step import (
    MOST_HELD,
    STATIC_BYTES,
    blocks_of,
    held_of,
    slot_bytes,
    tiles_of,
)
from onegraph.kernels.learner.budget import Component

NAN, INF = math.nan, math.inf
MOVED = ("theta", "m", "v", "target")


# ---------------------------------------------------------------- by hand


def two_groups(grad: list[float], aux=(0, 0), vaccine=(0, 0), **changes: Any) -> dict[str, Any]:
    """One parameter of the trunk and one of the denoising network; moments are zero."""
    case = update_case((1, 1, 2, 2, 2, 2, 2), n=2, held=1)
    schedule = np.zeros_like(case["schedule"])
    schedule[:4] = 0.5, 0.4, 0.0, 0.125  # tau, beta, epsilon, learning rate
    schedule[4::2], schedule[5::2] = 0.5, 0.25  # of beta1 = 1/2, beta2 = 3/4
    given = {"grad": grad, "aux": aux, "vaccine": vaccine, "theta": [1, 1], "m": [0, 0]}
    given |= {"v": [0, 0], "target": [0, 0], "loss": [1, 3], "td": [1, -3], "q_taken": [2, 4]}
    case |= {name: np.array(values, np.float32) for name, values in given.items()}
    case |= {"schedule": schedule, "decay": np.zeros(7, np.float32)}
    case |= {"beta1": 0.5, "beta2": 0.75, "eps": 0.25, "max_norm": 0.0}
    flags = {name: changes.get(name, 0) for name in ("with_aux", "with_vaccine")}
    terms = 6 if any(flags.values()) else 1
    return case | {"partial": 2 * terms, "shared_bytes": slot_bytes(**flags)} | changes


def test_two_parameters() -> None:
    found = run_host("update_step", **two_groups([3, 4]))
    assert found["partial"].tolist() == [9, 16]
    assert found["clip"].tolist() == [5, 1]
    assert found["skip"].tolist() == [0]
    assert found["grad"].tolist() == [3, 4]
    # m = g / 2, and g without bias; v = g^2 / 4, and g^2 without
    assert found["m"].tolist() == [1.5, 2]
    assert found["v"].tolist() == [2.25, 4]
    moved = np.array([1 - 0.125 * 3 / (3 + 0.25), 1 - 0.125 * 4 / (4 + 0.25)])
    np.testing.assert_allclose(found["theta"], moved, rtol=1e-6)
    np.testing.assert_allclose(found["target"], moved / 2, rtol=1e-6)
    assert found["norms"].tolist() == [3, 0, 0, 4, 0, 0]
    assert found["scales"].tolist() == [1] * 6
    assert found["removed"].tolist() == [9]  # nobody's
    assert found["barrier"].tolist() == [0x80000000]
    # stamp, loss, norm, mean of |td|, of q, largest |td|
    assert found["record"][:6].tolist() == [4, 2, 5, 2, 3, 3]
    assert found["td"].tolist() == [1, -3]


def test_the_norm_is_clipped() -> None:
    found = run_host("update_step", **two_groups([3, 4], max_norm=2.5))
    assert found["clip"].tolist() == [5, 0.5]
    assert found["m"].tolist() == [0.75, 1]
    assert found["grad"].tolist() == [3, 4]


def test_a_budget_and_a_second_gradient() -> None:
    """Caps of 5 each: the trunk's 10 is halved, and so is the denoising loss' (6, 8)."""
    case = two_groups([10, NAN], aux=[6, 8], with_aux=1, budget_norm=10.0)
    case["shares"] = np.array([0.5, 0, 0, 0.5, 0, 0])
    found = run_host("update_step", **case)
    assert found["partial"].tolist() == [100, 60, 36, 0, 0, 0, 0, 0, 64, 0, 0, 0]
    assert found["norms"].tolist() == [10, 0, 0, 10, 0, 0]
    assert found["scales"].tolist() == [0.5, 0, 0, 0.5, 0, 0]
    assert found["grad"].tolist() == [8, 4]
    assert found["clip"][0] == np.float32(np.sqrt(80))
    assert found["m"].tolist() == [4, 2]


def test_a_vaccine() -> None:
    """g = (3, 4), v = (-1, 0): g.v = -3, v.v = 1; what is left is (0, 4)."""
    found = run_host("update_step", **two_groups([3, 4], vaccine=[-1, 0], with_vaccine=1))
    assert found["removed"].tolist() == [-3]
    assert found["grad"].tolist() == [0, 4]
    assert found["clip"].tolist() == [4, 1]
    assert found["m"].tolist() == [0, 2]


@pytest.mark.parametrize("vaccine", [[1, 0], [0, 0], [-1, NAN], [-INF, 0]])
def test_what_does_not_vaccinate(vaccine) -> None:
    found = run_host("update_step", **two_groups([3, 4], vaccine=vaccine, with_vaccine=1))
    assert found["removed"].tolist() == [0]
    assert found["grad"].tolist() == [3, 4]
    assert found["skip"].tolist() == [0]


def test_a_group_in_which_the_vaccine_does_not_count() -> None:
    case = two_groups([3, 4], vaccine=[-1, NAN], with_vaccine=1, vaccinated=1)
    found = run_host("update_step", **case)
    assert found["grad"].tolist() == [0, 4]


def test_readiness_and_modulation() -> None:
    case = two_groups([3, 4], readies=1, modulates=1, ready_decay=0.5, ready_low=1, ready_high=2)
    case |= {"ready": np.array([1.0, 0.0]), "q": np.ones(2, np.float32)}
    case |= {"v_hi": np.ones(2, np.float32), "v_lo": np.zeros(2, np.float32)}
    found = run_host("update_step", **(case | {"modulate_eps": 0.0, "modulate_high": 2.0}))
    assert found["ready"].tolist() == [1.5, 0.5]  # the mean loss is 2
    assert found["td"].tolist() == [2, -6]  # exp(1) is above 2
    assert found["record"][3] == 2  # of the errors as they were


@pytest.mark.parametrize(("steps", "copied"), [(3, False), (4, True)])
def test_the_target_is_copied_now_and_then(steps: int, copied: bool) -> None:
    counters = np.zeros_like(two_groups([3, 4])["counters"])
    counters[Counter.ADAM_TRUNK] = steps
    found = run_host("update_step", **two_groups([3, 4], every=4, counters=counters))
    assert found["target"].tolist() == (found["theta"].tolist() if copied else [0, 0])


# ---------------------------------------------------------------- what is not finite


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("where", ["grad", "aux"])
def test_a_step_that_is_not_finite_is_skipped(bad, where) -> None:
    case = update_case(LAYOUTS["odd"], **PARTS_ON["full"])
    case[where][1000] = bad
    found = run_host("update_step", **case)
    assert found["skip"].tolist() == [1]
    assert found["clip"][1] == 0
    assert found["record"][11] == 1
    assert found["removed"][0] == 0 or np.isfinite(found["removed"][0])
    for name in (*MOVED, "grad", "ready"):
        np.testing.assert_array_equal(found[name], case[name], err_msg=name)
    assert (found["td"] != case["td"]).any()  # modulation asks for no flag


def test_what_has_no_share_is_not_looked_at() -> None:
    case = no_share(update_case(LAYOUTS["odd"], **PARTS_ON["full"]), Component.SELECTIVITY)
    case["grad"][1023] = NAN
    found = run_host("update_step", **case)
    assert found["skip"].tolist() == [0]
    assert np.isfinite(found["theta"]).all()
    assert found["grad"][1023] == case["aux"][1023] * found["scales"][Component.DENOISE]


@pytest.mark.parametrize("part", ["aux", "vaccine"])
def test_a_sum_beyond_float32_is_skipped(part: str) -> None:
    """Each of the two is finite, as are both norms; their sum is not."""
    most = float(np.finfo(np.float32).max)
    given = {"aux": [most, 0]} if part == "aux" else {"vaccine": [-1, 1]}
    found = run_host("update_step", **two_groups([most, 0], **given, **{f"with_{part}": 1}))
    assert found["skip"].tolist() == [1]
    assert found["clip"][1] == 0
    alone = run_host("update_step", **two_groups([most, 0]))
    assert alone["skip"].tolist() == [0]


# ---------------------------------------------------------------- against what it replaces


def held_to(case: dict[str, Any]) -> dict[str, np.ndarray]:
    """The kernel's results, which are those of the others to rounding."""
    found, wanted = run_host("update_step", **case), separate(case)
    assert found["skip"].tolist() == wanted["skip"].tolist()
    changed = {"grad"} if found["skip"][0] else set()
    for name in wanted.keys() - changed:
        np.testing.assert_allclose(
            found[name], wanted[name], rtol=2e-5, atol=2e-7, err_msg=name, equal_nan=True
        )
    return found


@pytest.mark.parametrize("parts", PARTS_ON)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_against_the_kernels_that_it_replaces(layout: str, parts: str) -> None:
    held_to(update_case(LAYOUTS[layout], **PARTS_ON[parts]))


@pytest.mark.parametrize(
    "changes", [{"every": 2}, {"every": 3}, {"max_norm": 0.0}, {"n": 0}, {"n": 1}, {"n": 700}]
)
def test_variants_against_the_kernels_that_it_replaces(changes) -> None:
    held_to(update_case(LAYOUTS["odd"], **PARTS_ON["full"], **changes))


def test_a_plain_step_has_their_bits_but_for_reciprocals() -> None:
    """A norm that is not clipped, and corrections whose reciprocals are exact."""
    case = update_case(LAYOUTS["many"], max_norm=0.0)
    case["schedule"][4:] = 0.25
    found, wanted = run_host("update_step", **case), separate(case)
    for name in MOVED:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)


def test_a_projection_is_rounded_once() -> None:
    """In float64, as by the kernel that it replaces: hardly an element differs."""
    case = update_case(LAYOUTS["many"], with_vaccine=1)
    found, wanted = run_host("update_step", **case), separate(case)
    assert found["removed"][0] < 0
    assert np.mean(found["grad"] != wanted["grad"]) < 1e-3


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=7, max_size=7),
    seed=st.integers(0, 999),
    shares=st.lists(st.integers(0, 3), min_size=6, max_size=6).filter(any),
    budget_norm=st.sampled_from([0.0, 0.1, 10.0]),
    max_norm=st.sampled_from([0.0, 0.1, 10.0]),
    with_aux=st.booleans(),
    with_vaccine=st.booleans(),
)
def test_any_step(sizes, seed, shares, budget_norm, max_norm, with_aux, with_vaccine) -> None:
    case = update_case(
        tuple(int(end) for end in np.cumsum(sizes)),
        seed,
        budget_norm=budget_norm,
        max_norm=max_norm,
        with_aux=int(with_aux),
        with_vaccine=int(with_vaccine),
        shares=np.array(shares) / sum(shares),
    )
    held_to(no_share(case, *(c for c in Component if not shares[c])))


def test_how_much_is_held_changes_nothing() -> None:
    runs = [
        run_host("update_step", **update_case(LAYOUTS["many"], held=held, **PARTS_ON["full"]))
        for held in (1, 3)
    ]
    for name, values in runs[0].items():
        np.testing.assert_array_equal(values, runs[1][name], err_msg=name)


# ---------------------------------------------------------------- the launch


def test_tiles_and_blocks() -> None:
    assert tiles_of((0,) * 7) == 0
    assert tiles_of((1024, 1025, 1025, 3074, 3074, 3074, 3075)) == 1 + 1 + 0 + 3 + 0 + 0 + 1
    assert tiles_of((1024, 0, 1024, 1025, 0, 0, 0)) == 2  # an end before the last is none
    assert [blocks_of(tiles) for tiles in (0, 1, 2, 3)] == [1, 2, 2, 3]


def test_what_is_held() -> None:
    plain, full = {"with_aux": 0, "with_vaccine": 0}, {"with_aux": 1, "with_vaccine": 1}
    assert slot_bytes(**plain) == 5 * 8192
    assert slot_bytes(**full) == 7 * 8192
    limit = 227 * 1024
    assert held_of(1, limit, **plain) == 1
    assert held_of(2 * 128 + 1, limit, **plain) == 2
    assert held_of(1_000_000, limit, **plain) == 5
    assert held_of(1_000_000, limit, **full) == 3
    assert held_of(1_000_000, 10**9, **plain) == MOST_HELD
    assert held_of(1, STATIC_BYTES + slot_bytes(**full), **full) == 1
    assert held_of(1, STATIC_BYTES + slot_bytes(**full) - 1, **full) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tiles": 3}, r"groups that end at .* are 2 tiles, not 3"),
        ({"held": 0, "shared_bytes": 0}, "0 held tiles in 0 bytes of shared memory; hold 1 to 7"),
        ({"shared_bytes": 8}, "1 held tiles in 8 bytes of shared memory; hold 1 to 7 of 40960"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        run_host("update_step", **(two_groups([3, 4]) | changes))
