"""Files of transitions: what is read from them, and what is refused, in a table."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from offline.made import tiny_columns

from onegraph.kernels.common.layout import Flag
from onegraph.trainer.offline import TransitionsError, read_transitions, transitions_from

TINY = tiny_columns()


def refusal(columns):
    with pytest.raises(TransitionsError) as caught:
        transitions_from(columns, "t.npz")
    message = str(caught.value)
    assert message.startswith("t.npz: ")
    assert "; " in message, "no remedy"
    return message


def test_columns_are_brought_to_the_replays_dtypes(tmp_path):
    columns = tiny_columns(
        terminated=np.array([0, 0, 1, 0]),
        truncated=np.array([False, True, True, False]),
        episode=np.array([7, 7, 8, 9], np.uint8),
    )
    np.savez(tmp_path / "t.npz", **columns, log_prob=np.zeros(4))
    found = read_transitions(tmp_path / "t.npz")
    assert (found.rows, found.width) == (4, 2)
    for name in ("state", "next_state"):
        values = getattr(found, name)
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, columns[name])
    assert found.action.dtype == np.int32
    assert found.action.tolist() == [0, 1, 0, 1]
    assert found.reward.dtype == np.float32
    both = Flag.TERMINATED | Flag.TRUNCATED
    assert found.flags.tolist() == [0, Flag.TRUNCATED, both, 0]
    assert found.flags.dtype == np.uint8
    assert found.episode is not None
    assert found.episode.tolist() == [7, 7, 8, 9]


def test_marks_of_truncation_and_episodes_may_be_absent():
    found = transitions_from(TINY)
    assert found.flags.tolist() == [0, 0, 0, 0]
    assert found.episode is None


@pytest.mark.parametrize("style", ["lists", "fixed lists", "numbered"])
def test_a_parquet_file_holds_states_as_lists_or_numbered_columns(tmp_path, style):
    columns = tiny_columns(truncated=np.array([0, 0, 1, 0], np.int8))
    arrays = {}
    for name, values in columns.items():
        if values.ndim == 1:
            arrays[name] = pa.array(values)
        elif style == "numbered":
            # In an order of names in which 10 comes before 2.
            arrays |= {f"{name}_{i}": pa.array(values[:, i]) for i in reversed(range(2))}
        else:
            kind = pa.list_(pa.float32(), 2) if style == "fixed lists" else pa.list_(pa.float64())
            arrays[name] = pa.array(values.tolist(), kind)
    pq.write_table(pa.table(arrays), tmp_path / "t.parquet", row_group_size=3)
    found = read_transitions(tmp_path / "t.parquet")
    wanted = transitions_from(columns)
    for name in ("state", "action", "reward", "next_state", "flags"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), name)


def test_eleven_numbered_columns_are_in_the_order_of_their_numbers(tmp_path):
    names = [f"{s}_{i}" for s in ("state", "next_state") for i in range(11)]
    table = {name: [float(name.rpartition("_")[2])] for name in names}
    rest = {"action": [0], "reward": [0.0], "terminated": [True]}
    pq.write_table(pa.table(table | rest), tmp_path / "t.parquet")
    assert read_transitions(tmp_path / "t.parquet").state.tolist() == [list(range(11))]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"reward": None}, "no column 'reward'"),
        ({"terminated": None, "terminate": np.zeros(4, bool)}, "rename 'terminate'"),
        ({"truncateds": np.zeros(4, bool)}, "'truncateds' is not read; rename it to 'truncated'"),
        ({"reward": np.ones(3)}, "reward has 3 rows and state 4"),
        ({"episode": np.zeros(5, int)}, "episode has 5 rows and state 4"),
        ({"state": np.zeros(4)}, "state has the shape [4]"),
        ({"state": np.zeros((4, 2, 2))}, "state has the shape [4, 2, 2]"),
        ({"state": np.zeros((4, 0))}, "state has the shape [4, 0]"),
        ({"next_state": np.zeros((4, 3))}, "next_state has 3 columns and state 2"),
        ({"state": np.full((4, 2), "a")}, "state is <U1; store it as numbers"),
        ({"state": np.ones((4, 2), complex)}, "state is complex128"),
        ({"reward": np.ones((4, 1))}, "reward has the shape [4, 1]"),
        ({"reward": np.full(4, "1")}, "reward is <U1"),
        ({"action": np.ones(4)}, "action is float64; store it as whole numbers"),
        ({"action": np.array([0, 1, -1, 0])}, "row 2: action = -1 is negative"),
        ({"action": np.array([0, 2**31, 0, 0])}, "row 1: action = 2147483648 is too large"),
        ({"action": np.array([0, 2**64 - 1, 0, 0], np.uint64)}, "row 1: action = 1844674407370955"),
        ({"terminated": np.array([0, 1, 2, 0])}, "row 2: terminated = 2; use bool"),
        ({"terminated": np.zeros(4)}, "terminated is float64; store it as bool"),
        ({"truncated": np.array([0, -1, 0, 0])}, "row 1: truncated = -1"),
        ({"episode": np.zeros(4)}, "episode is float64"),
    ],
)
def test_a_column_that_cant_be_used_is_named_with_its_row_and_value(changes, says):
    assert says in refusal(tiny_columns(**changes))


def test_no_rows_are_refused():
    assert "it has no rows" in refusal(tiny_columns(0))


def test_numbers_that_are_not_finite_are_no_error_and_their_rows_are_known():
    columns = tiny_columns(reward=np.array([1.0, np.nan, 1e300, 1.0]))
    columns["next_state"][3, 1] = -np.inf
    assert transitions_from(columns).finite().tolist() == [True, False, False, False]


def write_npy(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def write_objects(path):
    np.savez(path, **TINY | {"reward": np.array([1, None, 2, 3], object)})


def write_cut(path):
    np.savez(path, **TINY)
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("name", "write", "says"),
    [
        ("absent.npz", lambda path: None, "there is no such file"),
        ("t.csv", lambda path: path.write_text("a,b"), "its name ends in '.csv'; use .npz or"),
        ("t.npz", lambda path: path.write_text("no zip"), "can't be read as .npz"),
        ("t.npz", lambda path: path.write_bytes(b""), "can't be read as .npz"),
        ("t.npz", write_npy, "it holds one array (.npy)"),
        ("t.npz", write_objects, "'reward' can't be read"),
        ("t.npz", write_cut, "can't be read as .npz"),
        ("t.npz", lambda path: np.savez(path, **TINY | {"reward": 1.0}), "reward is one value"),
        ("t.parquet", lambda path: path.write_text("no parquet"), "can't be read as Parquet"),
    ],
)
def test_a_file_that_cant_be_read_says_why(tmp_path, name, write, says):
    write(tmp_path / name)
    with pytest.raises(TransitionsError) as caught:
        read_transitions(tmp_path / name)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / name))


PARQUET = {
    "state_0": [0.0, 1.0],
    "next_state_0": [1.0, 2.0],
    "action": [0, 1],
    "reward": [0.0, 1.0],
    "terminated": [False, True],
}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"reward": [0.0, None]}, "row 1: reward is null; leave the row out"),
        ({"state_2": [0.0, 0.0]}, "it has state_2 and no state_1"),
        ({"state_0": None, "state": [[1.0, 2.0], [1.0]]}, "row 1: state has 1 values and row 0"),
        ({"state_0": None, "state": [[1.0], [None]]}, "row 1: state holds a null"),
        ({"state_0": None, "state": [[1.0], None]}, "row 1: state is null"),
        ({"state_0": None, "state": [1.0, 2.0]}, "state has the shape [2]"),
        ({"state_0": None}, "no column 'state'"),
        ({"action": ["a", "b"]}, "action is object"),
    ],
)
def test_a_parquet_file_that_cant_be_used_says_why(tmp_path, changes, says):
    columns = {name: v for name, v in (PARQUET | changes).items() if v is not None}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(TransitionsError) as caught:
        read_transitions(tmp_path / "t.parquet")
    assert says in str(caught.value)


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    pq.write_table(pa.table(PARQUET), tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TransitionsError, match=r"pip install 'onegraph\[parquet\]'"):
        read_transitions(tmp_path / "t.parquet")
