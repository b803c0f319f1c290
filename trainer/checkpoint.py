"""Checkpoints: safetensors with the config and a checksum inside, whole or not there.

A file is written beside its place, flushed to disk and moved there, so that a crash at any moment
leaves the old one. The checksum is over all of the file, so that a byte that changed later, or a
file that was cut, is refused by name instead of being trained on.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from onegraph.guards.markers import cold_path
from onegraph.stages.registry import format_set
from onegraph.trainer.atomic_files import keep_under, partial_folder, put_in_place
from onegraph.trainer.config import Config, ConfigError, config_from_json, config_to_json
from onegraph.trainer.policy.facts import PolicyFacts, facts_of
from onegraph.trainer.trainer import Progress, Trainer

FORMAT = "onegraph-checkpoint-2"

#: Has no checksum; read all the same.
FIRST_FORMAT = "onegraph-checkpoint-1"

#: A run's folder of checkpoints, and those in it.
CHECKPOINTS = "checkpoints"
LAST, PREVIOUS, BEST = "last.safetensors", "last-1.safetensors", "best.safetensors"

#: BLAKE2b with 32 bytes, in hexadecimal digits, over the file as it is with zeros in their place.
CHECKSUM = "blake2b"
_UNSET = "0" * 64
#: As it stands in the header: JSON in a string of JSON.
_MARK = json.dumps(json.dumps({CHECKSUM: ""}))[2:-4].encode()

#: No header is longer: it is safetensors' own limit.
_LONGEST_HEADER = 100_000_000


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, or of something else."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as read.

    Attributes:
        config: the run's config.
        progress: where the run stood.
        state: every persistent buffer by name.
        policy: what the policy needs to be known of the environment; ``None`` in a checkpoint of an
            environment that does not say, or from before they were kept.
        note: what the user should know of it; empty if nothing.
    """

    path: Path
    config: Config
    progress: Progress
    state: dict[str, NDArray[np.generic]]
    policy: PolicyFacts | None = None
    note: str = ""


# ------------------------------------------------------------------------ writing


