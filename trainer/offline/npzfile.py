"""Columns of an .npz file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.trainer.offline.errors import TransitionsError, fault

#: What NumPy raises over a damaged file.
UNREADABLE = (ValueError, EOFError, zipfile.BadZipFile, OSError)

HOW = "with numpy.savez(file, state=..., action=..., ...)"


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of the file by name.

    Raises:
        TransitionsError: it is no .npz file, is damaged, or holds Python objects.
    """
    file = str(path)
    columns: dict[str, NDArray[Any]] = {}
    try:
        # Opened here: NumPy leaves a damaged file open.
        with path.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.lib.npyio.NpzFile):
                for name in loaded.files:
                    columns[name] = _column(loaded, name, file)
            else:
                raise fault(file, "it holds one array (.npy)", f"write all columns, {HOW}")
    except UNREADABLE as error:
        if isinstance(error, TransitionsError):
            raise
        raise fault(
            file, f"it can't be read as .npz ({_line(error)})", f"write it {HOW}"
        ) from error
    # A scalar has no length to compare.
    for name, values in columns.items():
        if values.ndim == 0:
            raise fault(file, f"{name} is one value", "give one value a transition, [N]")
    return columns


def _column(loaded: Any, name: str, file: str) -> NDArray[Any]:
    try:
        values: NDArray[Any] = loaded[name]
    except UNREADABLE as error:
        remedy = "store numbers (no Python objects), and write the file again if it is cut"
        raise fault(file, f"its column {name!r} can't be read ({_line(error)})", remedy) from error
    return values


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
