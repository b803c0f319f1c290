"""The Q network: a trunk of blocks and a head, as ops over flat parameters.

Letters: B rows, Sp padded input width, H width of the trunk's output, A actions. The head's matrix
is [B, A] (values), or [B, A + 1] when dueling: advantages, then the state value (Wang et al. 2016,
"Dueling network architectures", equation 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.device import HostDevice
from onegraph.stages.program import Buffer, Phase, Ref, StepProgram
from onegraph.stages.runner import Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.blocks.emit import Block, Emit, linear_tensors
from onegraph.trainer.blocks.hidden import HiddenLayers
from onegraph.trainer.blocks.layout import Layout
from onegraph.trainer.config import NetworkConfig


def padded_width(width: int) -> int:
    """Sp: the next multiple of 8 of a state's width."""
    return -(-width // 8) * 8


@dataclass(frozen=True)
class QNetwork:
    """Shape of the network, and the ops that run it forward and backward."""

    observation_width: int
    actions: int
    config: NetworkConfig

    @property
    def inputs(self) -> int:
        """Sp."""
        return padded_width(self.observation_width)

    @property
    def stride(self) -> int:
        """Columns of the head's matrix."""
        return self.actions + int(self.config.dueling)

    @property
    def width(self) -> int:
        """H."""
        return self.trunk[-1].out_width

    @cached_property
    def trunk(self) -> tuple[Block, ...]:
        """The blocks between the input and the head."""
        return (HiddenLayers(self.inputs, self.observation_width, self.config.hidden),)

    @cached_property
    def layout(self) -> Layout:
        """Where the parameters stand."""
        head = linear_tensors("head", self.width, self.stride)
        return Layout([*(spec for block in self.trunk for spec in block.tensors()), *head])

    @property
    def size(self) -> int:
        """Floats of the parameter buffer, gaps between tensors included."""
        return self.layout.size

    def initial(self, seed: int) -> NDArray[np.float32]:
        """Parameters [size] before the first step."""
        return self.layout.initial(seed)

    # ---------------------------------------------------------------- ops

    def emit(
        self, prefix: str, rows: int, params: str = "theta", *, training: bool = False
    ) -> Emit:
        """A pass over `rows` rows with parameters from `params`."""
        return Emit(self.layout, prefix, rows, params, training=training)

    def features(self, emit: Emit, x: Ref) -> Ref:
        """From `x` [rows, Sp] through the trunk to [rows, H]."""
        for block in self.trunk:
            x = block.forward(emit, x)
        return x

    def forward(self, emit: Emit, x: Ref) -> Ref:
        """From `x` [rows, Sp] to the head's matrix [rows, stride]."""
        out = emit.buffer("head", (emit.rows, self.stride))
        return emit.linear("head", self.features(emit, x), self.width, self.stride, out)

    def backward(self, emit: Emit, x: Ref, grad_head: Ref) -> None:
        """From the gradient of the head's matrix to those of the parameters, after `forward`."""
        again = self.emit(emit.prefix, emit.rows)  # finds what each block gave by its buffers
        given = [x]
        for block in self.trunk:
            given.append(block.forward(again, given[-1]))
        emit.linear_grad("head", given[-1], grad_head, self.width, self.stride)
        out = emit.buffer(f"grad{len(self.config.hidden) - 1}", (emit.rows, self.width))
        upstream: Ref | None = emit.linear_grad_in(
            "head", grad_head, self.width, self.stride, out, relu_of=given[-1]
        )
        for i, block in reversed(list(enumerate(self.trunk))):
            assert upstream is not None
            upstream = block.backward(emit, given[i], upstream, need_grad_in=i > 0)

    # ---------------------------------------------------------------- on the host

    def q_values(
        self, params: NDArray[np.float32], observations: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Action values [rows, A], computed on the host, for reports and proofs.

        Args:
            params: [size].
            observations: [rows, S] or [rows, Sp].
        """
        emit = self.emit("", len(observations))
        x = np.zeros((len(observations), self.inputs), np.float32)
        x[:, : observations.shape[1]] = observations
        head = self.forward(emit, Ref("x"))
        emit.declare(
            Buffer("x", x.shape, "f32", initial=lambda: x),
            Buffer("theta", (self.size,), "f32", initial=lambda: params),
        )
        program = StepProgram("values", "epoch", (Phase("values", tuple(emit.ops)),), emit.buffers)
        workspace = Workspace(HostDevice())
        workspace.ensure(program.buffers)
        Runner(program, workspace).step()
        values = workspace.read(head.buffer).astype(np.float64)
        if not self.config.dueling:
            return values
        advantage, value = values[:, :-1], values[:, -1:]
        result: NDArray[np.float64] = value + advantage - advantage.mean(axis=1, keepdims=True)
        return result

    def named(self, params: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Parameters by name, weights [fan_out, fan_in] as PyTorch's Linear has them."""
        return {t.name: np.ascontiguousarray(t.values(params).T) for t in self.layout}
