"""The replay's table of right values, held over every implementation.

A test module makes a subclass of `ReplayContract` whose fixture `make` builds a replay from a spec.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from replay.implementations import Replay, insert_slots, root, set_leaves

from onegraph.kernels.common.layout import Counter, Diagnostic, Flag
from onegraph.trainer.legacy.replay import ReplaySpec

Make = Callable[[ReplaySpec], Replay]

TERMINATED, TRUNCATED, INVALID = int(Flag.TERMINATED), int(Flag.TRUNCATED), int(Flag.INVALID)


def spec_of(capacity: int, **changes: object) -> ReplaySpec:
    fields: dict[str, object] = {
        "lanes": 1,
        "slots": capacity,
        "padded": 8,
        "alpha": 1.0,
        "eps": 0.0,
    }
    return ReplaySpec(**(fields | changes))  # type: ignore[arg-type]


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def generation_of(replay: Replay, index: np.ndarray) -> np.ndarray:
    return replay.read("replay_generation")[index]


class ReplayContract:
    # ------------------------------------------------------------ the draw

    def test_equal_priorities_are_drawn_by_mass(self, make: Make) -> None:
        replay = make(spec_of(3))
        set_leaves(replay, [1, 1, 1])
        assert replay.locate(np.array([0.5, 1.5, 2.5]))[0].tolist() == [0, 1, 2]

    def test_each_unit_of_mass_is_drawn_once(self, make: Make) -> None:
        replay = make(spec_of(3))
        set_leaves(replay, [10, 5, 2])
        index, _ = replay.locate(np.arange(17.0))
        assert np.bincount(index).tolist() == [10, 5, 2]

    @pytest.mark.parametrize(
        ("threshold", "item"),
        [(-1.0, 1), (0.0, 1), (np.nan, 1), (7.0, 3), (8.0, 3), (np.inf, 3), (-np.inf, 1)],
    )
    def test_a_threshold_outside_the_total_falls_on_a_positive_end(
        self, make: Make, threshold: float, item: int
    ) -> None:
        replay = make(spec_of(5))
        set_leaves(replay, [0, 5, 0, 2, 0])
        assert replay.locate(np.array([threshold]))[0].tolist() == [item]

    def test_an_empty_tree_answers_row_0(self, make: Make) -> None:
        replay = make(spec_of(100))
        assert replay.locate(np.array([0.0, 1.0, np.nan]))[0].tolist() == [0, 0, 0]

    @pytest.mark.slow
    @pytest.mark.parametrize(("capacity", "filled"), [(4096, 4096), (500, 100)])
    def test_an_index_is_within_the_filled_part(
        self, make: Make, capacity: int, filled: int
    ) -> None:
        replay = make(spec_of(capacity, seed=3))
        set_leaves(replay, np.full(filled, 0.1, np.float32))
        total = root(replay)
        for step in range(10):
            replay.counters[Counter.RNG] = step
            index, _ = replay.draw(100_000)
            assert index.min() >= 0
            assert index.max() == filled - 1
        ends = np.array([np.nextafter(total, 0), total, np.nextafter(total, np.inf)])
        assert replay.locate(ends)[0].max() == filled - 1

    @pytest.mark.parametrize(
        "draws",
        [200_000, pytest.param(10_000_000, marks=pytest.mark.soak)],
    )
    def test_no_leaf_of_zero_is_drawn(self, make: Make, draws: int) -> None:
        replay = make(spec_of(70, seed=5, stratified=False))
        set_leaves(replay, np.arange(70) % 2)
        counts = np.zeros(70, np.int64)
        for step in range(draws // 100_000):
            replay.counters[Counter.RNG] = step
            counts += np.bincount(replay.draw(100_000)[0], minlength=70)
        assert not counts[::2].any()
        assert counts[1::2].min() > 0

    def test_each_of_65536_strata_is_drawn_once(self, make: Make) -> None:
        replay = make(spec_of(65_536, seed=11))
        set_leaves(replay, np.ones(65_536))
        assert np.array_equal(replay.draw(65_536)[0], np.arange(65_536))

    def test_draws_follow_the_priorities(self, make: Make) -> None:
        rng = np.random.default_rng(2)
        leaves = rng.uniform(0.1, 3.0, 500).astype(np.float32)
        replay = make(spec_of(500, seed=7, stratified=False))
        set_leaves(replay, leaves)
        counts = np.bincount(replay.draw(100_000)[0], minlength=500)
        expected = 100_000 * leaves.astype(np.float64) / leaves.sum(dtype=np.float64)
        statistic = float(((counts - expected) ** 2 / expected).sum())
        assert statistic < chi_square_bound(499)

    def test_a_step_draws_its_own_rows_and_a_seed_its_own(self, make: Make) -> None:
        drawn = []
        for seed, step in ((1, 0), (1, 1), (2, 0), (1, 0)):
            replay = make(spec_of(1000, seed=seed))
            set_leaves(replay, np.ones(1000))
            replay.counters[Counter.RNG] = step
            drawn.append(replay.draw(64)[0].tolist())
        assert drawn[0] == drawn[3]
        assert drawn[0] != drawn[1]
        assert drawn[0] != drawn[2]

    # ------------------------------------------------------------ weights

    def test_equal_priorities_weigh_one(self, make: Make) -> None:
        replay = make(spec_of(8))
        set_leaves(replay, [1, 1, 1])
        assert replay.weights(i32(0, 1, 2), 0.4).tolist() == [1, 1, 1]

    def test_weights_are_inverse_probabilities_at_beta_1(self, make: Make) -> None:
        replay = make(spec_of(2))
        set_leaves(replay, [1, 3])
        assert replay.weights(i32(0, 1), 1.0).tolist() == [1, np.float32(1 / 3)]

    def test_beta_is_a_power(self, make: Make) -> None:
        replay = make(spec_of(2))
        set_leaves(replay, [1, 16])
        assert replay.weights(i32(0, 1), 0.75) == pytest.approx([1, 0.125], rel=1e-6)
        assert replay.weights(i32(0, 1), 0.0).tolist() == [1, 1]

    def test_the_largest_weight_is_of_the_batch(self, make: Make) -> None:
        replay = make(spec_of(3))
        set_leaves(replay, [1, 2, 4])
        assert replay.weights(i32(1, 2, 2), 1.0).tolist() == [1, 0.5, 0.5]

    def test_what_can_not_be_drawn_weighs_nothing(self, make: Make) -> None:
        replay = make(spec_of(3))
        set_leaves(replay, [0, 2, 2])
        assert replay.weights(i32(0, 1, -1, 3), 0.5).tolist() == [0, 1, 0, 0]
        set_leaves(replay, [0, 0, 0])
        assert replay.weights(i32(0, 1), 0.5).tolist() == [0, 0]

    # ------------------------------------------------------------ priorities

    def test_alpha_is_applied_once(self, make: Make) -> None:
        replay = make(spec_of(3, alpha=0.5))
        insert_slots(replay, [0, 0])
        replay.update(i32(0, 1), generation_of(replay, i32(0, 1)), f32(4, -1))
        insert_slots(replay, [0])
        assert replay.read("replay_leaves").tolist() == [2, 1, 2]

    def test_eps_is_added_before_alpha(self, make: Make) -> None:
        replay = make(spec_of(1, alpha=0.5, eps=0.25))
        insert_slots(replay, [0])
        replay.update(i32(0), generation_of(replay, i32(0)), f32(-2))
        assert replay.read("replay_leaves").tolist() == [1.5]

    def test_a_new_item_gets_the_largest_leaf_seen(self, make: Make) -> None:
        replay = make(spec_of(4))
        insert_slots(replay, [0, 0])
        assert replay.read("replay_leaves").tolist() == [1, 1, 0, 0]
        replay.update(i32(0, 1), generation_of(replay, i32(0, 1)), f32(5, 2.7))
        insert_slots(replay, [0])
        assert replay.read("replay_leaves").tolist() == [5, np.float32(2.7), 5, 0]
        assert root(replay) == 10 + float(np.float32(2.7))

    def test_the_highest_position_of_a_repeated_index_wins(self, make: Make) -> None:
        replay = make(spec_of(4))
        set_leaves(replay, [0, 0, 0, 0])
        replay.update(i32(2, 2), generation_of(replay, i32(2, 2)), f32(1, 3))
        assert root(replay) == 3
        replay.update(i32(2, 2), generation_of(replay, i32(2, 2)), f32(3, 1))
        assert root(replay) == 1
        assert replay.read("replay_max_leaf").tolist() == [3]
        assert replay.read("replay_owner").tolist() == [-1] * 4

    def test_a_dropped_position_does_not_win(self, make: Make) -> None:
        replay = make(spec_of(4))
        set_leaves(replay, [1, 1, 1, 1])
        replay.update(i32(2, 2), generation_of(replay, i32(2, 2)), f32(3, np.nan))
        assert replay.read("replay_leaves").tolist() == [1, 1, 3, 1]

    @pytest.mark.slow
    def test_the_root_does_not_drift(self, make: Make) -> None:
        rng = np.random.default_rng(9)
        replay = make(spec_of(2_000, alpha=0.6, eps=1e-6))
        set_leaves(replay, np.ones(2_000))
        for _ in range(1_000):
            index = rng.integers(0, 2_000, 32).astype(np.int32)
            td = rng.lognormal(0, 3, 32).astype(np.float32)
            replay.update(index, generation_of(replay, index), td)
        leaves = replay.read("replay_leaves").astype(np.float64)
        assert root(replay) == pytest.approx(math.fsum(leaves), rel=1e-14)

    def test_an_overwritten_item_keeps_its_priority(self, make: Make) -> None:
        replay = make(spec_of(2))
        insert_slots(replay, [0, 0])
        index, generation = replay.locate(np.array([0.5]))
        assert index.tolist() == [0]
        insert_slots(replay, [0])
        replay.update(index, generation, f32(9))
        assert replay.read("replay_leaves").tolist() == [1, 1]
        assert replay.read("replay_max_leaf").tolist() == [1]
        assert replay.read("diagnostics")[Diagnostic.STALE_UPDATE] == 1
        assert replay.read("diagnostics")[Diagnostic.NONFINITE_TD] == 0

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_a_td_error_that_is_not_finite_stays_out(self, make: Make, bad: float) -> None:
        replay = make(spec_of(3))
        insert_slots(replay, [0, 0, 0])
        replay.update(i32(0, 1), generation_of(replay, i32(0, 1)), f32(bad, 2))
        assert replay.read("replay_leaves").tolist() == [1, 2, 1]
        assert root(replay) == 4
        assert replay.read("diagnostics")[Diagnostic.NONFINITE_TD] == 1
        index, _ = replay.draw(16)
        assert set(index.tolist()) <= {0, 1, 2}

    def test_a_leaf_that_overflows_stays_out(self, make: Make) -> None:
        replay = make(spec_of(2, alpha=2.0))
        insert_slots(replay, [0, 0])
        replay.update(i32(0, 1), generation_of(replay, i32(0, 1)), f32(1e30, 3))
        assert replay.read("replay_leaves") == pytest.approx([1, 9])
        assert replay.read("diagnostics")[Diagnostic.NONFINITE_TD] == 1

    def test_an_index_outside_the_leaves_is_ignored(self, make: Make) -> None:
        replay = make(spec_of(2))
        insert_slots(replay, [0, 0])
        replay.update(i32(-1, 2, 1), np.array([1, 1, 1], np.uint32), f32(7, 7, 3))
        assert replay.read("replay_leaves").tolist() == [1, 3]
        assert not replay.read("diagnostics").any()

    # ------------------------------------------------------------ insertion

    @pytest.mark.parametrize("where", ["reward", "state", "next_state"])
    def test_a_row_that_is_not_finite_is_never_drawn(self, make: Make, where: str) -> None:
        replay = make(spec_of(3, lanes=2, slots=3))
        zeros, ok = np.zeros((2, 8), np.float32), np.zeros(2, np.float32)
        broken = zeros.copy()
        broken[1, 7] = np.inf
        replay.insert(
            broken if where == "state" else zeros,
            np.arange(2, dtype=np.int32),
            f32(0, np.nan) if where == "reward" else ok,
            np.array([TRUNCATED, TRUNCATED], np.uint8),
            broken if where == "next_state" else zeros,
            np.zeros(2, np.int64),
        )
        assert replay.read("replay_flags").tolist()[:2] == [TRUNCATED, TRUNCATED | INVALID]
        assert replay.read("replay_leaves").tolist() == [1, 0, 0, 0, 0, 0]
        assert replay.read("diagnostics")[Diagnostic.INVALID_ROW] == 1
        for name in ("replay_state", "replay_next_state", "replay_reward"):
            assert np.isfinite(replay.read(name)).all()
        assert set(replay.draw(64)[0].tolist()) == {0}

    def test_a_row_that_the_environment_calls_invalid_is_not_counted(self, make: Make) -> None:
        replay = make(spec_of(2))
        insert_slots(replay, [0, 0], [INVALID, 0])
        assert replay.read("replay_leaves").tolist() == [0, 1]
        assert replay.read("diagnostics")[Diagnostic.INVALID_ROW] == 0

    def test_rows_are_written_at_the_head_and_wrap_around(self, make: Make) -> None:
        replay = make(spec_of(0, lanes=2, slots=3))
        insert_slots(replay, np.arange(8.0))
        assert replay.read("replay_reward").tolist() == [6, 7, 2, 3, 4, 5]
        assert replay.read("replay_generation").tolist() == [2, 2, 1, 1, 1, 1]
        assert replay.read("replay_episode").tolist() == [3, 3, 1, 1, 2, 2]
        assert replay.read("replay_action").tolist() == [0, 1] * 3
        assert replay.read("replay_state").reshape(6, 8)[:, 5].tolist() == [6, 7, 2, 3, 4, 5]
        assert root(replay) == 6

    # ------------------------------------------------------------ n-step returns

    def test_three_steps(self, make: Make) -> None:
        replay = make(spec_of(5, n_step=3, gamma=0.5))
        insert_slots(replay, [1, 1, 1, 1])
        last, ret, discount = replay.assemble(i32(0))
        assert last.tolist() == [2]
        assert ret[0] + discount[0] * 8 == 2.75

    @pytest.mark.parametrize(("flag", "target"), [(TRUNCATED, 10), (TERMINATED, 1)])
    def test_termination_ends_the_value_and_truncation_does_not(
        self, make: Make, flag: int, target: float
    ) -> None:
        replay = make(spec_of(4, n_step=3, gamma=0.9))
        insert_slots(replay, [1, 5, 5], [flag, 0, 0])
        last, ret, discount = replay.assemble(i32(0))
        assert last.tolist() == [0]
        assert ret[0] + discount[0] * 10 == pytest.approx(target, rel=1e-6)

    @pytest.mark.parametrize(
        ("rewards", "flags", "index", "last", "ret", "discount"),
        [
            pytest.param([1, 2, 4], None, 1, 2, 4.0, 0.25, id="stops before the unfilled part"),
            pytest.param([1, 2, 4], None, 2, 2, 4.0, 0.5, id="the newest row has one step"),
            pytest.param([9, 9, 1, 2, 4, 8, 16], None, 4, 1, 4 + 4 + 4, 0.125, id="wraps around"),
            pytest.param([9, 9, 1, 2, 4, 8, 16], None, 0, 1, 8 + 8, 0.25, id="stops at the head"),
            pytest.param([9, 9, 1, 2, 4, 8, 16], None, 2, 4, 1 + 1 + 1, 0.125, id="from the head"),
            pytest.param([1, 2, 4], [0, TRUNCATED, 0], 0, 1, 2.0, 0.25, id="an episode's end"),
            pytest.param([1, 2, 4], [0, TERMINATED, 0], 0, 1, 2.0, 0.0, id="termination"),
            pytest.param([1, 2, 4], [0, 0, INVALID], 0, 1, 2.0, 0.25, id="an invalid row"),
            pytest.param([1, 2, 4], [INVALID, 0, 0], 0, 0, 0.0, 0.0, id="an invalid start"),
            pytest.param([1, 2, 4], None, 3, -1, 0.0, 0.0, id="an unfilled start"),
            pytest.param([1, 2, 4], None, -7, -1, 0.0, 0.0, id="a negative start"),
            pytest.param([1, 2, 4], None, 99, -1, 0.0, 0.0, id="a start past the end"),
        ],
    )
    def test_where_a_return_ends(
        self,
        make: Make,
        rewards: list[float],
        flags: list[int] | None,
        index: int,
        last: int,
        ret: float,
        discount: float,
    ) -> None:
        replay = make(spec_of(5, n_step=3, gamma=0.5))
        insert_slots(replay, rewards, flags)
        got = [a.tolist() for a in replay.assemble(i32(index))]
        assert got == [[last], [ret], [discount]]

    def test_lanes_stay_apart(self, make: Make) -> None:
        replay = make(spec_of(0, lanes=2, slots=4, n_step=2, gamma=0.5))
        insert_slots(replay, [1, 100, 2, 200, 4, 400], [0, TERMINATED, 0, 0, 0, 0])
        last, ret, discount = replay.assemble(i32(0, 1, 2, 3))
        assert last.tolist() == [2, 1, 4, 5]
        assert ret.tolist() == [2, 100, 4, 400]
        assert discount.tolist() == [0.25, 0, 0.25, 0.25]

    def test_a_ring_of_one_slot_has_one_step(self, make: Make) -> None:
        replay = make(spec_of(0, lanes=3, slots=1, n_step=4, gamma=0.5))
        insert_slots(replay, [1, 2, 3])
        last, ret, discount = replay.assemble(i32(0, 1, 2))
        assert last.tolist() == [0, 1, 2]
        assert ret.tolist() == [1, 2, 3]
        assert discount.tolist() == [0.5] * 3

    def test_more_steps_than_slots_stop_at_the_head(self, make: Make) -> None:
        replay = make(spec_of(3, n_step=10, gamma=0.5))
        insert_slots(replay, [1, 2, 4])
        assert [a.tolist() for a in replay.assemble(i32(0))] == [[2], [3], [0.125]]

    # ------------------------------------------------------------ gathers

    def test_rows_are_gathered_as_they_were_inserted(self, make: Make) -> None:
        replay = make(spec_of(40))
        states = np.random.default_rng(0).normal(size=(40, 1, 8)).astype(np.float32)
        insert_slots(replay, np.zeros(40), states=states)
        index = i32(39, 0, 7, 7)
        assert np.array_equal(replay.gather("replay_state", index), states[index, 0])


def chi_square_bound(freedom: int, z: float = 4.5) -> float:
    """What a chi-square variable exceeds with probability 3e-6 (Wilson and Hilferty 1931)."""
    spread = 2.0 / (9.0 * freedom)
    return freedom * (1.0 - spread + z * math.sqrt(spread)) ** 3
