"""A lock on a file, for which others wait."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onegraph.trainer.file_lock import turn

WAITS = """
import sys
from pathlib import Path
from onegraph.trainer.file_lock import turn
try:
    with turn(Path(sys.argv[1]), lambda: print("waiting", flush=True)):
        print("held", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

FORKS = """
import os, signal, sys
from pathlib import Path
from onegraph.trainer.file_lock import turn
with turn(Path(sys.argv[1]), lambda: print("waiting")):
    child = os.fork()
    if not child:
        signal.pause()
    print("held", flush=True)
waits = lambda: (print("waiting"), os.kill(child, signal.SIGKILL))
with turn(Path(sys.argv[1]), waits):
    print("held again")
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


def never() -> None:
    raise AssertionError("nobody holds it")


def test_a_lock_is_held_and_let_go(tmp_path):
    path = tmp_path / "folder" / "x.lock"
    for _ in range(2):
        with turn(path, never) as trouble:
            assert trouble is None
    assert path.exists()


def test_an_error_inside_lets_go_and_is_not_taken_for_one_of_the_lock(tmp_path):
    with pytest.raises(OSError, match="of the body"), turn(tmp_path / "x", never):
        raise OSError("of the body")
    with turn(tmp_path / "x", never) as trouble:
        assert trouble is None


def test_two_files_are_two_locks(tmp_path):
    with turn(tmp_path / "x", never), turn(tmp_path / "y", never) as trouble:
        assert trouble is None


def test_what_cant_be_locked_is_told_and_nobody_waits(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    with turn(tmp_path / "file" / "x", never) as trouble:
        assert isinstance(trouble, OSError)

    def refused(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refused)
    with turn(tmp_path / "x", never) as trouble:
        assert trouble is not None
        assert trouble.strerror == "Operation not supported"


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    """It has the file open as well, as a worker of a pool that was made meanwhile."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", FORKS, tmp_path / "x"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == "held\nheld again\n"


def test_ctrl_c_ends_the_wait(tmp_path: Path):
    path = tmp_path / "x"
    with turn(path, never):
        waiter = subprocess.Popen(
            [sys.executable, "-P", "-c", WAITS, path], stdout=subprocess.PIPE, text=True
        )
        with waiter:
            assert waiter.stdout is not None
            assert waiter.stdout.readline() == "waiting\n"
            waiter.send_signal(signal.SIGINT)
            assert waiter.stdout.read() == "interrupted\n"
    assert waiter.returncode == 0
