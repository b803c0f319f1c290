"""The Q network: a trunk of blocks and its heads, as ops over flat parameters.

Letters: B rows, Sp padded input width, H width of the trunk's output, A actions. A matrix of action
values is [B, A], or [B, A + 1] when dueling: advantages, then the state value (Wang et al. 2016,
"Dueling network architectures", equation 9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import COUNTERS
from onegraph.kernels.device import HostDevice
from onegraph.kernels.learner.attention_core import MAX_GROUPS
from onegraph.kernels.learner.categorical import action_logits, softmax_parts
from onegraph.kernels.learner.iqn_cosines import TauUse, cosine_features
from onegraph.kernels.learner.noisy import NoisyPass
from onegraph.stages.program import Buffer, Launch, Phase, Ref, StepProgram, merge_buffers
from onegraph.stages.runner import Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.blocks.attention import GroupAttention
from onegraph.trainer.blocks.c51 import C51Head
from onegraph.trainer.blocks.denoise import Denoise
from onegraph.trainer.blocks.emit import Block, Emit, linear_tensors
from onegraph.trainer.blocks.gate import SelectivityGate
from onegraph.trainer.blocks.hidden import HiddenLayers
from onegraph.trainer.blocks.iql import ValueNetworks
from onegraph.trainer.blocks.iqn import IqnHead, Readiness
from onegraph.trainer.blocks.layout import Layout, TensorSpec
from onegraph.trainer.blocks.noisy import NoisyLayers
from onegraph.trainer.blocks.residual import ResidualBlock
from onegraph.trainer.blocks.spectral import SpectralNorm
from onegraph.trainer.config import AuxConfig, Config, MismatchError, NetworkConfig

#: A pass through the network: whose parameters it reads, and which draws are its own.
Pass = TauUse

_NOISE = {
    Pass.ONLINE: NoisyPass.ONLINE,
    Pass.SELECT: NoisyPass.SELECT,
    Pass.TARGET: NoisyPass.TARGET,
    Pass.ACT: NoisyPass.ACT,
}


def padded_width(width: int) -> int:
    """Sp: the next multiple of 8 of a state's width."""
    return -(-width // 8) * 8


def _check_attention(config: Config, width: int) -> None:
    """Whether the groups divide the padded width, and the heads that of a group."""
    groups, heads = config.network.attention_groups, config.network.attention_heads
    if not groups:
        return
    if width % groups:
        problem = (
            f"{groups} groups do not divide the {width} features of a state, padding included; use"
            f" {_divisors(width)}, or 0 for no attention"
        )
        raise MismatchError(config, "network.attention_groups", problem)
    token = width // groups
    if token % heads:
        problem = (
            f"{heads} heads do not divide the {token} features of a group ({width} features,"
            f" network.attention_groups = {groups}); use {_divisors(token)}"
        )
        raise MismatchError(config, "network.attention_heads", problem)


def _divisors(width: int) -> str:
    """Of a number of features, as far as there may be so many groups or heads."""
    found = [str(n) for n in range(1, min(width, MAX_GROUPS) + 1) if width % n == 0]
    return " or ".join(found) if len(found) < 3 else f"{', '.join(found[:-1])} or {found[-1]}"


class Observed(Protocol):
    """What a network has to know of an environment."""

    @property
    def observation_width(self) -> int: ...

    @property
    def actions(self) -> int: ...


@dataclass(frozen=True)
class Outputs:
    """Where a pass left its results.

    Attributes:
        features: of the trunk [B, H].
        plain: matrix of action values; None where the network has no such head.
        distribution: quantiles [B Q, A + d] or logits [B, (A + d) atoms]; None likewise.
    """

    features: Ref
    plain: Ref | None = None
    distribution: Ref | None = None


@dataclass(frozen=True)
class QNetwork:
    """Shape of the networks, and the ops that run them forward and backward.

    Attributes:
        seed: of the first parameters and of the noise.
    """

    observation_width: int
    actions: int
    config: NetworkConfig
    aux: AuxConfig = AuxConfig()  # noqa: RUF009  frozen
    seed: int = 0

    @classmethod
    def of(cls, config: Config, environment: Observed) -> QNetwork:
        """The network of a run.

        Raises:
            MismatchError: attention that does not divide the environment's features.
        """
        _check_attention(config, padded_width(environment.observation_width))
        return cls(
            environment.observation_width,
            environment.actions,
            config.network,
            config.aux,
            config.seed,
        )

    @property
    def inputs(self) -> int:
        """Sp."""
        return padded_width(self.observation_width)

    @property
    def dueling(self) -> bool:
        """Whether a matrix of action values has a column for the state value."""
        return self.config.dueling and self.c51 is None

    @property
    def stride(self) -> int:
        """Columns of a matrix of action values."""
        return self.actions + int(self.dueling)

    @property
    def width(self) -> int:
        """H."""
        return self.trunk[-1].out_width

    # ---------------------------------------------------------------- parts

    @cached_property
    def trunk(self) -> tuple[Block, ...]:
        """The blocks between the input and the heads."""
        config, blocks = self.config, list[Block]()
        if config.gate:
            blocks.append(SelectivityGate(self.inputs, self.observation_width, config.gate_l1))
        if config.attention_groups:
            groups, heads = config.attention_groups, config.attention_heads
            blocks.append(GroupAttention(self.inputs, groups, heads))
        blocks.append(HiddenLayers(self.inputs, self.observation_width, config.hidden))
        width, count = config.hidden[-1], config.residual_blocks
        for i in range(count):
            blocks.append(ResidualBlock(width, i, count, config.drop_path, after_relu=i == 0))
        return tuple(blocks)

    @cached_property
    def plain(self) -> bool:
        """Whether it has the plain head, which values actions at once."""
        config = self.config
        return config.head == "dqn" or (config.head == "iqn" and config.iqn.readiness)

    @cached_property
    def iqn(self) -> IqnHead | None:
        """The quantile head."""
        config, iqn = self.config, self.config.iqn
        if config.head != "iqn":
            return None
        ready = Readiness(iqn.ready_decay, iqn.ready_low, iqn.ready_high)
        return IqnHead(
            self.width,
            self.actions,
            config.dueling,
            iqn.quantiles,
            iqn.target_quantiles,
            kappa=iqn.kappa,
            seed=self.seed,
            readiness=ready if iqn.readiness else None,
        )

    @cached_property
    def c51(self) -> C51Head | None:
        """The categorical head."""
        config, c51 = self.config, self.config.c51
        if config.head != "c51":
            return None
        return C51Head(
            self.trunk[-1].out_width, self.actions, config.dueling, c51.atoms, c51.v_min, c51.v_max
        )

    @cached_property
    def value_networks(self) -> ValueNetworks | None:
        """The two networks of implicit Q-learning."""
        aux = self.aux
        if not aux.iql:
            return None
        return ValueNetworks(
            self.inputs,
            aux.iql_hidden,
            aux.expectile_high,
            aux.expectile_low,
            real_width=self.observation_width,
        )

    @cached_property
    def denoise(self) -> Denoise | None:
        """The decoder of noised states."""
        aux = self.aux
        if not aux.denoise:
            return None
        return Denoise(
            self.width,
            aux.denoise_hidden,
            self.observation_width,
            self.inputs,
            aux.denoise_sigma,
            aux.denoise_weight,
        )

    @cached_property
    def _specs(self) -> tuple[TensorSpec, ...]:
        """Every parameter but the noise's sizes."""
        stride = self.actions + int(self.config.dueling)
        parts = (*self.trunk, self.iqn, self.c51, self.value_networks, self.denoise)
        specs = [spec for part in parts if part is not None for spec in part.tensors()]
        if self.plain:
            specs += linear_tensors("head", self.width, stride)
        return tuple(specs)

    @cached_property
    def noisy(self) -> NoisyLayers | None:
        """The heads' layers with noise on their weights."""
        if not self.config.noisy:
            return None
        known = {spec.name for spec in self._specs}
        heads = [name for name in ("head", "iqn.head", "c51.head") if f"{name}.weight" in known]
        return NoisyLayers(heads, self._specs, sigma0=self.config.noisy_sigma, seed=self.seed)

    @cached_property
    def layout(self) -> Layout:
        """Where the parameters stand."""
        return Layout([*self._specs, *(self.noisy.tensors() if self.noisy else ())])

    @cached_property
    def spectral(self) -> SpectralNorm | None:
        """The normalisation of the hidden layers' and blocks' matrices."""
        if not self.config.spectral_cap:
            return None
        names = [
            spec.name
            for block in self.trunk
            if isinstance(block, (HiddenLayers, ResidualBlock))
            for spec in block.tensors()
            if spec.name.endswith(".weight")
        ]
        return SpectralNorm(self.layout, names, cap=self.config.spectral_cap, seed=self.seed)

    @property
    def size(self) -> int:
        """Floats of the parameter buffer, gaps between tensors included."""
        return self.layout.size

    def initial(self, seed: int) -> NDArray[np.float32]:
        """Parameters [size] before the first step."""
        return self.layout.initial(seed)

    def same_parameters(self, other: QNetwork) -> bool:
        """Whether parameters of the other network are parameters of this one."""

        def places(network: QNetwork) -> list[tuple[object, ...]]:
            return [(t.name, t.shape, t.offset) for t in network.layout]

        heads = self.config.attention_heads == other.config.attention_heads
        return heads and places(self) == places(other)

    def state(self) -> tuple[Buffer, ...]:
        """What a run keeps beside the parameters: readiness, the spectral norm's vectors."""
        return (
            *(self.iqn.state() if self.iqn else ()),
            *(self.spectral.state(lambda: self.initial(self.seed)) if self.spectral else ()),
        )

    # ---------------------------------------------------------------- ops

    def emit(self, prefix: str, rows: int, use: Pass) -> Emit:
        """A pass over `rows` rows."""
        target = use == Pass.TARGET
        instead = dict[str, str]()
        if self.spectral:
            instead |= self.spectral.instead(target=target)
        if self.noisy and use in _NOISE:
            instead |= self.noisy.instead(_NOISE[use])
        return Emit(
            self.layout,
            prefix,
            rows,
            "theta_target" if target else "theta",
            training=use == Pass.ONLINE,
            instead=instead,
            precision=self.config.precision,
        )

    def features(self, emit: Emit, x: Ref) -> Ref:
        """From `x` [rows, Sp] through the trunk to [rows, H]."""
        for block in self.trunk:
            x = block.forward(emit, x)
        return x

    def forward(self, emit: Emit, x: Ref, use: Pass) -> Outputs:
        """From `x` [rows, Sp] through trunk and heads."""
        features = self.features(emit, x)
        plain = distribution = None
        if self.plain:
            out = emit.buffer("head", (emit.rows, self.stride))
            plain = emit.linear("head", features, self.width, self.stride, out)
        if self.iqn:
            distribution = self.iqn.forward(emit, features, use)
        elif self.c51:
            distribution = self.c51.forward(emit, features)
        return Outputs(features, plain, distribution)

    def found(self, emit: Emit, x: Ref, use: Pass) -> Outputs:
        """Where the `forward` of this pass, or of the one that this is in, left its results."""
        return self.forward(emit.silent(), x, use)

    def values(self, emit: Emit, outputs: Outputs, use: Pass) -> Ref:
        """The matrix of action values [rows, stride] of a pass."""
        if self.iqn:
            assert outputs.distribution is not None
            return self.iqn.values(emit, outputs.distribution, use, outputs.plain)
        if self.c51:
            assert outputs.distribution is not None
            return self.c51.values(emit, outputs.distribution)
        assert outputs.plain is not None
        return outputs.plain

    def backward(
        self, emit: Emit, x: Ref, outputs: Outputs, grad_plain: Ref | None, grad_dist: Ref | None
    ) -> None:
        """From the gradients of the heads' matrices to those of the parameters."""
        features, upstream = outputs.features, None
        relu = features if isinstance(self.trunk[-1], HiddenLayers) else None
        if self.c51:
            assert grad_dist is not None
            upstream = self.c51.backward(emit, features, grad_dist, relu_of=relu)
        if grad_plain is not None:
            emit.linear_grad("head", features, grad_plain, self.width, self.stride)
            out = emit.buffer(f"grad{len(self.config.hidden) - 1}", (emit.rows, self.width))
            upstream = emit.linear_grad_in(
                "head",
                grad_plain,
                self.width,
                self.stride,
                out,
                relu_of=None if self.iqn else relu,
            )
        if self.iqn:
            assert grad_dist is not None
            upstream = self.iqn.backward(emit, features, grad_dist, add_to=upstream)
        assert upstream is not None
        self.trunk_backward(emit, x, features, upstream, masked=not self.iqn)

    def trunk_backward(
        self, emit: Emit, x: Ref, features: Ref, grad_features: Ref, *, masked: bool = False
    ) -> None:
        """From the gradient of the features to those of the trunk's parameters.

        `masked` says that it is zero already where a ReLU that the trunk ends with is.
        """
        if isinstance(self.trunk[-1], HiddenLayers) and not masked:
            n = emit.rows * self.width
            emit.launch("relu_epilogue", extra=features, out=grad_features, n=n, grad=1)
        given = [x]
        for block in self.trunk:
            given.append(block.forward(emit.silent(), given[-1]))
        upstream: Ref | None = grad_features
        for i, block in reversed(list(enumerate(self.trunk))):
            assert upstream is not None
            upstream = block.backward(emit, given[i], upstream, need_grad_in=i > 0)

    def act(self, emit: Emit, x: Ref, use: Pass) -> Ref:
        """Action values [rows, stride] of `x` for acting or evaluating, with all that they need."""
        self._read_weights(emit, use)
        return self.values(emit, self.forward(emit, x, use), use)

    def _read_weights(self, emit: Emit, use: Pass) -> None:
        """Emit the weights that a pass outside the learning step reads."""
        if self.spectral:
            emit.ops += self.spectral.act_ops()
            emit.declare(*self.spectral.buffers(), *self.state())
        if self.noisy and use == Pass.ACT:
            emit.ops += self.noisy.act_ops(self.layout)
            emit.declare(*self.noisy.buffers(self.layout, [NoisyPass.ACT]))

    # ---------------------------------------------------------------- on the host

    def q_values(
        self,
        params: NDArray[np.float32],
        observations: NDArray[np.float32],
        state: Mapping[str, NDArray[Any]] | None = None,
    ) -> NDArray[np.float64]:
        """Action values [rows, A], computed on the host, for reports and proofs.

        Args:
            params: [size].
            observations: [rows, S] or [rows, Sp].
            state: of a run, by the names of `state`; what is missing is as before the first step.
        """
        emit = self.emit("", len(observations), Pass.EVALUATE)
        values = self.act(emit, Ref("x"), Pass.EVALUATE)
        found = self._on_the_host(emit, values, params, observations, state or {})
        return _combined(found) if self.dueling else found

    def quantiles(
        self,
        params: NDArray[np.float32],
        observations: NDArray[np.float32],
        levels: NDArray[np.float32],
        state: Mapping[str, NDArray[Any]] | None = None,
    ) -> NDArray[np.float64]:
        """Quantiles [rows, A, levels] of each action's return, computed on the host.

        They are the quantile head's own, whatever its readiness.

        Args:
            params: [size].
            observations: [rows, S] or [rows, Sp].
            levels: the fractions tau, each in (0, 1).
            state: as for `q_values`.

        Raises:
            ValueError: the head is not ``iqn``.
        """
        if self.iqn is None:
            raise ValueError(f"network.head = {self.config.head!r} has no quantiles; use 'iqn'")
        rows, tau = len(observations), np.asarray(levels, np.float32)
        head = replace(self.iqn, quantiles=len(tau))
        emit = self.emit("", rows, Pass.EVALUATE)
        self._read_weights(emit, Pass.EVALUATE)
        matrix = head.forward(emit, self.features(emit, Ref("x")), Pass.EVALUATE)
        # The levels are the caller's, so the op that draws some is left out.
        emit.ops = [
            op for op in emit.ops if not (isinstance(op, Launch) and op.kernel == "iqn_cosines")
        ]
        cosines = cosine_features(tau, head.cosines).astype(np.float32)
        drawn = {emit.buffer("iqn.cosines", (rows * len(tau), head.cosines)).buffer: cosines}
        given = {name: np.tile(values, (rows, 1)) for name, values in drawn.items()}
        found = self._on_the_host(emit, matrix, params, observations, {**(state or {}), **given})
        found = _combined(found) if head.dueling else found
        return np.ascontiguousarray(found.reshape(rows, len(tau), self.actions).swapaxes(1, 2))

    def atom_masses(
        self,
        params: NDArray[np.float32],
        observations: NDArray[np.float32],
        state: Mapping[str, NDArray[Any]] | None = None,
    ) -> NDArray[np.float64]:
        """Probabilities [rows, A, atoms] of each action's return, computed on the host.

        Args:
            params: [size].
            observations: [rows, S] or [rows, Sp].
            state: as for `q_values`.

        Raises:
            ValueError: the head is not ``c51``.
        """
        if self.c51 is None:
            raise ValueError(f"network.head = {self.config.head!r} has no atoms; use 'c51'")
        head, rows = self.c51, len(observations)
        emit = self.emit("", rows, Pass.EVALUATE)
        self._read_weights(emit, Pass.EVALUATE)
        matrix = head.forward(emit, self.features(emit, Ref("x")))
        found = self._on_the_host(emit, matrix, params, observations, state or {})
        blocks = found.reshape(rows, -1, head.atoms)
        masses = np.empty((rows, self.actions, head.atoms))
        for action in range(self.actions):
            taken = np.full(rows, action)
            logits = action_logits(blocks, taken, self.actions, int(head.dueling))
            _, e, total = softmax_parts(logits)
            masses[:, action] = e / total[:, None]
        return masses

    def _on_the_host(
        self,
        emit: Emit,
        out: Ref,
        params: NDArray[np.float32],
        observations: NDArray[np.float32],
        state: Mapping[str, NDArray[Any]],
    ) -> NDArray[np.float64]:
        """Run the pass `emit` over the buffer ``x``; what it leaves in `out`."""
        x = np.zeros((len(observations), self.inputs), np.float32)
        x[:, : observations.shape[1]] = observations
        given: dict[str, NDArray[Any]] = {**state, "x": x, "theta": params}
        buffers = merge_buffers(
            emit.buffers,
            self.state(),
            (
                Buffer("x", x.shape, "f32"),
                Buffer("theta", (self.size,), "f32"),
                Buffer("counters", (COUNTERS,), "i64"),
            ),
        )
        program = StepProgram("values", "epoch", (Phase("values", tuple(emit.ops)),), buffers)
        workspace = Workspace(HostDevice())
        workspace.ensure(program.buffers)
        for name, array in given.items():
            if name in workspace.buffers:
                workspace.write(name, np.ascontiguousarray(array))
        Runner(program.pruned(), workspace).step()
        return workspace.read(out.buffer).astype(np.float64)

    def named(self, params: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Parameters by name, weights [fan_out, fan_in] as PyTorch's Linear has them."""
        return {t.name: np.ascontiguousarray(t.values(params).T) for t in self.layout}


def _combined(head: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values [n, A] of a dueling head's matrix [n, A + 1]."""
    advantage, value = head[:, :-1], head[:, -1:]
    result: NDArray[np.float64] = value + advantage - advantage.mean(axis=1, keepdims=True)
    return result
