"""Ops, and the buffers that they need, gathered as blocks emit them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Protocol

from onegraph.kernels.device.base import Epilogue
from onegraph.kernels.learner.matmul import Precision
from onegraph.stages.program import Buffer, Launch, MatmulOp, Op, ProgramError, Ref
from onegraph.trainer.blocks.layout import Group, Layout, TensorSpec


@dataclass
class Emit:
    """One pass through the network, forward and backward, over `rows` rows.

    Attributes:
        prefix: of the pass' buffers, so that two passes share none.
        rows: of the pass, or of the `part` of it that is meant.
        params: buffer that the pass reads its parameters from.
        grads: buffer that it writes their gradients to.
        training: whether the pass is the one that learns: stochastic depth acts in it alone.
        penalties: whether penalties on parameters are part of the gradients: of the passes whose
            gradients are added up, one has them.
        instead: for tensors that the pass reads from another buffer of the same layout, that
            buffer: normalised or noisy weights.
        precision: of its matrix products, where a device has the choice.
        first, total: for a `part`, its first row and the rows of the whole pass.
    """

    layout: Layout
    prefix: str
    rows: int
    params: str = "theta"
    grads: str = "grad"
    training: bool = False
    penalties: bool = True
    instead: Mapping[str, str] = field(default_factory=dict)
    precision: Precision = "float32"
    first: int = 0
    total: int = 0
    ops: list[Op] = field(default_factory=list)
    _buffers: dict[str, Buffer] = field(default_factory=dict)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What the ops so far need, parameters and gradients left out."""
        return tuple(self._buffers.values())

    def take(self) -> tuple[Op, ...]:
        """The ops since the last call; the buffers stay."""
        ops, self.ops = tuple(self.ops), []
        return ops

    def param(self, name: str) -> Ref:
        """A tensor as this pass reads it."""
        return self.layout[name].of(self.instead.get(name, self.params))

    def grad(self, name: str) -> Ref:
        """Where a tensor's gradient goes: written, not added to."""
        return self.layout[name].of(self.grads)

    def part(self, first: int, rows: int, grads: str = "grad") -> Emit:
        """The same pass, in rows `first` to ``first + rows`` alone, with gradients to `grads`."""
        return replace(
            self, rows=rows, grads=grads, first=first, total=self.total or self.rows, ops=[]
        )

    def silent(self) -> Emit:
        """The same pass, for asking where things stand: what it emits goes nowhere."""
        return replace(self, ops=[])

    def buffer(self, name: str, shape: tuple[int, ...], dtype: str = "f32") -> Ref:
        """A buffer of this pass, of a multiple of `rows` rows; asked for twice it is the same.

        Raises:
            ProgramError: it was asked for with another shape or dtype.
        """
        if not self.total:
            return self.scratch(name, shape, dtype)
        if shape[0] % self.rows:
            raise ProgramError(
                f"buffer {self.prefix + name!r} has {shape[0]} rows in a part of {self.rows}:"
                " a part's buffers hold whole rows; ask for scratch"
            )
        whole = self.scratch(name, (shape[0] // self.rows * self.total, *shape[1:]), dtype)
        return self.rows_of(whole, prod(shape) // self.rows)

    def rows_of(self, whole: Ref, width: int) -> Ref:
        """This part's rows of a buffer [total, width] of the pass."""
        if not self.total:
            return whole
        return Ref(whole.buffer, whole.offset + self.first * width, self.rows * width)

    def scratch(self, name: str, shape: tuple[int, ...], dtype: str = "f32") -> Ref:
        """A buffer of this pass whose size has nothing to do with its rows.

        Raises:
            ProgramError: it was asked for with another shape or dtype.
        """
        buffer = Buffer(self.prefix + name, shape, dtype)
        known = self._buffers.setdefault(buffer.name, buffer)
        if known != buffer:
            raise ProgramError(
                f"buffer {buffer.name!r} is asked for as {buffer.declaration}"
                f" and as {known.declaration}"
            )
        return Ref(buffer.name)

    def declare(self, *buffers: Buffer) -> None:
        """Buffers of others that the ops name."""
        for buffer in buffers:
            self._buffers.setdefault(buffer.name, buffer)

    def launch(self, kernel: str, **args: Ref | float | str) -> None:
        """Launch a catalogue kernel; a string names a whole buffer."""
        self.ops.append(
            Launch(kernel, {k: Ref(v) if isinstance(v, str) else v for k, v in args.items()})
        )

    def matmul(
        self,
        m: int,
        n: int,
        k: int,
        a: Ref,
        b: Ref,
        out: Ref,
        extra: Ref | None = None,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        epilogue: Epilogue = "none",
    ) -> None:
        """``out = epilogue(op(a) @ op(b))``, as `MatmulOp` has it."""
        self.ops.append(
            MatmulOp(
                m,
                n,
                k,
                a,
                b,
                out,
                extra,
                trans_a=trans_a,
                trans_b=trans_b,
                epilogue=epilogue,
                precision=self.precision,
            )
        )

    def linear(
        self,
        name: str,
        x: Ref,
        fan_in: int,
        fan_out: int,
        out: Ref,
        *,
        relu: bool = False,
        rows: int = 0,
    ) -> Ref:
        """``out = x W + b``, with ReLU if asked, over `rows` rows (0: the pass')."""
        weight, bias = self.param(f"{name}.weight"), self.param(f"{name}.bias")
        epilogue: Epilogue = "bias_relu" if relu else "bias"
        self.matmul(rows or self.rows, fan_out, fan_in, x, weight, out, bias, epilogue=epilogue)
        return out

    def linear_grad(
        self, name: str, x: Ref, grad_out: Ref, fan_in: int, fan_out: int, *, rows: int = 0
    ) -> None:
        """Gradients of the weight and of the bias, in one node."""
        self.matmul(
            fan_in,
            fan_out,
            rows or self.rows,
            x,
            grad_out,
            self.grad(f"{name}.weight"),
            self.grad(f"{name}.bias"),
            trans_a=True,
            epilogue="bias_grad",
        )

    def linear_grad_in(
        self,
        name: str,
        grad_out: Ref,
        fan_in: int,
        fan_out: int,
        out: Ref,
        *,
        relu_of: Ref | None = None,
        rows: int = 0,
    ) -> Ref:
        """``out = grad_out Wᵀ``, zero where the activation `relu_of` is not above zero."""
        self.matmul(
            rows or self.rows,
            fan_in,
            fan_out,
            grad_out,
            self.param(f"{name}.weight"),
            out,
            relu_of,
            trans_b=True,
            epilogue="none" if relu_of is None else "relu_grad",
        )
        return out


class Block(Protocol):
    """A map from [rows, width] to [rows, out_width] with parameters.

    `backward` is given the pass of the `forward` before it, or one with its prefix: what the
    forward kept is found by the same buffer names.
    """

    @property
    def out_width(self) -> int: ...

    def tensors(self) -> tuple[TensorSpec, ...]:
        """Its parameters."""

    def forward(self, emit: Emit, x: Ref) -> Ref:
        """Emit the map of `x` [rows, width]; returns where its result stands."""

    def backward(self, emit: Emit, x: Ref, grad_out: Ref, *, need_grad_in: bool) -> Ref | None:
        """Emit the gradients of its parameters, and of `x` if needed."""


def linear_tensors(
    name: str, fan_in: int, fan_out: int, group: Group = Group.TRUNK, *, real_in: int = 0
) -> tuple[TensorSpec, TensorSpec]:
    """Weight and bias of a linear layer, uniform within 1/sqrt(fan_in) as PyTorch's Linear.

    `real_in` is the input's width without its padding, where it has any.
    """
    bound = (real_in or fan_in) ** -0.5
    return (
        TensorSpec(f"{name}.weight", (fan_in, fan_out), group, bound, rows=real_in),
        TensorSpec(f"{name}.bias", (fan_out,), group, bound),
    )
