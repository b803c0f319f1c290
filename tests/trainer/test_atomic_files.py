"""A file is the old one or the new one, at every moment and after every failure."""

import os
import stat

import pytest

from onegraph.trainer.atomic_files import (
    append_bytes,
    keep_under,
    partial_folder,
    remove_partial,
    replace_bytes,
    sync_folder,
)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "file"
    made.write_bytes(b"old")
    return made


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_the_new_content_is_flushed_before_it_is_in_place_and_the_folder_after(path, monkeypatch):
    seen = []
    sync = os.fsync

    def watched(handle):
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        seen.append((kind, path.read_bytes()))
        sync(handle)

    monkeypatch.setattr("os.fsync", watched)
    replace_bytes(path, b"new")
    assert seen == [("file", b"old"), ("folder", b"new")]
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_content_and_nothing_else(path, monkeypatch, call, error):
    def refused(*_):
        raise error

    monkeypatch.setattr(call, refused)
    with pytest.raises(type(error)):
        replace_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(path.parent) == ["file"]


def test_a_file_under_two_names_is_one_that_keeps_its_content(path):
    other = path.with_name("other")
    other.write_bytes(b"older")
    with partial_folder(path.parent) as folder:
        keep_under(path, other, folder)
    assert path.samefile(other)
    replace_bytes(path, b"new")
    assert (path.read_bytes(), other.read_bytes()) == (b"new", b"old")
    assert names(path.parent) == ["file", "other"]


def test_what_a_killed_process_left_is_removed_and_nothing_else(path):
    with partial_folder(path.parent) as folder:
        left = folder.with_name(f"{folder.name}x")
        left.mkdir()
        (left / "half").write_bytes(b"half")
    assert len(names(path.parent)) == 2
    assert remove_partial(path.parent) == 1
    assert names(path.parent) == ["file"]
    assert remove_partial(path.parent) == 0


@pytest.mark.parametrize(("number", "is_said"), [(22, False), (95, False), (5, True)])
def test_a_folder_that_can_not_be_flushed_is_no_error_but_a_failing_disk_is(
    tmp_path, monkeypatch, number, is_said
):
    def refused(_):
        raise OSError(number, "planted")

    monkeypatch.setattr("os.fsync", refused)
    if is_said:
        with pytest.raises(OSError, match="planted"):
            sync_folder(tmp_path)
    else:
        sync_folder(tmp_path)


def test_bytes_are_appended_to_a_file_that_may_not_be_there(tmp_path):
    for content in (b"a", b"b"):
        append_bytes(tmp_path / "x", content)
    assert (tmp_path / "x").read_bytes() == b"ab"
