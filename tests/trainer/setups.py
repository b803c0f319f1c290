"""Small runs that the trainer's tests share, and what of them is compared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from onegraph.kernels.device import Device
from onegraph.stages.flags import choose_stages
from onegraph.stages.registry import NONE
from onegraph.trainer.config import Config, load_config
from onegraph.trainer.envs.base import Environment
from onegraph.trainer.envs.build import MarketSetup, build_environment, build_market
from onegraph.trainer.envs.tabular import TabularEnvironment
from onegraph.trainer.trainer import Trainer

OpenDevice = Callable[[], Device]

#: 75 slots of 4 lanes: the ring is no power of two, and wraps around within 50 steps. Phases stay
#: as they are: what stage 7 would choose on a GPU depends on what it measures there.
SMALL: dict[str, object] = {
    "fusion": "none",
    "env.lanes": 4,
    "replay.capacity": 300,
    "learn.batch_size": 32,
    "network.hidden": [16],
    "loop.start_steps": 160,
    "loop.epoch_steps": 50,
    "loop.timed_steps": 5,
    "loop.total_env_steps": 160 + 4 * 199,
}

#: Acts on the network's values, so that a wrong bit in them changes what is collected.
CHAIN = SMALL | {
    "learn.lr.start": 1e-2,  # fast enough for the target network to choose otherwise
    "learn.tau.start": 0.01,
    "learn.max_grad_norm": 0.05,  # low enough to clip in some steps and not in others
    "replay.n_step": 3,
    "learn.epsilon.kind": "linear",
    "learn.epsilon.steps": 200,
    "learn.epsilon.end": 0.1,
}


def chain(**changes: object) -> Config:
    """The shipped chain, small. Dots in field names are written as two underscores."""
    return load_config("chain", CHAIN | _dotted(changes))


def short(**changes: object) -> Config:
    """The chain, smaller: the ring of 25 slots is filled to 16, and wraps around in 16 steps."""
    fewer = {"replay.capacity": 100, "loop.start_steps": 64, "loop.epoch_steps": 16}
    return load_config("chain", CHAIN | fewer | _dotted(changes))


def small(**changes: object) -> Config:
    """`short` with narrow layers and a batch of 16, for parts of the learner."""
    return short(**{"network__hidden": [8], "learn__batch_size": 16, **changes})


def market(**changes: object) -> Config:
    """The shipped demo, small."""
    return load_config("demo", SMALL | _dotted(changes))


def bit_flip(**changes: object) -> Config:
    """The shipped bit flipping with four bits, small; its returns are of three steps."""
    small = SMALL | {"env.bits": 4, "replay.n_step": 3, "replay.alpha": 0.6}
    fewer = {"replay.capacity": 100, "loop.start_steps": 64, "loop.epoch_steps": 16}
    return load_config("bit-flip", small | fewer | _dotted(changes))


def gym(**changes: object) -> Config:
    """CartPole of gymnasium, small: the ring of 25 slots wraps around, its episodes end early."""
    fewer = {
        "replay.capacity": 100,
        "loop.start_steps": 64,
        "loop.epoch_steps": 16,
        "loop.total_env_steps": 64 + 4 * 47,
        "learn.epsilon.steps": 200,
        "learn.lr.start": 1e-2,
        "env.validation_episodes": 3,
        "env.evaluation_episodes": 5,
    }
    return load_config("gymnasium", SMALL | fewer | _dotted(changes))


def coin(**changes: object) -> Config:
    """The shipped coin, small."""
    fewer = {"replay.capacity": 100, "loop.start_steps": 64, "loop.epoch_steps": 16}
    return load_config("coin", SMALL | fewer | _dotted(changes))


#: Every part of the learner, small, with numbers at which each acts: matrices above the spectral
#: cap, a quantile head that is neither ready nor not, blocks that are left out of some steps, and
#: batches small enough for the vaccine to speak against one.
PARTS: dict[str, object] = {
    "preset": "full",
    "learn.batch_size": 5,
    "network.hidden": [9, 8],
    "network.attention_groups": 2,
    "network.attention_heads": 2,
    "network.gate_l1": 0.02,
    "network.drop_path": 0.3,
    "network.spectral_cap": 0.6,
    "network.iqn.quantiles": 3,
    "network.iqn.target_quantiles": 2,
    "network.iqn.ready_decay": 0.5,
    "network.iqn.ready_low": 0.0,
    "network.iqn.ready_high": 0.1,
    "aux.iql_hidden": 6,
    "aux.denoise_hidden": 5,
}


def full(**changes: object) -> Config:
    """The preset `full` on the chain of `short`, with its parts small."""
    fewer = {"replay.capacity": 100, "loop.start_steps": 64, "loop.epoch_steps": 16}
    return load_config("chain", CHAIN | fewer | PARTS | _dotted(changes))


def full_market(**changes: object) -> Config:
    """The preset `full` on the small demo, with its parts small."""
    return load_config("demo", SMALL | PARTS | _dotted(changes))


def _dotted(changes: dict[str, object]) -> dict[str, object]:
    return {name.replace("__", "."): value for name, value in changes.items()}


def tabular(config: Config) -> TabularEnvironment:
    """The tabular environment of a config."""
    environment, _ = build_environment(config)
    assert isinstance(environment, TabularEnvironment)
    return environment


@functools.cache
def market_setup(config: Config) -> MarketSetup:
    """The bars are read once for all tests that use the same config."""
    return build_market(config)


def make(
    device: Device,
    config: Config,
    stages: str | frozenset[int] = "all",
    environment: Environment | None = None,
) -> Trainer:
    """A trainer; a market's bars come from a cache."""
    named = choose_stages(stages) if isinstance(stages, str) else None
    chosen, optional = (stages, NONE) if named is None else (named.stages, named.optional)
    setup = None
    if environment is None and config.env.kind == "market":
        setup = market_setup(config)
        environment = setup.environment
    trainer = Trainer(config, device, chosen, environment=environment, optional=optional)
    if setup is not None:
        trainer.market = setup
    return trainer


def fill(trainer: Trainer) -> Trainer:
    """Collect until learning may start."""
    while trainer.rows < trainer.config.loop.start_steps:
        trainer.collect()
    return trainer


def steps(trainer: Trainer, count: int) -> Trainer:
    """`count` learning steps with a collecting step after each."""
    for _ in range(count):
        trainer.learn()
        trainer.collect()
    return trainer


@dataclass(frozen=True)
class Trajectory:
    """What a run did: the indices of each step, and what it ended with, as bytes by name."""

    indices: tuple[bytes, ...]
    end: dict[str, bytes]


def end_of(trainer: Trainer) -> dict[str, bytes]:
    """Everything that must not depend on the stages, by name."""
    found = {name: values.tobytes() for name, values in trainer.state().items()}
    found["history by step"] = b"".join(
        values.tobytes() for values in trainer.history(trainer.config.loop.epoch_steps).values()
    )
    record = trainer.latest()
    found["record"] = b"" if record is None else record.values.tobytes()
    # Uniform replay on the host keeps no inner nodes.
    if trainer.config.replay.alpha > 0.0 or 1 in trainer.stages:
        found["replay_nodes"] = trainer.workspace.read("replay_nodes").tobytes()
    return found


def trajectory(trainer: Trainer, count: int = 50) -> Trajectory:
    """Fill the replay, take `count` steps, and close the trainer."""
    fill(trainer)
    indices = []
    for _ in range(count):
        trainer.learn()
        indices.append(trainer.indices().tobytes())
        trainer.collect()
    end = end_of(trainer)
    trainer.close()
    return Trajectory(tuple(indices), end)
