"""Turns among the processes of a machine: a lock on a file.

The kernel frees the lock of a process that ends, however it ends. The file stays: were it removed,
two processes could hold two files of one name.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def turn(path: Path, waits: Callable[[], None]) -> Iterator[OSError | None]:
    """Wait for the lock on the file at `path`, and hold it; gives why that can't be, or ``None``.

    Ctrl-C ends the wait. Threads of one process, too, wait for one another, and so does a thread
    for itself.

    Args:
        path: made if it is not there, with its folder.
        waits: called before a wait, if somebody holds the lock.
    """
    with ExitStack() as held:
        yield _taken(path, waits, held)


def _taken(path: Path, waits: Callable[[], None], held: ExitStack) -> OSError | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        return error
    held.callback(os.close, handle)
    trouble = _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if isinstance(trouble, BlockingIOError):
        waits()
        trouble = _lock(handle, fcntl.LOCK_EX)
    if trouble is None:
        # Closing would not free it while a child that was forked meanwhile has the file open.
        held.callback(fcntl.flock, handle, fcntl.LOCK_UN)
    return trouble


def _lock(handle: int, how: int) -> OSError | None:
    try:
        fcntl.flock(handle, how)
    except OSError as error:
        return error
    return None
