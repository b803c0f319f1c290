"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from onegraph.trainer.policy.errors import ExportError


def write_whole(path: Path, content: bytes) -> None:
    """Write beside the place, flush to disk, and move there in one step.

    Raises:
        ExportError: it could not be written; what stood at `path` still does.
    """
    partial = path.with_name(path.name + f".partial-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise ExportError(
            f"{path}: it could not be written ({error}); free some disk space, or name a file in a"
            " folder that you may write to"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
