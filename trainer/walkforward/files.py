"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: bytes) -> None:
    """Write beside `path`, flush to disk, and move into place in one step."""
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """`value` as JSON, one that people can read too."""
    write_whole(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())
