"""Checkpoints: safetensors with the config inside, written so that a crash leaves the old one."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from onegraph.guards.markers import cold_path
from onegraph.stages.registry import format_set
from onegraph.trainer.config import Config, ConfigError, config_from_json, config_to_json
from onegraph.trainer.policy.facts import PolicyFacts, facts_of
from onegraph.trainer.trainer import Progress, Trainer

FORMAT = "onegraph-checkpoint-1"


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
    """

    path: Path
    config: Config
    progress: Progress
    state: dict[str, NDArray[np.generic]]
    policy: PolicyFacts | None = None


@cold_path("writes a checkpoint")
def save_checkpoint(path: Path, trainer: Trainer) -> None:
    """Write the trainer's state to `path`, whole or not at all.

    The file is written beside its place, flushed to disk, and moved there in one step.

    Raises:
        CheckpointError: it could not be written; what stood at `path` still does.
    """
    facts = facts_of(trainer.environment)
    # One entry: safetensors writes several in any order, and equal states must give equal files.
    about = {
        "config": json.loads(config_to_json(_as_run(trainer))),
        "progress": asdict(trainer.progress),
        "stages": format_set(trainer.stages),
        "policy": facts.model_dump(mode="json") if facts is not None else None,
    }
    metadata = {FORMAT: json.dumps(about)}
    partial = path.with_name(path.name + f".partial-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(trainer.state(), partial, metadata=metadata)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: the checkpoint could not be written ({error}); free some disk space, or name"
            " another folder (--run-dir)"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _as_run(trainer: Trainer) -> Config:
    """The config with the capacity that the replay really has, which memory may have halved."""
    replay = trainer.config.replay.model_copy(update={"capacity": trainer.shapes.capacity})
    return trainer.config.model_copy(update={"replay": replay})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        CheckpointError: no such file, not a checkpoint, or cut short; with the path and what to do.
    """
    if path.is_dir():
        path = path / "checkpoints" / "last.safetensors"
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such checkpoint; name a .safetensors file")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if FORMAT not in metadata:
                raise CheckpointError(
                    f"{path}: its metadata has no {FORMAT!r}; it was not written by this version of"
                    " onegraph train"
                )
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(metadata[FORMAT])
        config = config_from_json(json.dumps(about["config"]), str(path))
        progress = Progress(**about["progress"])
        kept = about.get("policy")
        policy = PolicyFacts.model_validate(kept) if kept is not None else None
    except (
        SafetensorError,
        OSError,
        KeyError,
        TypeError,
        json.JSONDecodeError,
        ValidationError,
    ) as error:
        raise CheckpointError(
            f"{path}: this is no whole checkpoint ({error}); use an earlier one, or start anew"
        ) from error
    except ConfigError as error:
        raise CheckpointError(f"{path}: its config can't be used: {error}") from error
    return Checkpoint(path, config, progress, state, policy)
