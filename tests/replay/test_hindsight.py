"""Hindsight: which rows give goals, and returns under them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_runs import run_host
from replay.hindsight_rings import Ring, by_hand, random_ring

from onegraph.kernels.common.layout import COUNTERS, Counter, Flag
from onegraph.kernels.replay.hindsight_assemble import Strategy

TERMINATED, TRUNCATED, INVALID = (int(f) for f in Flag)


def relabelled(ring: Ring, index) -> dict[str, list]:
    found = run_host("hindsight_assemble", **ring.arguments(np.asarray(index)))
    return {name: values.tolist() for name, values in found.items()}


def donors(ring: Ring, row: int, draws: int = 200) -> set[int]:
    """Every row that gives `row` its goal in many draws; -1 where it keeps its own."""
    return set(relabelled(ring, [row] * draws)["donor"])


def small(**changes) -> Ring:
    """Two lanes of six slots, wrapped around, with the write head at slot 2.

    Lane 0 by age, slots 2 3 4 5 0 1: episode 0 ends at slot 3 (termination), episode 2 at slot 0
    (truncation), episode 4 goes on. Lane 1: episode 1 has slots 2 to 5 and ends, episode 3 goes on.
    What was achieved after a row is its number in columns 2 and 3.
    """
    flags, episode = np.zeros((6, 2), np.uint8), np.zeros((6, 2), np.int64)
    flags[3, 0], flags[0, 0], flags[5, 1] = TERMINATED, TRUNCATED, TERMINATED
    episode[:, 0] = [2, 4, 0, 0, 2, 2]
    episode[:, 1] = [3, 3, 1, 1, 1, 1]
    next_state = np.full((12, 8), np.nan, np.float32)
    next_state[:, 2] = next_state[:, 3] = np.arange(12)
    ring = Ring(
        lanes=2,
        slots=6,
        head=2,
        filled=12,
        flags=flags.reshape(-1),
        episode=episode.reshape(-1),
        reward=np.arange(100, 112, dtype=np.float32),
        next_state=next_state,
        width=2,
        achieved=2,
        share=1.0,
    )
    return replace(ring, **changes)


#: Row = 2 x slot + lane; its episode's rows from it on.
EPISODES = {
    4: [4, 6], 6: [6],  # lane 0, episode 0: slots 2, 3
    8: [8, 10, 0], 10: [10, 0], 0: [0],  # episode 2: slots 4, 5, 0
    2: [2],  # episode 4: slot 1, then the write head
    5: [5, 7, 9, 11], 7: [7, 9, 11], 9: [9, 11], 11: [11],  # lane 1, episode 1
    1: [1, 3], 3: [3],  # episode 3: slots 0, 1, then the write head
}  # fmt: skip


@pytest.mark.parametrize("row", EPISODES)
def test_future_gives_each_later_row_of_the_episode(row):
    assert donors(small(), row) == set(EPISODES[row])


@pytest.mark.parametrize("row", EPISODES)
def test_final_gives_the_last_row_of_the_episode(row):
    assert donors(small(strategy=Strategy.FINAL), row) == {EPISODES[row][-1]}


def test_an_episode_of_another_id_is_another_though_nothing_ended():
    ring = small()
    ring.flags[:] = 0
    assert donors(ring, 4) == {4, 6}
    assert donors(ring, 9) == {9, 11}


def test_an_invalid_row_ends_what_can_be_used_of_an_episode():
    ring = small()
    ring.flags[9] |= INVALID
    assert donors(ring, 5) == {5, 7}
    assert donors(ring, 9) == {-1}


@pytest.mark.parametrize("strategy", Strategy)
def test_a_row_outside_the_filled_part_keeps_its_goal(strategy):
    ring = small(strategy=strategy, head=3, filled=6)
    found = relabelled(ring, [6, 11, -1, 12, 99])
    assert found["donor"] == found["last"] == [-1] * 5
    assert found["ret"] == found["discount"] == [0] * 5


def test_in_a_ring_that_is_not_full_the_head_ends_the_episode():
    ring = small(head=5, filled=10)
    ring.flags[10:], ring.episode[10:] = 0, 1
    assert donors(ring, 5) == {5, 7, 9}


def test_random_gives_another_position_of_the_batch():
    ring = small(strategy=Strategy.RANDOM)
    index = [4, 1, 9, 2]
    seen = [set() for _ in index]
    for step in range(200):
        for k, donor in enumerate(relabelled(replace(ring, step=step), index)["donor"]):
            seen[k].add(donor)
    assert seen == [set(index) - {row} for row in index]


def test_random_takes_no_goal_from_a_row_that_can_not_be_used_nor_from_itself():
    ring = small(strategy=Strategy.RANDOM)
    ring.flags[1] |= INVALID
    assert relabelled(ring, [4, 1])["donor"][0] == -1
    assert relabelled(ring, [4, -1])["donor"] == [-1, -1]
    assert relabelled(ring, [4])["donor"] == [-1]
    assert relabelled(ring, [4, 4])["donor"] == [4, 4]


# ------------------------------------------------------------------------ n-step returns


@pytest.mark.parametrize(
    ("row", "goal", "last", "ret", "discount"),
    [
        # The donor is the last of the episode, by `final`; n = 3, gamma = .5.
        pytest.param(4, None, 6, -1 + 0.0, 0.0, id="reached on the second row"),
        pytest.param(6, None, 6, 0.0, 0.0, id="reached at once"),
        pytest.param(8, None, 0, -1.5, 0.0, id="reached on the third row, behind the wrap"),
        pytest.param(5, None, 9, -1.75, 0.125, id="reached on the fourth row: not of the return"),
        pytest.param(1, None, 3, -1.0, 0.0, id="reached on the row before the head"),
        pytest.param(8, 10, 10, -1.0, 0.0, id="reached before the donor, with the same goal"),
    ],
)
def test_a_return_under_the_final_goal(row, goal, last, ret, discount):
    ring = small(strategy=Strategy.FINAL, n_step=3)
    if goal is not None:  # the donor's goal is achieved there already
        ring.next_state[goal] = ring.next_state[EPISODES[row][-1]]
    found = relabelled(ring, [row])
    assert (found["last"], found["ret"], found["discount"]) == ([last], [ret], [discount])


@pytest.mark.parametrize(
    ("row", "last", "ret", "discount"),
    [
        pytest.param(4, 6, -1.5, 0.25, id="the recorded termination is of the other goal"),
        pytest.param(10, 0, -1.5, 0.25, id="truncation keeps the bootstrap"),
        pytest.param(2, 2, -1.0, 0.5, id="before the write head"),
        pytest.param(5, 9, -1.75, 0.125, id="three rows"),
    ],
)
def test_a_return_under_a_goal_that_is_not_reached(row, last, ret, discount):
    ring = small(strategy=Strategy.RANDOM, n_step=3)
    found = relabelled(ring, [row, 3])  # the goal of each is the other's
    assert found["donor"][0] == 3
    assert (found["last"][0], found["ret"][0], found["discount"][0]) == (last, ret, discount)


def test_a_goal_is_reached_in_every_column_or_not_at_all():
    ring = small(strategy=Strategy.FINAL, n_step=3)
    ring.next_state[8, 2] = ring.next_state[0, 2]
    assert relabelled(ring, [8])["ret"] == [-1.5]
    ring.next_state[8, 3] = ring.next_state[0, 3]
    assert relabelled(ring, [8])["ret"] == [0]


def test_a_row_that_keeps_its_goal_has_the_return_of_nstep_assemble():
    rng = np.random.default_rng(0)
    for turns in (1, 4, 9, 23):
        ring = random_ring(rng, lanes=3, slots=9, turns=turns, n_step=4, gamma=0.9, share=0.0)
        arguments = ring.arguments(rng.integers(-2, 29, 100))
        found = run_host("hindsight_assemble", **arguments)
        names = ("index", "reward", "flags", "counters", "last", "ret", "discount", "n", "lanes")
        names += ("slots", "n_step", "gamma")
        plain = run_host("nstep_assemble", **{name: arguments[name] for name in names})
        for name, values in plain.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)
        assert set(found["donor"].tolist()) == {-1}


@given(
    seed=st.integers(0, 2**32 - 1),
    lanes=st.integers(1, 4),
    slots=st.integers(1, 12),
    turns=st.integers(1, 30),
    ends=st.sampled_from([0.0, 0.1, 0.5]),
    n_step=st.integers(1, 6),
    strategy=st.sampled_from(Strategy),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    batch=st.integers(1, 24),
)
def test_donors_and_returns_are_those_of_a_slow_loop(
    seed, lanes, slots, turns, ends, n_step, strategy, share, batch
):
    rng = np.random.default_rng(seed)
    ring = random_ring(
        rng,
        lanes=lanes,
        slots=slots,
        turns=turns,
        ends=ends,
        n_step=n_step,
        gamma=0.9,
        strategy=strategy,
        share=share,
        seed=seed,
        step=seed % 1000,
    )
    index = rng.integers(-1, lanes * slots + 1, batch)
    found = relabelled(ring, index)
    assert found == by_hand(ring, index)
    if strategy == Strategy.RANDOM:
        return
    # Said without the loop: same lane, same episode, not older than the row itself.
    age = (np.arange(lanes * slots) // lanes - ring.head) % slots
    for row, donor in zip(index.tolist(), found["donor"], strict=True):
        if donor >= 0:
            assert donor % lanes == row % lanes
            assert ring.episode[donor] == ring.episode[row]
            assert age[donor] >= age[row]
            assert donor < ring.filled


# ------------------------------------------------------------------------ draws


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("strategy", Strategy)
def test_k_of_k_plus_1_rows_are_relabelled(k, strategy):
    n = 40_000
    share = k / (k + 1)
    ring = small(strategy=strategy, share=share, seed=11)
    index = np.random.default_rng(0).integers(0, 12, n)
    given_a_goal = np.count_nonzero(np.array(relabelled(ring, index)["donor"]) >= 0)
    # five standard deviations of a binomial
    assert abs(given_a_goal - n * share) < 5 * math.sqrt(n * share * (1 - share))


def test_future_goals_are_drawn_evenly():
    n = 40_000
    found = np.array(relabelled(small(share=0.5), [5] * n)["donor"])
    counts = np.array([np.count_nonzero(found == row) for row in (5, 7, 9, 11)])
    assert np.all(np.abs(counts - n / 8) < 5 * math.sqrt(n / 8 * 7 / 8))


def test_draws_differ_between_steps_and_seeds_and_repeat_otherwise():
    index = [5, 8, 1, 7] * 16
    first = relabelled(small(share=0.5), index)["donor"]
    assert relabelled(small(share=0.5), index)["donor"] == first
    assert relabelled(small(share=0.5, step=1), index)["donor"] != first
    assert relabelled(small(share=0.5, seed=1), index)["donor"] != first


# ------------------------------------------------------------------------ gathers


def test_the_donors_achievement_goes_into_the_goals_columns():
    src = np.arange(32, dtype=np.float32).reshape(4, 8)
    after = src + 100
    found = run_host(
        "gather_relabelled",
        src=src,
        next_state=after,
        index=[1, 1, -1, 9, 2, 3],
        donor=[3, -1, 2, 2, 4, 3],
        dst=6 * 16,
        n=6,
        width=6,
        src_stride=8,
        dst_stride=16,
        achieved=1,
        goal=3,
        goal_width=2,
        rows=4,
    )["dst"].reshape(6, 16)
    assert found[:, 6:].tolist() == [[0] * 10] * 6
    assert found[:, :6].tolist() == [
        [8, 9, 10, 125, 126, 13],
        [8, 9, 10, 11, 12, 13],
        [0] * 6,
        [0] * 6,
        [16, 17, 18, 19, 20, 21],
        [24, 25, 26, 125, 126, 29],
    ]


def test_counters_that_hindsight_does_not_read_may_be_anything():
    ring = small(share=0.5)
    arguments = ring.arguments(np.arange(12))
    wanted = run_host("hindsight_assemble", **arguments)
    counters = np.full(COUNTERS, 12345, np.int64)
    for name in (Counter.HEAD, Counter.FILLED, Counter.RNG):
        counters[name] = arguments["counters"][name]
    found = run_host("hindsight_assemble", **(arguments | {"counters": counters}))
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)
