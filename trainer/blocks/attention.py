"""Multi-head self-attention among groups of features."""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.kernels.learner.attention_core import MAX_GROUPS
from onegraph.stages.program import Ref
from onegraph.trainer.blocks.emit import Emit, linear_tensors
from onegraph.trainer.blocks.layout import Group, TensorSpec


@dataclass(frozen=True)
class GroupAttention:
    """``y = x + W_o attention(W_qkv x)``: a row's features are G tokens of neighbouring features.

    Vaswani et al. 2017 ("Attention is all you need", section 3.2.2), with the residual connection
    of section 3.1. The tokens share the projections and carry no embedding of their place: the
    layers that follow tell the groups apart. The parameters are those of PyTorch's
    `MultiheadAttention`, transposed: ``attn.qkv.weight`` [d, 3 d] has the columns of the queries,
    then of the keys, then of the values.

    Attributes:
        width: of the input and output (Sp).
        groups: G, at most 64; a token has width d = Sp / G.
        heads: a divisor of d.

    Raises:
        ValueError: the width can't be divided so.
    """

    width: int
    groups: int
    heads: int

    def __post_init__(self) -> None:
        if not 1 <= self.groups <= MAX_GROUPS:
            raise ValueError(f"{self.groups} groups of features; give 1 to {MAX_GROUPS}")
        if self.width % self.groups:
            raise ValueError(
                f"a width of {self.width} is not divisible into {self.groups} groups;"
                f" give a divisor of {self.width}"
            )
        if self.heads < 1 or self.token % self.heads:
            raise ValueError(
                f"a token of width {self.token} is not divisible among {self.heads} heads;"
                f" give a divisor of {self.token}"
            )

    @property
    def token(self) -> int:
        """d, the width of a token."""
        return self.width // self.groups

    @property
    def out_width(self) -> int:
        return self.width

    def tensors(self) -> tuple[TensorSpec, ...]:
        d = self.token
        return (
            *linear_tensors("attn.qkv", d, 3 * d, Group.ATTENTION),
            *linear_tensors("attn.out", d, d, Group.ATTENTION),
        )

    def _kept(self, emit: Emit) -> tuple[Ref, Ref, Ref]:
        """What the forward pass leaves for the backward one: qkv, probabilities, heads' output."""
        rows, g, d = emit.rows, self.groups, self.token
        return (
            emit.buffer("attn.qkv", (rows, g, 3 * d)),
            emit.buffer("attn.prob", (rows, self.heads, g, g)),
            emit.buffer("attn.core", (rows, g, d)),
        )

    def _sizes(self, emit: Emit) -> dict[str, int | float]:
        return {
            "rows": emit.rows,
            "groups": self.groups,
            "width": self.token,
            "heads": self.heads,
            "scale": (self.token // self.heads) ** -0.5,
        }

    def _add(self, emit: Emit, a: Ref, b: Ref, name: str) -> Ref:
        out = emit.buffer(name, (emit.rows, self.width))
        # Without `scaled` no scale is read: any buffer does.
        n = emit.rows * self.width
        emit.launch("scaled_add", a=a, b=b, scale=b, out=out, n=n, scaled=0)
        return out

    def forward(self, emit: Emit, x: Ref) -> Ref:
        """From [rows, width] to [rows, width]."""
        d, tokens = self.token, emit.rows * self.groups
        qkv, prob, core = self._kept(emit)
        emit.linear("attn.qkv", x, d, 3 * d, qkv, rows=tokens)
        emit.launch("attention_core", qkv=qkv, out=core, prob=prob, **self._sizes(emit))
        projected = emit.buffer("attn.projected", (emit.rows, self.width))
        emit.linear("attn.out", core, d, d, projected, rows=tokens)
        return self._add(emit, x, projected, "attn.out")

    def backward(self, emit: Emit, x: Ref, grad_out: Ref, *, need_grad_in: bool) -> Ref | None:
        """The gradients of the projections, and of `x` if needed."""
        d, tokens = self.token, emit.rows * self.groups
        qkv, prob, core = self._kept(emit)
        grad_core = emit.buffer("attn.grad_core", (emit.rows, self.groups, d))
        grad_qkv = emit.buffer("attn.grad_qkv", (emit.rows, self.groups, 3 * d))
        emit.linear_grad("attn.out", core, grad_out, d, d, rows=tokens)
        emit.linear_grad_in("attn.out", grad_out, d, d, grad_core, rows=tokens)
        emit.launch(
            "attention_core_grad",
            qkv=qkv,
            prob=prob,
            grad_out=grad_core,
            slope=emit.buffer("attn.slope", (emit.rows, self.heads, self.groups, self.groups)),
            grad_qkv=grad_qkv,
            **self._sizes(emit),
        )
        emit.linear_grad("attn.qkv", x, grad_qkv, d, 3 * d, rows=tokens)
        if not need_grad_in:
            return None
        through = emit.buffer("attn.grad_through", (emit.rows, self.width))
        emit.linear_grad_in("attn.qkv", grad_qkv, d, 3 * d, through, rows=tokens)
        return self._add(emit, grad_out, through, "attn.grad_in")
