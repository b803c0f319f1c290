"""From a file's name to its transitions."""

from __future__ import annotations

from pathlib import Path

from onegraph.trainer.offline.errors import fault
from onegraph.trainer.offline.npzfile import read_npz
from onegraph.trainer.offline.parquetfile import read_parquet
from onegraph.trainer.offline.transitions import Transitions, transitions_from

READERS = {".npz": read_npz, ".parquet": read_parquet}


def read_transitions(path: Path) -> Transitions:
    """Read and check a file of transitions, by the end of its name: .npz or .parquet.

    Raises:
        TransitionsError: no such file, of another kind, damaged, or with a column that can't be
            used; with file, column, row and value.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise fault(str(path), f"its name ends in {path.suffix!r}", f"use {' or '.join(READERS)}")
    if not path.is_file():
        raise fault(str(path), "there is no such file", "check the path, which is relative to here")
    return transitions_from(reader(path), str(path))
