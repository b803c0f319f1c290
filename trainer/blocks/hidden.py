"""Hidden layers: linear maps, each followed by a ReLU."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from onegraph.stages.program import Ref
from onegraph.trainer.blocks.emit import Emit, linear_tensors
from onegraph.trainer.blocks.layout import TensorSpec


@dataclass(frozen=True)
class HiddenLayers:
    """A multilayer perceptron without its head.

    Attributes:
        width: of the input, padding included.
        real_width: of the input without its padding.
        widths: of the layers.
    """

    width: int
    real_width: int
    widths: tuple[int, ...]

    @property
    def out_width(self) -> int:
        return self.widths[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the linear layers."""
        return tuple(f"hidden.{i}" for i in range(len(self.widths)))

    def _layers(self) -> list[tuple[str, int, int]]:
        fans = pairwise((self.width, *self.widths))
        return [(name, *fan) for name, fan in zip(self.names, fans, strict=True)]

    def tensors(self) -> tuple[TensorSpec, ...]:
        return tuple(
            spec
            for i, (name, fan_in, fan_out) in enumerate(self._layers())
            for spec in linear_tensors(name, fan_in, fan_out, real_in=0 if i else self.real_width)
        )

    def _outputs(self, emit: Emit) -> list[Ref]:
        return [emit.buffer(str(i), (emit.rows, width)) for i, width in enumerate(self.widths)]

    def forward(self, emit: Emit, x: Ref) -> Ref:
        """From [rows, width] to [rows, out_width]."""
        for (name, fan_in, fan_out), out in zip(self._layers(), self._outputs(emit), strict=True):
            x = emit.linear(name, x, fan_in, fan_out, out, relu=True)
        return x

    def backward(self, emit: Emit, x: Ref, grad_out: Ref, *, need_grad_in: bool) -> Ref | None:
        """The gradients; `grad_out` is zero where the last layer's output is not above zero."""
        inputs = [x, *self._outputs(emit)]
        upstream: Ref | None = grad_out
        for i, (name, fan_in, fan_out) in reversed(list(enumerate(self._layers()))):
            assert upstream is not None
            emit.linear_grad(name, inputs[i], upstream, fan_in, fan_out)
            if i:
                out = emit.buffer(f"grad{i - 1}", (emit.rows, fan_in))
                emit.linear_grad_in(name, upstream, fan_in, fan_out, out, relu_of=inputs[i])
                upstream = out
            elif need_grad_in:
                out = emit.buffer("grad_in", (emit.rows, fan_in))
                upstream = emit.linear_grad_in(name, upstream, fan_in, fan_out, out)
            else:
                upstream = None
        return upstream
