"""A trained policy: the network as evaluation reads it, and what it was trained for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.kernels.learner.iqn_cosines import TauUse, quantile_levels
from onegraph.kernels.learner.iqn_readiness import Ready
from onegraph.trainer.blocks.iqn import READY
from onegraph.trainer.checkpoint import Checkpoint, load_checkpoint
from onegraph.trainer.config import Config, MismatchError, config_to_json
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.market import MarketDataError
from onegraph.trainer.network import QNetwork
from onegraph.trainer.policy.errors import ExportError
from onegraph.trainer.policy.facts import PolicyFacts, facts_of
from onegraph.trainer.trainer import Trainer


@dataclass(frozen=True, eq=False)
class Policy:
    """What acts greedily.

    Attributes:
        config: of the run.
        facts: of its environment.
        network: its shape.
        params: float32 [size], as a pass of evaluation reads them: spectrally normalised, and
            without noise.
        readiness: weight of the quantile head beside the plain one, in [0, 1].
        levels: float32 [Q], the quantile levels that an evaluation of one lane acts by.
        learn_steps: how many made it.
        path: of the checkpoint that it was read from, if it was.
    """

    config: Config
    facts: PolicyFacts
    network: QNetwork
    params: NDArray[np.float32]
    readiness: float
    levels: NDArray[np.float32]
    learn_steps: int
    path: Path | None = None

    @property
    def config_digest(self) -> str:
        """SHA-256 of the config as JSON."""
        return hashlib.sha256(config_to_json(self.config).encode()).hexdigest()

    @property
    def version(self) -> str:
        """Of this program."""
        try:
            return metadata.version("onegraph")
        except metadata.PackageNotFoundError:
            return "not installed"


def policy_of(trainer: Trainer) -> Policy:
    """The policy of a trainer as it stands.

    Raises:
        ExportError: its environment does not say what its policy needs, or the parameters are not
            finite.
    """
    facts = facts_of(trainer.environment)
    if facts is None:
        raise ExportError(
            "the market environment was built without its normaliser, so that raw features can't be"
            " scaled; build it with build_market"
        )
    names = ("theta", "counters", *(b.name for b in trainer.network.state()))
    with trainer.device.ledger.within("io"):
        state = {name: trainer.workspace.read(name) for name in names}
    return policy_from_state(trainer.config, facts, state, trainer.progress.learns, "the trainer")


def read_policy(path: Path) -> Policy:
    """The policy of a run folder or a checkpoint.

    A checkpoint from before they held the facts has its environment built from the config once
    more, for which the data has to be where it was.

    Raises:
        CheckpointError: not a checkpoint, or a damaged one.
        ExportError: a checkpoint that can't give a policy; with the remedy.
    """
    checkpoint = load_checkpoint(path)
    facts = checkpoint.policy if checkpoint.policy is not None else _rebuilt(checkpoint)
    config, learns = checkpoint.config, checkpoint.progress.learns
    policy = policy_from_state(config, facts, checkpoint.state, learns, str(checkpoint.path))
    return replace(policy, path=checkpoint.path)


def _rebuilt(checkpoint: Checkpoint) -> PolicyFacts:
    try:
        environment, _ = build_environment(checkpoint.config)
    except (MarketDataError, OSError) as error:
        raise ExportError(
            f"{checkpoint.path}: it was written before checkpoints kept what a policy needs (how"
            f" features are normalised), and the data can't be read for it: {error}; put the data"
            f" back where env.market.data says ({checkpoint.config.env.market.data}), or go on with"
            " the run (onegraph train --resume) and export what it saves"
        ) from error
    facts = facts_of(environment)
    assert facts is not None
    return facts


def policy_from_state(
    config: Config, facts: PolicyFacts, state: Mapping[str, NDArray[Any]], learns: int, where: str
) -> Policy:
    """The policy of a state that has ``theta``, ``counters`` and what the network keeps.

    Raises:
        ExportError: the state is of another network, or not finite; it begins with `where`.
    """
    try:
        network = QNetwork.of(config, facts)
    except MismatchError as error:
        raise ExportError(f"{where}: {error}") from error
    names = ("theta", "counters", *(b.name for b in network.state()))
    if missing := [name for name in names if name not in state]:
        raise ExportError(
            f"{where}: it has no {', '.join(missing)}; it is no state of the network that its"
            " config describes; use the checkpoint as onegraph wrote it"
        )
    theta, counters = state["theta"], state["counters"]
    if theta.shape != (network.size,) or counters.shape != (COUNTERS,):
        raise ExportError(
            f"{where}: its parameters are {list(theta.shape)}, the network of its config has"
            f" [{network.size}]; use the checkpoint as onegraph wrote it"
        )
    if not np.isfinite(theta).all():
        raise ExportError(
            f"{where}: {np.count_nonzero(~np.isfinite(theta)):,} of {theta.size:,} parameters are"
            " not finite: the run diverged; export an earlier checkpoint (best.safetensors), or"
            " train with a lower learning rate"
        )
    if network.spectral:
        theta = network.spectral.normalised(theta, state["spectral_vectors"])
    readiness, levels = 1.0, np.zeros(0, np.float32)
    if network.iqn:
        readiness = float(state[READY][Ready.WEIGHT])
        step = int(counters[Counter.COLLECT])
        levels = quantile_levels(network.seed, network.iqn.quantiles, step, TauUse.EVALUATE)
    return Policy(config, facts, network, theta, readiness, levels, learns)
