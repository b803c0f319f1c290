"""``metrics.jsonl``: one line an epoch, cut back to the state that a run goes on from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from onegraph.trainer.atomic_files import append_bytes, replace_bytes

#: Appended to the name of the file: where lines go that are cut from it.
ASIDE = ".bak"


@dataclass(frozen=True)
class Cut:
    """What `keep_epochs` took out.

    Attributes:
        later: lines of epochs past the one that the run goes on from.
        damaged: lines that are no epoch's, such as one that a kill left half written.
        aside: the file that has them now.
    """

    later: int
    damaged: int
    aside: Path

    def __str__(self) -> str:
        said = []
        if self.later:
            said.append(f"{self.later} line{'s' * (self.later > 1)} of later epochs")
        if self.damaged:
            said.append(f"{self.damaged} damaged line{'s' * (self.damaged > 1)}")
        return f"{' and '.join(said)} moved to {self.aside}"


def append_line(path: Path, line: str) -> None:
    """Append an epoch's line, and flush it to disk: before any checkpoint that is past it.

    Raises:
        OSError: it could not be written.
    """
    append_bytes(path, line.encode() + b"\n")


def keep_epochs(path: Path, last: int) -> Cut | None:
    """Cut `path` back to epochs 1 to `last`, in one step; ``None`` if that takes nothing out.

    What is cut goes to a file beside it, after what is there already.

    Raises:
        OSError: one of the two could not be written; `path` is then as it was.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    lines = [line for line in content.split(b"\n") if line.strip()]
    epochs = [_epoch(line) for line in lines]
    kept = [line for line, epoch in zip(lines, epochs, strict=True) if epoch and epoch <= last]
    # Also when a kill came between a whole line and the line break after it.
    if (whole := b"".join(line + b"\n" for line in kept)) == content:
        return None
    later = sum(epoch is not None and epoch > last for epoch in epochs)
    damaged = len(lines) - len(kept) - later
    aside = path.with_name(path.name + ASIDE)
    if cut := [x for x, epoch in zip(lines, epochs, strict=True) if not epoch or epoch > last]:
        append_bytes(aside, b"".join(line + b"\n" for line in cut))
    replace_bytes(path, whole)
    return Cut(later, damaged, aside) if cut else None


def _epoch(line: bytes) -> int | None:
    """The epoch that a line is of; ``None`` if it is none's."""
    try:
        epoch = json.loads(line)["epoch"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return epoch if type(epoch) is int and epoch > 0 else None
