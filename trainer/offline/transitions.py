"""Recorded transitions, checked column by column."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import Flag
from onegraph.trainer.offline.errors import fault

#: Columns that a file must have, and those that it may have.
REQUIRED = ("state", "action", "reward", "next_state", "terminated")
OPTIONAL = ("truncated", "episode")

#: The ring's rows are counted in int32.
MOST_ROWS = 2**31 - 1


@dataclass(frozen=True)
class Transitions:
    """N transitions in the order in which they were made.

    Attributes:
        file: names them in errors.
        state, next_state: float32 [N, S].
        action: int32 [N], none negative.
        reward: float32 [N].
        flags: uint8 [N], `layout.Flag`: TERMINATED and TRUNCATED.
        episode: int64 [N], or ``None`` if the rows do not say which episode they are of.
    """

    file: str
    state: NDArray[np.float32] = field(repr=False)
    action: NDArray[np.int32] = field(repr=False)
    reward: NDArray[np.float32] = field(repr=False)
    next_state: NDArray[np.float32] = field(repr=False)
    flags: NDArray[np.uint8] = field(repr=False)
    episode: NDArray[np.int64] | None = field(repr=False)

    @property
    def rows(self) -> int:
        """N."""
        return int(self.action.size)

    @property
    def width(self) -> int:
        """S."""
        return int(self.state.shape[1])

    def finite(self) -> NDArray[np.bool_]:
        """Whether reward, state and next state of each row are finite, bool [N]."""
        found: NDArray[np.bool_] = np.isfinite(self.reward)
        for states in (self.state, self.next_state):
            found &= np.isfinite(states).all(axis=1)
        return found

    def ended(self) -> NDArray[np.bool_]:
        """Whether each row is marked as an episode's last, bool [N]."""
        found: NDArray[np.bool_] = (self.flags & (Flag.TERMINATED | Flag.TRUNCATED)) != 0
        return found

    def take(self, rows: NDArray[np.bool_]) -> Transitions:
        """Those `rows` (bool [N]), in their order."""
        return Transitions(
            self.file,
            self.state[rows],
            self.action[rows],
            self.reward[rows],
            self.next_state[rows],
            self.flags[rows],
            None if self.episode is None else self.episode[rows],
        )


def transitions_from(columns: Mapping[str, NDArray[Any]], file: str = "arrays") -> Transitions:
    """Check columns and bring them to the replay's dtypes.

    Args:
        columns: ``state`` and ``next_state`` [N, S] of any real dtype, ``action`` [N] of an integer
            dtype, ``reward`` [N] real, ``terminated`` and, if wanted, ``truncated`` [N] bool or 0
            and 1, and, if wanted, ``episode`` [N] of an integer dtype. Other columns are passed
            over, but for one whose name is almost one of these.
        file: names them in errors.

    Raises:
        TransitionsError: a column is missing, or is of another shape, dtype or length; an action
            is negative; a mark is neither 0 nor 1. A number that is not finite is no error here:
            its row is counted, and never drawn.
    """
    _names(columns, file)
    state = _states(columns, "state", file)
    rows = len(state)
    if rows == 0:
        raise fault(file, "it has no rows", "record at least as many as a batch has")
    if rows > MOST_ROWS:
        raise fault(file, f"it has {rows:,} rows", f"use at most {MOST_ROWS:,}")
    for name in (*REQUIRED, *OPTIONAL):
        if name in columns and len(columns[name]) != rows:
            raise fault(
                file,
                f"{name} has {len(columns[name]):,} rows and state {rows:,}",
                "give every column one value a transition",
            )
    next_state = _states(columns, "next_state", file)
    if next_state.shape != state.shape:
        raise fault(
            file,
            f"next_state has {next_state.shape[1]} columns and state {state.shape[1]}",
            "record both as the same features",
        )
    action = _integers(columns, "action", file)
    if (bad := _first(action < 0)) is not None:
        remedy = "number the actions from 0 on, and leave out rows without one"
        raise fault(file, f"row {bad}: action = {action[bad]} is negative", remedy)
    if (bad := _first(action > MOST_ROWS)) is not None:
        remedy = "number the actions from 0 on"
        raise fault(file, f"row {bad}: action = {action[bad]} is too large", remedy)
    flags = np.where(_marks(columns, "terminated", file), np.uint8(Flag.TERMINATED), np.uint8(0))
    if "truncated" in columns:
        flags |= np.where(_marks(columns, "truncated", file), np.uint8(Flag.TRUNCATED), np.uint8(0))
    return Transitions(
        file,
        state,
        action.astype(np.int32),
        _float32(_vector(columns, "reward", file, "biuf")),
        next_state,
        flags,
        _integers(columns, "episode", file) if "episode" in columns else None,
    )


def _names(columns: Mapping[str, Any], file: str) -> None:
    known = (*REQUIRED, *OPTIONAL)
    unknown = [name for name in columns if name not in known]
    for name in REQUIRED:
        if name not in columns:
            near = difflib.get_close_matches(name, unknown, n=1)
            hint = f"rename {near[0]!r}" if near else f"its columns are {', '.join(columns) or '-'}"
            raise fault(file, f"it has no column {name!r}", hint)
    for name in OPTIONAL:
        if name not in columns and (
            near := difflib.get_close_matches(name, unknown, n=1, cutoff=0.8)
        ):
            remedy = f"rename it to {name!r}, or to what is less like it if it is something else"
            raise fault(file, f"column {near[0]!r} is not read", remedy)


def _vector(columns: Mapping[str, NDArray[Any]], name: str, file: str, kinds: str) -> NDArray[Any]:
    """Column `name` [N] of one of the NumPy kinds of dtype `kinds`."""
    values = columns[name]
    if values.ndim != 1:
        raise fault(file, f"{name} has the shape {list(values.shape)}", "give one value a row, [N]")
    if values.dtype.kind not in kinds:
        wanted = {"biuf": "numbers", "iu": "whole numbers (int64)", "biu": "bool, or 0 and 1"}
        raise fault(file, f"{name} is {values.dtype}", f"store it as {wanted[kinds]}")
    return values


def _integers(columns: Mapping[str, NDArray[Any]], name: str, file: str) -> NDArray[np.int64]:
    values = _vector(columns, name, file, "iu")
    if values.dtype == np.uint64 and (bad := _first(values > np.uint64(2**63 - 1))) is not None:
        raise fault(file, f"row {bad}: {name} = {values[bad]} is too large", "use int64")
    return values.astype(np.int64)


def _marks(columns: Mapping[str, NDArray[Any]], name: str, file: str) -> NDArray[np.bool_]:
    values = _vector(columns, name, file, "biu")
    if (bad := _first((values != 0) & (values != 1))) is not None:
        raise fault(file, f"row {bad}: {name} = {values[bad]}", "use bool, or 0 and 1")
    return values.astype(np.bool_)


def _states(columns: Mapping[str, NDArray[Any]], name: str, file: str) -> NDArray[np.float32]:
    values = columns[name]
    if values.ndim != 2 or values.shape[1] == 0:
        raise fault(
            file,
            f"{name} has the shape {list(values.shape)}",
            "give one row of features a transition, [N, S]",
        )
    if values.dtype.kind not in "biuf":
        raise fault(file, f"{name} is {values.dtype}", "store it as numbers (float32)")
    return _float32(values)


def _float32(values: NDArray[Any]) -> NDArray[np.float32]:
    # What is beyond float32 becomes infinite, and its row one that is counted and never drawn.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, np.float32)


def _first(found: NDArray[np.bool_]) -> int | None:
    """The first row that is true."""
    return int(np.argmax(found)) if found.any() else None
