"""What a peer of the full step starts from, and what one of its steps draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import COUNTERS, Counter
from onegraph.kernels.learner.add_noise import add_noise
from onegraph.kernels.learner.budget import Component
from onegraph.kernels.learner.depth_masks import depth_masks
from onegraph.kernels.learner.iqn_cosines import TauUse, quantile_levels
from onegraph.trainer.bench import BenchSubject
from onegraph.trainer.config import Config

from ..problem import InitialState, PeerSpec, PeerUnavailableError


@dataclass(frozen=True)
class FullSpec(PeerSpec):
    """Sizes and constants of the full step, by the names that our config has for them.

    Attributes:
        shares: of the gradient's norm, by `Component`.
    """

    weight_decay: float
    attention_groups: int
    attention_heads: int
    gate_l1: float
    residual_blocks: int
    drop_path: float
    spectral_cap: float
    quantiles: int
    target_quantiles: int
    cosines: int
    kappa: float
    ready_low: float
    ready_high: float
    ready_decay: float
    iql_hidden: int
    expectile_high: float
    expectile_low: float
    modulate_k: float
    modulate_low: float
    modulate_high: float
    modulate_eps: float
    denoise_hidden: int
    denoise_sigma: float
    denoise_weight: float
    shares: tuple[float, ...]

    @property
    def rows(self) -> int:
        return 2 * self.batch


@dataclass(frozen=True)
class FullState(InitialState):
    """Attributes:
    vectors: u [fan_in] and v [fan_out] of each matrix that is normalised, by its name.
    """

    vectors: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]


@dataclass(frozen=True)
class Draws:
    """The random numbers of a step, when they are given to a peer.

    Attributes:
        index: rows of the batch, then of the vaccine batch [2 B].
        online: quantile levels of the online network on s [2 B, Q].
        select: of the online network on s' [2 B, Q].
        target: of the target network on s' [2 B, Q'].
        aux: of the target network on the batch's s [B, Q'].
        noise: standard normal [B, S].
        depth: scales of the residual blocks [R].
    """

    index: NDArray[np.integer[Any]]
    online: NDArray[np.float32]
    select: NDArray[np.float32]
    target: NDArray[np.float32]
    aux: NDArray[np.float32]
    noise: NDArray[np.float32]
    depth: NDArray[np.float32]


def is_full(config: Config) -> bool:
    """Whether the step has parts that only the full peers have."""
    network, learn, aux = config.network, config.learn, config.aux
    return bool(
        network.head != "dqn"
        or network.gate
        or network.attention_groups
        or network.residual_blocks
        or network.spectral_cap
        or network.noisy
        or aux.iql
        or aux.denoise
        or learn.vaccine
        or learn.budget.on
        or learn.weight_decay
    )


def require_full(subject: BenchSubject) -> None:
    """Refuse a step that has only some of the parts.

    Raises:
        PeerUnavailableError: the field is named.
    """
    config = subject.config
    network, learn, aux = config.network, config.learn, config.aux
    wanted: Mapping[str, tuple[Any, Any]] = {
        "network.gate": (network.gate, True),
        "network.attention_groups > 0": (network.attention_groups > 0, True),
        "network.residual_blocks > 0": (network.residual_blocks > 0, True),
        "network.drop_path > 0": (network.drop_path > 0, True),
        "network.spectral_cap > 0": (network.spectral_cap > 0, True),
        "network.head": (network.head, "iqn"),
        "network.noisy": (network.noisy, False),
        "network.iqn.readiness": (network.iqn.readiness, True),
        "aux.iql": (aux.iql, True),
        "aux.modulate": (aux.modulate, True),
        "aux.denoise": (aux.denoise, True),
        "learn.vaccine": (learn.vaccine, True),
        "learn.budget.on": (learn.budget.on, True),
        "states % 8": (subject.states % 8, 0),
    }
    for name, (given, needed) in wanted.items():
        if given != needed:
            raise PeerUnavailableError(
                f"the peers of the full step are written for {name} = {needed}, not {given}"
            )


def full_problem(
    subject: BenchSubject, spec: PeerSpec, initial: InitialState
) -> tuple[FullSpec, FullState]:
    """The full step's problem, given what it has in common with any step.

    Raises:
        PeerUnavailableError: the subject asks for what no peer does.
    """
    require_full(subject)
    config = subject.config
    network, learn, aux, iqn = config.network, config.learn, config.aux, config.network.iqn
    budget = learn.budget
    shares = {
        Component.Q: budget.q,
        Component.IQL_HIGH: budget.iql_high,
        Component.IQL_LOW: budget.iql_low,
        Component.DENOISE: budget.denoise,
        Component.ATTENTION: budget.attention,
        Component.SELECTIVITY: budget.selectivity,
    }
    head = subject.network.iqn
    assert head is not None
    full = FullSpec(
        **vars(spec),
        weight_decay=learn.weight_decay,
        attention_groups=network.attention_groups,
        attention_heads=network.attention_heads,
        gate_l1=network.gate_l1,
        residual_blocks=network.residual_blocks,
        drop_path=network.drop_path,
        spectral_cap=network.spectral_cap,
        quantiles=iqn.quantiles,
        target_quantiles=iqn.target_quantiles,
        cosines=head.cosines,
        kappa=iqn.kappa,
        ready_low=iqn.ready_low,
        ready_high=iqn.ready_high,
        ready_decay=iqn.ready_decay,
        iql_hidden=aux.iql_hidden,
        expectile_high=aux.expectile_high,
        expectile_low=aux.expectile_low,
        modulate_k=aux.modulate_k,
        modulate_low=aux.modulate_low,
        modulate_high=aux.modulate_high,
        modulate_eps=aux.modulate_eps,
        denoise_hidden=aux.denoise_hidden,
        denoise_sigma=aux.denoise_sigma,
        denoise_weight=aux.denoise_weight,
        shares=tuple(shares[c] for c in Component),
    )
    return full, FullState(**vars(initial), vectors=_vectors(subject))


def _vectors(
    subject: BenchSubject,
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    network = subject.network
    spectral = network.spectral
    assert spectral is not None
    flat = spectral.initial_vectors(network.initial(subject.config.seed))
    online = zip(spectral.names, spectral.matrices, strict=False)  # the target's follow
    return {name: matrix.uv(flat) for name, matrix in online}


def draws_of(subject: BenchSubject, step: int, index: NDArray[np.integer[Any]]) -> Draws:
    """What our learning step number `step` (from 0) draws, with the rows `index` [2 B] given."""
    config, b = subject.config, subject.config.learn.batch_size
    seed, network, width = config.seed, config.network, subject.states
    counters = np.zeros(COUNTERS, np.int64)
    counters[Counter.RNG] = step + 1  # as the kernels find it, advanced

    def levels(rows: int, per_row: int, use: TauUse) -> NDArray[np.float32]:
        return quantile_levels(seed, rows * per_row, step, use).reshape(rows, per_row)

    noise = np.zeros((b, width), np.float32)
    add_noise(
        np.zeros(b * width, np.float32),
        counters,
        noise.reshape(-1),
        rows=b,
        width=width,
        padded=width,
        sigma=1.0,
        seed=seed,
    )
    depth = np.zeros(network.residual_blocks, np.float32)
    depth_masks(counters, depth, blocks=network.residual_blocks, drop=network.drop_path, seed=seed)
    iqn = network.iqn
    return Draws(
        index=index,
        online=levels(2 * b, iqn.quantiles, TauUse.ONLINE),
        select=levels(2 * b, iqn.quantiles, TauUse.SELECT),
        target=levels(2 * b, iqn.target_quantiles, TauUse.TARGET),
        aux=levels(b, iqn.target_quantiles, TauUse.TARGET),
        noise=noise,
        depth=depth,
    )
