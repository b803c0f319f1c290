"""Where recorded episodes end: hand-written rows, and what of them is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offline.made import tiny_columns

from onegraph.kernels.common.layout import Flag
from onegraph.trainer.offline import TransitionsError, transitions_from
from onegraph.trainer.offline.episodes import with_ends

CUT, DONE = int(Flag.TRUNCATED), int(Flag.TERMINATED)


def ends(columns, *, across_rows=True):
    found = with_ends(transitions_from(columns, "t"), across_rows=across_rows)
    return found.flags.tolist(), found.episode.tolist()


def refusal(columns):
    with pytest.raises(TransitionsError) as caught:
        ends(columns)
    return str(caught.value)


@pytest.mark.parametrize(
    ("columns", "flags", "episode"),
    [
        # States that follow one another are one episode, cut at the set's end.
        (tiny_columns(), [0, 0, 0, CUT], [0, 0, 0, 0]),
        (tiny_columns(terminated=np.array([0, 1, 0, 1])), [0, DONE, 0, DONE], [0, 0, 1, 1]),
        (tiny_columns(truncated=np.array([1, 0, 0, 0])), [CUT, 0, 0, CUT], [0, 1, 1, 1]),
        (
            tiny_columns(terminated=np.array([0, 1, 0, 0]), truncated=np.array([0, 1, 0, 0])),
            [0, DONE | CUT, 0, CUT],
            [0, 0, 1, 1],
        ),
        # An id that changes is an end, whatever the states say; ids need no order.
        (tiny_columns(episode=np.array([5, 5, 2, 9])), [0, CUT, CUT, CUT], [0, 0, 1, 2]),
        (
            tiny_columns(episode=np.array([5, 5, 2, 2]), terminated=np.array([0, 1, 0, 0])),
            [0, DONE, 0, CUT],
            [0, 0, 1, 1],
        ),
        (tiny_columns(1), [CUT], [0]),
    ],
)
def test_the_last_row_of_each_episode_is_marked(columns, flags, episode):
    assert ends(columns) == (flags, episode)


def test_a_row_that_the_next_does_not_continue_is_refused_where_returns_cross_rows():
    columns = tiny_columns()
    columns["state"][2] += 0.5
    message = refusal(columns)
    assert "row 1 is neither terminated nor truncated, and row 2 does not begin" in message
    for remedy in ("'episode'", "'truncated'", "replay.n_step = 1"):
        assert remedy in message
    assert ends(columns, across_rows=False) == ([0, CUT, 0, CUT], [0, 0, 1, 1])


def test_a_row_that_is_not_finite_is_no_reason_to_refuse():
    """No return crosses it, whatever comes before and after."""
    columns = tiny_columns()
    columns["next_state"][1] = np.nan
    columns["state"][2] = np.nan
    assert ends(columns) == ([0, 0, 0, CUT], [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"episode": np.array([1, 2, 1, 1])}, "row 2: episode 1 comes again after rows of another"),
        (
            {"episode": np.array([1, 1, 1, 1]), "terminated": np.array([0, 1, 0, 0])},
            "row 1 ends episode 1 (terminated or truncated), and row 2 is of that episode too",
        ),
    ],
)
def test_ids_that_contradict_the_rows_are_refused(changes, says):
    assert says in refusal(tiny_columns(**changes))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_episodes_of_any_lengths_come_back(lengths, data):
    ids = data.draw(st.permutations(range(len(lengths))))
    episode = np.repeat(ids, lengths)
    flags, numbers = ends(tiny_columns(episode.size, episode=episode))
    last = np.cumsum(lengths) - 1
    assert np.flatnonzero(flags).tolist() == last.tolist()
    assert numbers == np.repeat(np.arange(len(lengths)), lengths).tolist()