@cold_path("writes a checkpoint")
def save_checkpoint(path: Path, trainer: Trainer, *, previous: Path | None = None) -> None:
    """Write the trainer's state to `path`, whole or not at all. Equal states give equal files.

    Args:
        path: made, with its folder, if it is not there.
        trainer: between two steps.
        previous: where the file goes that is at `path` now; without it, it is replaced.

    Raises:
        CheckpointError: it could not be written; what stood at `path` still does.
    """
    facts = facts_of(trainer.environment)
    # One entry: safetensors writes several in any order, and equal states must give equal files.
    about = {
        CHECKSUM: _UNSET,
        "config": json.loads(config_to_json(_as_run(trainer))),
        "progress": asdict(trainer.progress),
        "stages": format_set(trainer.stages),
        "policy": facts.model_dump(mode="json") if facts is not None else None,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_folder(path.parent) as folder:
            partial = folder / path.name
            save_file(trainer.state(), partial, metadata={FORMAT: json.dumps(about)})
            _seal(partial)
            if previous is not None and path.exists():
                keep_under(path, previous, folder)
            put_in_place(partial, path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: the checkpoint could not be written ({error}); free some disk space, or name"
            " another folder (--run-dir)"
        ) from error


def _as_run(trainer: Trainer) -> Config:
    """The config with the capacity that the replay really has, which memory may have halved."""
    replay = trainer.config.replay.model_copy(update={"capacity": trainer.shapes.capacity})
    return trainer.config.model_copy(update={"replay": replay})


def _seal(path: Path) -> None:
    """Put the checksum in its place, and flush the file to disk."""
    with path.open("r+b") as file:
        at = _checksum_place(_header(file))
        digest = _digest(file, at)
        file.seek(at)
        file.write(digest)
        file.flush()
        os.fsync(file.fileno())


# ------------------------------------------------------------------------ reading


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; of a run folder, its last one.

    Raises:
        CheckpointError: no such file, not a checkpoint, cut short, or changed since it was written;
            with the path and what to do. Another checkpoint is never taken by itself: it is named.
    """
    if path.is_dir():
        path = path / CHECKPOINTS / LAST
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such checkpoint; {_instead_of_missing(path)}")
    try:
        about, note = _checked(path)
        config, progress = _config(path, about), Progress(**about["progress"])
        with safe_open(path, framework="numpy") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        kept = about.get("policy")
        policy = PolicyFacts.model_validate(kept) if kept is not None else None
    except _UNREADABLE as error:
        raise CheckpointError(f"{path}: {_why(error)}; {_instead_of_damaged(path)}") from error
    return Checkpoint(path, config, progress, state, policy, note)


def checked_progress(path: Path) -> Progress:
    """Where the run stood at a checkpoint, once its checksum is right.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        return Progress(**_checked(path)[0]["progress"])
    except _UNREADABLE as error:
        raise CheckpointError(f"{path}: {_why(error)}") from error


class _ForeignError(ValueError):
    """A safetensors file, but no checkpoint."""


class _DamagedError(ValueError):
    """No whole checkpoint."""


_UNREADABLE = (
    SafetensorError,
    OSError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,  # of JSON and of text as well
    RecursionError,
)


def _why(error: BaseException) -> str:
    if isinstance(error, _ForeignError | CheckpointError):
        return str(error)
    return f"this is no whole checkpoint ({error})"


def _checked(path: Path) -> tuple[dict[str, Any], str]:
    """What a checkpoint says about itself, and a note, once its checksum is right."""
    with path.open("rb") as file:
        header = _header(file)
        metadata = json.loads(header).get("__metadata__") or {}
        if FORMAT in metadata:
            about = json.loads(metadata[FORMAT])
            at = _checksum_place(header)
            if _digest(file, at) != header[at - 8 : at - 8 + len(_UNSET)]:
                raise _DamagedError("its checksum is another: it was changed since it was written")
            return about, ""
        if FIRST_FORMAT in metadata:
            about = json.loads(metadata[FIRST_FORMAT])
            if CHECKSUM in about:
                raise _DamagedError("it has a checksum, which its format does not have")
            return about, "was written by an earlier version, and has no checksum"
    raise _ForeignError(
        f"its metadata has no {FORMAT!r}; it was not written by this version of onegraph train, or"
        " is damaged"
    )


def _config(path: Path, about: dict[str, Any]) -> Config:
    text = json.dumps(about["config"])
    try:
        return config_from_json(text, str(path))
    except ConfigError as error:
        raise CheckpointError(f"its config can't be used: {error}") from error


def _header(file: BinaryIO) -> bytes:
    """The JSON that a safetensors file begins with, after 8 bytes of its length."""
    file.seek(0)
    prefix = file.read(8)
    size = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or size > _LONGEST_HEADER or len(text := file.read(size)) < size:
        raise _DamagedError("it ends within its header")
    return text


def _checksum_place(header: bytes) -> int:
    """The byte of the file at which the digits of the checksum begin."""
    found = header.find(_MARK)
    if found < 0:
        raise _DamagedError("its header has no checksum")
    return 8 + found + len(_MARK)


def _digest(file: BinaryIO, at: int) -> bytes:
    """The checksum of an open file whose own digits begin at byte `at`."""
    digest = hashlib.blake2b(digest_size=len(_UNSET) // 2)
    file.seek(0)
    digest.update(file.read(at))
    digest.update(_UNSET.encode())
    file.seek(at + len(_UNSET))
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest().encode()


# ------------------------------------------------------------------------ what to do instead


def _instead_of_damaged(path: Path) -> str:
    good = _newest_beside(path)
    return good or "no other checkpoint beside it is whole: start anew"


def _instead_of_missing(path: Path) -> str:
    if good := _newest_beside(path):
        return good
    run, config = path.parent.parent, path.parent.parent / "config.toml"
    if path.parent.name == CHECKPOINTS and config.is_file():
        return (
            "the run ended before its first one, so there is nothing to go on from; start it anew"
            f" (onegraph train --config {config} --run-dir {run})"
        )
    return "name a run folder or a .safetensors file"


def _newest_beside(path: Path) -> str:
    """The newest whole checkpoint beside `path`, as words; empty if there is none."""
    found: list[tuple[tuple[int, int], Path, Progress]] = []
    for other in (path.with_name(name) for name in (LAST, PREVIOUS, BEST)):
        if other == path or not other.is_file():
            continue
        try:
            progress = checked_progress(other)
        except CheckpointError:
            continue  # it is not offered, and that is all
        found.append(((progress.learns, progress.collects), other, progress))
    if not found:
        return ""
    _, other, progress = max(found, key=lambda one: one[0])
    return (
        f"use {other} instead (--resume {other}), of epoch {progress.epoch} and learning step"
        f" {progress.learns:,}"
    )
