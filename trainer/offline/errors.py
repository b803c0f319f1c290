"""The one error of recorded transitions."""

from __future__ import annotations


class TransitionsError(ValueError):
    """A file of transitions that can't be learned from.

    The message names the file, the column and row where there is one, the value, and what to do.
    """


def fault(file: str, problem: str, remedy: str) -> TransitionsError:
    """The error for `problem` in `file`."""
    return TransitionsError(f"{file}: {problem}; {remedy}")
