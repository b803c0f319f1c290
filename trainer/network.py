"""The Q network: a multilayer perceptron with a plain or dueling head, as ops over flat parameters.

Letters: B rows, Sp padded input width, H hidden width, A actions. All parameters of the network lie
in one flat float32 buffer, so that the optimiser and the target update are one kernel each. The
head's matrix is [B, A] (values), or [B, A + 1] when dueling: advantages, then the state value
(Wang et al. 2016, "Dueling network architectures", equation 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import StreamTag
from onegraph.kernels.common.philox import philox_uniform
from onegraph.kernels.learner.gemm_group import groups
from onegraph.stages.program import Buffer, MatmulGroup, MatmulOp, Op, Ref

#: Parameter blocks start at multiples of this many floats, for 16-byte loads with room to spare.
ALIGN = 8


def padded_width(width: int) -> int:
    """Sp: the next multiple of 8 of a state's width."""
    return -(-width // 8) * 8


def together(*products: MatmulOp) -> tuple[Op, ...]:
    """Independent products as one op, or each on its own where one of them is large.

    The longest sums come first: a GPU starts a launch's blocks in this order.
    """
    if groups([(p.m, p.n, p.k) for p in products]):
        return (MatmulGroup(tuple(sorted(products, key=lambda p: -p.k))),)
    return products


@dataclass(frozen=True)
class Layer:
    """A linear layer: weight [fan_in, fan_out] and bias [fan_out], by offset in the parameters."""

    fan_in: int
    fan_out: int
    weight: int
    bias: int

    def weight_of(self, params: str) -> Ref:
        return Ref(params, self.weight, self.fan_in * self.fan_out)

    def bias_of(self, params: str) -> Ref:
        return Ref(params, self.bias, self.fan_out)


@dataclass(frozen=True)
class QNetwork:
    """Shape of the network, and the ops that run it forward and backward."""

    observation_width: int
    hidden: tuple[int, ...]
    actions: int
    dueling: bool

    @property
    def inputs(self) -> int:
        """Sp."""
        return padded_width(self.observation_width)

    @property
    def stride(self) -> int:
        """Columns of the head's matrix."""
        return self.actions + int(self.dueling)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        widths = (self.inputs, *self.hidden, self.stride)
        layers, offset = [], 0
        for fan_in, fan_out in pairwise(widths):
            weight = offset
            bias = weight + -(-fan_in * fan_out // ALIGN) * ALIGN
            offset = bias + -(-fan_out // ALIGN) * ALIGN
            layers.append(Layer(fan_in, fan_out, weight, bias))
        return tuple(layers)

    @property
    def size(self) -> int:
        """Floats of the parameter buffer, gaps between blocks included."""
        last = self.layers[-1]
        return last.bias + -(-last.fan_out // ALIGN) * ALIGN

    def initial(self, seed: int) -> NDArray[np.float32]:
        """Parameters [size]: uniform within 1/sqrt(fan_in) (as PyTorch's Linear), padding zero."""
        params = np.zeros(self.size, np.float32)
        for i, layer in enumerate(self.layers):
            real = self.observation_width if i == 0 else layer.fan_in
            count = (real + 1) * layer.fan_out
            draws = philox_uniform(seed, np.arange(count), i, StreamTag.INIT)[:, 0]
            values = ((2.0 * draws - 1.0) / np.sqrt(real)).astype(np.float32)
            split = real * layer.fan_out
            params[layer.weight : layer.weight + split] = values[:split]
            params[layer.bias : layer.bias + layer.fan_out] = values[split:]
        return params

    def activations(self, prefix: str, rows: int) -> tuple[Buffer, ...]:
        """Buffers of one forward pass: ``prefix0`` … hidden outputs, and ``prefixhead``."""
        hidden = tuple(Buffer(f"{prefix}{i}", (rows, h), "f32") for i, h in enumerate(self.hidden))
        return (*hidden, Buffer(f"{prefix}head", (rows, self.stride), "f32"))

    def forward(
        self, params: str, inputs: str, prefix: str, rows: int, group: str = ""
    ) -> tuple[Op, ...]:
        """Ops from `inputs` [rows, Sp] to ``prefixhead`` [rows, stride]."""
        return tuple(replace(op, group=group) for op in self._layers(params, inputs, prefix, rows))

    def forward_together(self, passes: Sequence[tuple[str, str, str]], rows: int) -> tuple[Op, ...]:
        """Passes over the same number of rows, layer by layer: ``(params, inputs, prefix)`` each.

        A layer of all of them is one op where its matrices are small.
        """
        layers = [self._layers(*one, rows) for one in passes]
        return tuple(op for same in zip(*layers, strict=True) for op in together(*same))

    def _layers(self, params: str, inputs: str, prefix: str, rows: int) -> list[MatmulOp]:
        ops: list[MatmulOp] = []
        source = inputs
        for i, layer in enumerate(self.layers):
            last = i == len(self.layers) - 1
            target = f"{prefix}head" if last else f"{prefix}{i}"
            ops.append(
                MatmulOp(
                    rows,
                    layer.fan_out,
                    layer.fan_in,
                    Ref(source),
                    layer.weight_of(params),
                    Ref(target),
                    layer.bias_of(params),
                    epilogue="bias" if last else "bias_relu",
                )
            )
            source = target
        return ops

    def backward_buffers(self, rows: int) -> tuple[Buffer, ...]:
        """Gradients with respect to the hidden outputs."""
        return tuple(Buffer(f"grad{i}", (rows, h), "f32") for i, h in enumerate(self.hidden))

    def backward(
        self, params: str, grads: str, inputs: str, prefix: str, rows: int, grad_head: str
    ) -> tuple[Op, ...]:
        """Ops from `grad_head` [rows, stride] to `grads` [size], for the pass of `prefix`.

        A layer's gradients, of its parameters and of its input, are one op where they are small.
        """
        ops: list[Op] = []
        upstream = grad_head
        for i in reversed(range(len(self.layers))):
            layer = self.layers[i]
            source = inputs if i == 0 else f"{prefix}{i - 1}"
            of_parameters = MatmulOp(
                layer.fan_in,
                layer.fan_out,
                rows,
                Ref(source),
                Ref(upstream),
                layer.weight_of(grads),
                layer.bias_of(grads),
                trans_a=True,
                epilogue="bias_grad",
            )
            if i == 0:
                ops.append(of_parameters)
                break
            of_input = MatmulOp(
                rows,
                layer.fan_in,
                layer.fan_out,
                Ref(upstream),
                layer.weight_of(params),
                Ref(f"grad{i - 1}"),
                Ref(source),
                trans_b=True,
                epilogue="relu_grad",
            )
            ops += together(of_input, of_parameters)
            upstream = f"grad{i - 1}"
        return tuple(ops)

    def q_values(
        self, params: NDArray[np.float32], observations: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Action values [rows, A] on the host in float64, for reports and proofs.

        Args:
            params: [size].
            observations: [rows, S] or [rows, Sp].
        """
        x = np.zeros((len(observations), self.inputs))
        x[:, : observations.shape[1]] = observations
        for i, layer in enumerate(self.layers):
            weight, bias = _block(params, layer)
            x = x @ weight + bias
            if i < len(self.layers) - 1:
                x = np.maximum(x, 0.0)
        if not self.dueling:
            return x
        advantage, value = x[:, :-1], x[:, -1:]
        result: NDArray[np.float64] = value + advantage - advantage.mean(axis=1, keepdims=True)
        return result

    def named(self, params: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Weights and biases by name, weights [fan_out, fan_in] as PyTorch's Linear has them."""
        out: dict[str, NDArray[np.float32]] = {}
        names: Sequence[str] = [f"hidden.{i}" for i in range(len(self.hidden))] + ["head"]
        for name, layer in zip(names, self.layers, strict=True):
            weight, bias = _block(params, layer)
            out[f"{name}.weight"] = np.ascontiguousarray(weight.T)
            out[f"{name}.bias"] = bias.copy()
        return out


def _block(
    params: NDArray[np.float32], layer: Layer
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    end = layer.weight + layer.fan_in * layer.fan_out
    weight = params[layer.weight : end].reshape(layer.fan_in, layer.fan_out)
    return weight, params[layer.bias : layer.bias + layer.fan_out]
