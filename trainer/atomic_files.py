"""Files that are whole or not there: written beside their place, flushed, and moved in one step."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Folders of files that are not yet whole begin with this.
PARTIAL = ".partial-"

#: What file systems answer that have no flush of a folder, or no second name for a file.
NOT_SUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM}


@contextmanager
def partial_folder(beside: Path) -> Iterator[Path]:
    """A folder on the file system of `beside`, for what is not whole yet; gone afterwards.

    A process that is killed leaves it: `remove_partial`.
    """
    with tempfile.TemporaryDirectory(
        dir=beside, prefix=PARTIAL, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def remove_partial(folder: Path) -> int:
    """Remove what killed processes left half written in `folder`; gives how many there were.

    Nobody else may be writing there.

    Raises:
        OSError: something could not be removed.
    """
    left = sorted(folder.glob(PARTIAL + "*"))
    for path in left:
        shutil.rmtree(path)
    return len(left)


def put_in_place(partial: Path, path: Path) -> None:
    """Move a flushed file to `path`, and make the move last through a loss of power."""
    os.replace(partial, path)  # noqa: PTH105  # one place to watch for every step of a save
    sync_folder(path.parent)


def keep_under(path: Path, name: Path, folder: Path) -> None:
    """Give the file at `path` the further name `name`, in the place of what had it.

    The file keeps its own name as well, so that at no moment there is none.

    Args:
        path: the file.
        name: its further name, on the same file system.
        folder: a `partial_folder` there.
    """
    second = folder / name.name
    try:
        os.link(path, second)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
        shutil.copyfile(path, second)
        with second.open("rb") as file:
            os.fsync(file.fileno())
    # Not flushed: a loss of power may bring back what had the name, which is whole too.
    os.replace(second, name)  # noqa: PTH105


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, where its file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
    finally:
        os.close(handle)


def replace_bytes(path: Path, content: bytes) -> None:
    """Put `content` in the place of the file at `path`.

    Raises:
        OSError: it could not be written; the old file stays.
    """
    with partial_folder(path.parent) as folder:
        partial = folder / path.name
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        put_in_place(partial, path)


def append_bytes(path: Path, content: bytes) -> None:
    """Append to a file and flush it to disk; made if it is not there."""
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
