"""The folder of a run: what is where, and that one process at a time writes there."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from onegraph.trainer.atomic_files import remove_partial
from onegraph.trainer.checkpoint import BEST, CHECKPOINTS, LAST, PREVIOUS

#: What file systems answer that have no locks.
NO_LOCKS = {errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class RunBusyError(ValueError):
    """Another process trains in the folder."""


@dataclass(frozen=True)
class RunDirectory:
    """The places in a run folder.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def config(self) -> Path:
        """The config as it resolved, which trains the same run anew."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """One line of JSON an epoch."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def lock(self) -> Path:
        """Locked while a process trains here; left by one that ended before any checkpoint."""
        return self.path / ".lock"

    @property
    def last(self) -> Path:
        """The newest state, to resume from."""
        return self.path / CHECKPOINTS / LAST

    @property
    def previous(self) -> Path:
        """The state that was the newest before `last`."""
        return self.path / CHECKPOINTS / PREVIOUS

    @property
    def best(self) -> Path:
        """The state with the best validation score."""
        return self.path / CHECKPOINTS / BEST

    @property
    def checkpoints(self) -> list[Path]:
        """Those that are there, `last` first."""
        return [path for path in (self.last, self.previous, self.best) if path.exists()]

    def remove_partial(self) -> int:
        """Remove what killed processes left half written; gives how many files there were."""
        return sum(remove_partial(f) for f in (self.path, self.last.parent) if f.is_dir())

    def refuse_if_busy(self) -> None:
        """Say early what `claimed` would; changes nothing.

        Raises:
            RunBusyError: a process trains here.
        """
        try:
            handle = os.open(self.lock, os.O_RDWR)
        except FileNotFoundError:
            return
        try:
            self._take(handle)
        finally:
            os.close(handle)

    @contextmanager
    def claimed(self, say: Callable[[str], None]) -> Iterator[None]:
        """Hold the folder, which is made if it is not there, for this process alone.

        The kernel frees the lock of a process that ends, however it ends.

        Args:
            say: is told if the file system has no locks; the folder is then not held.

        Raises:
            RunBusyError: another process holds it.
            OSError: the folder or the lock can't be made.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        handle, is_locked = self._open()
        if not is_locked:
            say(f"{self.path}: its file system has no locks; let no other process train in it")
        try:
            os.truncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
            yield
        finally:
            if self.checkpoints:
                self.lock.unlink(missing_ok=True)
            os.close(handle)

    def _open(self) -> tuple[int, bool]:
        """The lock's file, and whether it could be locked."""
        while True:
            handle = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                is_locked = self._take(handle)
                # Its holder before may have removed it after we opened it.
                if self._is_lock(handle):
                    return handle, is_locked
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    def _is_lock(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self.lock.stat())
        except FileNotFoundError:
            return False

    def _take(self, handle: int) -> bool:
        """Lock the open file; no if its file system has no locks."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
            process = f"process {who}" if who.isdigit() else "another process"
            raise RunBusyError(
                f"{self.path}: {process} trains in this folder; wait until it ends, stop it, or"
                " name another folder (--run-dir)"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return False
        return True
