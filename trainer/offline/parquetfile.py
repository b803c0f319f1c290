"""Columns of a Parquet file. pyarrow is an extra, so it is imported when asked for."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.trainer.offline.errors import fault
from onegraph.trainer.offline.transitions import OPTIONAL, REQUIRED

STATES = ("state", "next_state")


def read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    """The columns by name: ``state`` as one of lists, or as ``state_0`` to ``state_{S-1}``.

    Raises:
        TransitionsError: pyarrow is not installed; it is no Parquet file; a value is null; a list
            is longer or shorter than the first; or a number is missing among ``state_0``, ...
    """
    file = str(path)
    try:
        arrow = import_module("pyarrow")
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        remedy = "run pip install 'onegraph[parquet]', or write the columns as .npz"
        raise fault(file, "reading Parquet needs pyarrow", remedy) from error
    try:
        # Opened as a file: the folder names of a path are no columns.
        table = parquet.ParquetFile(file).read()
    except (arrow.ArrowException, OSError) as error:
        line = " ".join(str(error).split())
        raise fault(file, f"it can't be read as Parquet ({line})", "write it again") from error
    names = list(table.column_names)
    columns: dict[str, NDArray[Any]] = {}
    for name in names:
        if name in (*REQUIRED, *OPTIONAL) and name not in STATES:
            columns[name] = _scalars(table, name, file)
        elif not any(re.fullmatch(rf"{state}(_\d+)?", name) for state in STATES):
            columns[name] = np.zeros(0)  # not read; its name may be one that is misspelled
    for state in STATES:
        if (found := _states(table, names, state, file, arrow)) is not None:
            columns[state] = found
    return columns


def _column(table: Any, name: str, file: str) -> Any:
    column = table.column(name)
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise fault(file, f"row {row}: {name} is null", "leave the row out; nothing is filled in")
    return column


def _scalars(table: Any, name: str, file: str) -> NDArray[Any]:
    values: NDArray[Any] = _column(table, name, file).to_numpy()
    return values


def _states(table: Any, names: list[str], state: str, file: str, arrow: Any) -> NDArray[Any] | None:
    if state in names:
        return _lists(table, state, file, arrow)
    numbers = sorted(int(n[len(state) + 1 :]) for n in names if re.fullmatch(rf"{state}_\d+", n))
    if not numbers:
        return None
    if numbers != list(range(len(numbers))):
        missing = next(i for i in range(numbers[-1] + 1) if i not in numbers)
        remedy = f"name the features {state}_0, {state}_1, ... without a gap"
        raise fault(file, f"it has {state}_{numbers[-1]} and no {state}_{missing}", remedy)
    return np.stack([_scalars(table, f"{state}_{i}", file) for i in numbers], axis=1)


def _lists(table: Any, state: str, file: str, arrow: Any) -> NDArray[Any]:
    column = _column(table, state, file)
    kind = column.type
    is_list = (
        arrow.types.is_list(kind)
        or arrow.types.is_large_list(kind)
        or arrow.types.is_fixed_size_list(kind)
    )
    if not is_list:
        return _scalars(table, state, file)  # its shape is refused with the others' reasons
    lengths = import_module("pyarrow.compute").list_value_length(column).to_numpy()
    if len(lengths) and (lengths != lengths[0]).any():
        row = int(np.argmax(lengths != lengths[0]))
        raise fault(
            file,
            f"row {row}: {state} has {lengths[row]} values and row 0 has {lengths[0]}",
            "give every row as many",
        )
    values = column.combine_chunks().flatten()
    if values.null_count:
        row = values.is_null().to_pylist().index(True) // int(lengths[0])
        raise fault(file, f"row {row}: {state} holds a null", "leave the row out")
    flat: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return flat.reshape(len(lengths), -1) if len(lengths) else flat.reshape(0, 1)
