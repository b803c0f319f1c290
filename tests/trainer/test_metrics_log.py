"""The metrics of a run that goes on are those of the run that was never killed."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onegraph.trainer.metrics_log import append_line, keep_epochs


def line(epoch, **more):
    return json.dumps({"epoch": epoch, **more}).encode() + b"\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def aside(path):
    return path.with_name("metrics.jsonl.bak")


def test_a_line_is_appended_and_flushed(path, monkeypatch):
    flushed = []
    sync = os.fsync
    monkeypatch.setattr("os.fsync", lambda file: flushed.append(path.read_bytes()) or sync(file))
    append_line(path, '{"epoch": 1}')
    append_line(path, '{"epoch": 2}')
    assert flushed == [b'{"epoch": 1}\n', b'{"epoch": 1}\n{"epoch": 2}\n']


@pytest.mark.parametrize(
    ("content", "last", "kept", "cut", "said"),
    [
        (line(1) + line(2), 2, line(1) + line(2), None, None),
        (line(1) + line(2) + line(3), 1, line(1), line(2) + line(3), "2 lines of later epochs"),
        (line(1) + b'{"epoch": 2, "lo', 1, line(1), b'{"epoch": 2, "lo\n', "1 damaged line"),
        (line(1) + b'{"epoch": 2, "lo', 5, line(1), b'{"epoch": 2, "lo\n', "1 damaged line"),
        (line(1) + line(2)[:-1], 2, line(1) + line(2), None, None),
        (line(1) + line(2)[:-1], 1, line(1), line(2), "1 line of later epochs"),
        (line(1), 0, b"", line(1), "1 line of later epochs"),
        (b"\xff\xfe\n" + line(1), 1, line(1), b"\xff\xfe\n", "1 damaged line"),
        (b"[]\n3\n" + line(1), 1, line(1), b"[]\n3\n", "2 damaged lines"),
        (
            line(2) + b"x\n" + line(1),
            1,
            line(1),
            line(2) + b"x\n",
            "1 line of later epochs and 1 damaged line",
        ),
        (
            line("1") + line(True) + line(0),
            1,
            b"",
            line("1") + line(True) + line(0),
            "3 damaged lines",
        ),
        (b"", 0, b"", None, None),
        # Of an earlier version, which repeated epochs: they are those of the state, and stay.
        (
            line(1) + line(2, a=1) + line(2, a=2),
            2,
            line(1) + line(2, a=1) + line(2, a=2),
            None,
            None,
        ),
    ],
)
def test_lines_past_the_state_and_damaged_ones_go_aside(path, content, last, kept, cut, said):
    path.write_bytes(content)
    found = keep_epochs(path, last)
    assert path.read_bytes() == kept
    assert (aside(path).read_bytes() if aside(path).exists() else None) == cut
    assert (str(found) if found else None) == (said and f"{said} moved to {aside(path)}")
    assert keep_epochs(path, last) is None
    assert path.read_bytes() == kept


def test_without_a_file_there_is_nothing_to_cut(path):
    assert keep_epochs(path, 3) is None
    assert not path.exists()


def test_what_went_aside_before_stays_there(path):
    for epoch in (1, 2):
        path.write_bytes(line(1) + line(epoch + 1))
        keep_epochs(path, 1)
    assert aside(path).read_bytes() == line(2) + line(3)


@pytest.mark.parametrize("name", ["os.fsync", "os.replace"])
def test_a_cut_that_fails_leaves_the_file_as_it_was(path, monkeypatch, name):
    path.write_bytes(line(1) + line(2))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(name, full)
    with pytest.raises(OSError, match="No space"):
        keep_epochs(path, 1)
    assert path.read_bytes() == line(1) + line(2)
    assert not [p for p in path.parent.iterdir() if "partial" in p.name]


@given(st.integers(0, 9), st.integers(0, 9), st.data())
def test_a_file_cut_anywhere_and_gone_on_with_is_the_whole_file(tmp_path_factory, last, more, data):
    """Killed at any byte past the state's lines, whatever number of epochs it had gone on for."""
    path = tmp_path_factory.mktemp("cut") / "metrics.jsonl"
    whole = [line(epoch, loss=epoch / 7) for epoch in range(1, last + more + 1)]
    content, floor = b"".join(whole), len(b"".join(whole[:last]))
    path.write_bytes(content[: data.draw(st.integers(floor, len(content)))])
    keep_epochs(path, last)
    for text in whole[last:]:
        append_line(path, text.decode().rstrip("\n"))
    assert path.read_bytes() == content
