"""From a config with `offline.transitions` to the rows that are learned from, and the config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onegraph.trainer.config import Config
from onegraph.trainer.envs.base import Environment
from onegraph.trainer.offline.episodes import with_ends
from onegraph.trainer.offline.errors import TransitionsError, fault
from onegraph.trainer.offline.read import read_transitions
from onegraph.trainer.offline.transitions import Transitions


@dataclass(frozen=True)
class OfflineData:
    """What an offline run learns from.

    Attributes:
        training: the rows in the replay, their ends marked.
        held_out: the episodes that are kept from learning; ``None`` if there are none.
        actions: their number, A.
    """

    training: Transitions
    held_out: Transitions | None
    actions: int

    def check(self, environment: Environment, kind: str) -> None:
        """Whether `environment` has the states and actions that were recorded.

        Raises:
            TransitionsError: it has not.
        """
        file = self.training.file
        if self.training.width != environment.observation_width:
            raise fault(
                file,
                f"its states have {self.training.width} columns, and env.kind = {kind!r} observes"
                f" {environment.observation_width}",
                "name the environment that they were recorded in, or env.kind = 'recorded'",
            )
        if self.actions > environment.actions:
            raise fault(
                file,
                f"it has {self.actions} actions, and env.kind = {kind!r} has {environment.actions}",
                "name the environment that they were recorded in, or env.kind = 'recorded'",
            )


def offline_run(
    config: Config, transitions: Transitions | None = None
) -> tuple[Config, OfflineData | None]:
    """The rows to learn from, and the config with the sizes that they give.

    The replay has one lane and as many rows as are learned from, all of them from the start on.

    Args:
        config: one without `offline.transitions` comes back as it is.
        transitions: rows to use instead of the file's.

    Raises:
        TransitionsError: the file or its rows can't be used.
    """
    offline = config.offline
    if transitions is None:
        if not offline.transitions:
            return config, None
        transitions = read_transitions(Path(offline.transitions))
    across = config.replay.n_step > 1 or config.hindsight.strategy != "none"
    transitions = with_ends(transitions, across_rows=across)
    actions = _actions(transitions, offline.actions)
    training, held_out = _split(transitions, offline.held_out)
    file, batch = transitions.file, config.learn.batch_size
    drawable = int(training.finite().sum())
    if drawable < batch:
        held = f" beside those held out (offline.held_out = {offline.held_out})" if held_out else ""
        raise fault(
            file,
            f"{drawable:,} of its {transitions.rows:,} rows can be drawn{held}, fewer than"
            f" learn.batch_size = {batch}",
            "lower learn.batch_size, or record more",
        )
    if config.replay.n_step > training.rows:
        raise fault(
            file,
            f"its {training.rows:,} rows are fewer than replay.n_step = {config.replay.n_step}",
            "shorten the return",
        )
    changes = {
        "env": config.env.model_copy(update={"lanes": 1}),
        "replay": config.replay.model_copy(update={"capacity": training.rows}),
        "loop": config.loop.model_copy(update={"start_steps": batch}),
        "offline": offline.model_copy(update={"transitions": file}),
    }
    return config.model_copy(update=changes), OfflineData(training, held_out, actions)


def _actions(transitions: Transitions, given: int) -> int:
    largest = int(np.argmax(transitions.action))
    found = int(transitions.action[largest])
    if given and found >= given:
        raise fault(
            transitions.file,
            f"row {largest}: action = {found}, and offline.actions = {given} has actions from 0 to"
            f" {given - 1}",
            "raise offline.actions, or leave it at 0",
        )
    if not given and found >= MOST_ACTIONS:
        raise fault(
            transitions.file,
            f"row {largest}: action = {found} would make {found + 1:,} actions, more than"
            f" {MOST_ACTIONS:,}",
            "number the actions from 0 on, without gaps",
        )
    return given or found + 1


#: As many as `offline.actions` may name.
MOST_ACTIONS = 65_536


def _split(transitions: Transitions, share: float) -> tuple[Transitions, Transitions | None]:
    """Every so many-th episode held out, spread evenly over the file."""
    if share == 0.0:
        return transitions, None
    episode = transitions.episode
    assert episode is not None
    kept = np.floor((episode + 1) * share) == np.floor(episode * share)
    if kept.all() or not kept.any():
        episodes = int(episode[-1]) + 1
        raise TransitionsError(
            f"{transitions.file}: offline.held_out = {share} of {episodes} episode(s) leaves"
            f" {'none to hold out' if kept.all() else 'none to learn from'}; whole episodes are"
            " held out: record more of them, or change the share"
        )
    return transitions.take(kept), transitions.take(~kept)
