"""What a peer starts from: the sizes and constants of the step, the weights and the full replay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.replay.nstep_assemble import nstep_assemble
from onegraph.trainer.bench import BenchSubject
from onegraph.trainer.network import QNetwork

Precision = Literal["float32", "tf32"]


class PeerUnavailableError(RuntimeError):
    """A peer that can't run here; the message says what is missing."""


@dataclass(frozen=True)
class PeerSpec:
    """Sizes and constants.

    Attributes:
        device: where the peer runs: "cpu" or "cuda".
        precision: of float32 matrix products: IEEE float32, or TF32 on the matrix units.
        beta, tau, lr: constants here.
    """

    device: Literal["cpu", "cuda"]
    precision: Precision
    batch: int
    states: int
    hidden: tuple[int, ...]
    actions: int
    capacity: int
    alpha: float
    eps: float
    beta: float
    tau: float
    lr: float
    adam_beta1: float
    adam_beta2: float
    adam_eps: float
    max_grad_norm: float
    huber_delta: float
    seed: int

    @property
    def rows(self) -> int:
        """Rows drawn a step."""
        return self.batch

    @property
    def fan_out(self) -> int:
        """Children of a node of the two-level sum tree."""
        return math.isqrt(self.capacity - 1) + 1

    @property
    def tree_rows(self) -> int:
        """Nodes of the level below the root."""
        return -(-self.capacity // self.fan_out)

    def at(self, precision: Precision) -> PeerSpec:
        """The same at another precision."""
        return replace(self, precision=precision)

    def padded_leaves(self, leaves: NDArray[np.float32]) -> NDArray[np.float32]:
        """The leaves [rows, fan_out] of the tree, zeros behind the capacity."""
        padded = np.zeros(self.tree_rows * self.fan_out, np.float32)
        padded[: leaves.size] = leaves
        return padded.reshape(self.tree_rows, self.fan_out)


@dataclass(frozen=True)
class InitialState:
    """Weights and replay: n-step transitions [N], states [N, S], priorities [N].

    Attributes:
        weights: by name, weights [fan_out, fan_in] and biases, in the order of the layers.
    """

    weights: dict[str, NDArray[np.float32]]
    states: NDArray[np.float32]
    actions: NDArray[np.int32]
    returns: NDArray[np.float32]
    discounts: NDArray[np.float32]
    next_states: NDArray[np.float32]
    leaves: NDArray[np.float32]


def named_parameters(
    network: QNetwork, theta: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    """Our flat parameters by name, without the padding of the first layer."""
    named = network.named(theta)
    first = next(iter(named))
    named[first] = np.ascontiguousarray(named[first][:, : network.observation_width])
    return named


def common_problem(subject: BenchSubject, device_kind: str) -> tuple[PeerSpec, InitialState]:
    """What a peer of `subject`'s step starts from, on the GPU or on the host.

    The parts that only the full preset has are left out; `full.problem` adds them.

    Raises:
        PeerUnavailableError: the subject asks for what no peer does.
    """
    config = subject.config
    learn, per = config.learn, config.replay
    wanted: Mapping[str, tuple[Any, Any]] = {
        "network.dueling": (config.network.dueling, True),
        "network.double": (config.network.double, True),
        "learn.loss": (learn.loss, "huber"),
        "hindsight.strategy": (config.hindsight.strategy, "none"),
        "learn.target": (learn.target, "soft"),
        "learn.tau.kind": (learn.tau.kind, "constant"),
        "learn.lr.kind": (learn.lr.kind, "constant"),
        "learn.lr.warm_up_steps": (learn.lr.warm_up_steps, 0),
        "replay.stratified": (per.stratified, True),
        "replay.beta_end": (per.beta_end, per.beta_start),
    }
    require(wanted)
    if learn.max_grad_norm == 0.0:
        raise PeerUnavailableError("the peers clip the gradient; learn.max_grad_norm = 0 does not")
    return spec_of(subject, device_kind), initial_of(subject)


def require(wanted: Mapping[str, tuple[Any, Any]]) -> None:
    """Refuse a field that is not what the peers are written for.

    Args:
        wanted: what a field is, and what it must be, by its name.

    Raises:
        PeerUnavailableError: the field is named.
    """
    for name, (given, needed) in wanted.items():
        if given != needed:
            raise PeerUnavailableError(f"the peers are written for {name} = {needed}, not {given}")


def spec_of(subject: BenchSubject, device_kind: str) -> PeerSpec:
    """Sizes and constants of `subject`, in float32."""
    learn, per = subject.config.learn, subject.config.replay
    return PeerSpec(
        device="cuda" if device_kind == "cuda" else "cpu",
        precision="float32",
        batch=learn.batch_size,
        states=subject.states,
        hidden=subject.config.network.hidden,
        actions=subject.network.actions,
        capacity=per.capacity,
        alpha=per.alpha,
        eps=per.eps,
        beta=per.beta_start,
        tau=learn.tau.start,
        lr=learn.lr.start,
        adam_beta1=learn.adam_beta1,
        adam_beta2=learn.adam_beta2,
        adam_eps=learn.adam_eps,
        max_grad_norm=learn.max_grad_norm,
        huber_delta=learn.huber_delta,
        seed=subject.config.seed,
    )


def initial_of(subject: BenchSubject) -> InitialState:
    """The weights, and the replay as n-step transitions."""
    content, shapes, network = subject.content, subject.shapes, subject.network
    n, width = shapes.capacity, shapes.width
    last = np.empty(n, np.int32)
    returns, discounts = np.empty(n, np.float32), np.empty(n, np.float32)
    nstep_assemble(
        index=np.arange(n, dtype=np.int32),
        reward=content["replay_reward"],
        flags=content["replay_flags"],
        counters=content["counters"],
        last=last,
        ret=returns,
        discount=discounts,
        n=n,
        lanes=shapes.lanes,
        slots=shapes.slots,
        n_step=subject.config.replay.n_step,
        gamma=subject.config.learn.gamma,
    )
    return InitialState(
        weights=named_parameters(network, network.initial(subject.config.seed)),
        states=np.ascontiguousarray(content["replay_state"][:, :width]),
        actions=content["replay_action"],
        returns=returns,
        discounts=discounts,
        next_states=content["replay_next_state"][last, :width],
        leaves=content["replay_leaves"],
    )
