"""Residual blocks with layer normalisation and stochastic depth."""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.kernels.learner.layer_norm_grad import tile_count
from onegraph.stages.program import Buffer, Ref
from onegraph.trainer.blocks.emit import Emit, linear_tensors
from onegraph.trainer.blocks.layout import Group, TensorSpec

#: Scales of the blocks in training passes, by block; drawn anew in each learning step.
DEPTH_SCALE = "depth_scale"

#: Added to the variance before its root, as in PyTorch's LayerNorm.
EPSILON = 1e-5


def draw_depth(emit: Emit, blocks: int, drop: float, seed: int) -> None:
    """Emit the draw of a learning step's masks; it stands after `advance_counters`."""
    emit.declare(Buffer(DEPTH_SCALE, (blocks,), "f32"))
    emit.launch(
        "depth_masks", counters="counters", scale=DEPTH_SCALE, blocks=blocks, drop=drop, seed=seed
    )


@dataclass(frozen=True)
class ResidualBlock:
    """``y = x + s (W2 relu(W1 LN(x) + b1) + b2)`` with LN's scale and shift.

    He et al. 2016 ("Identity mappings in deep residual networks"), with layer normalisation (Ba,
    Kiros & Hinton 2016) in front of the branch. In a training pass s is the block's scale of
    stochastic depth (Huang et al. 2016), which `draw_depth` writes before; it is 1 otherwise.

    Attributes:
        width: of the input, the hidden layer and the output.
        index: of the block, from 0.
        blocks: R, how many there are.
        drop: the probability with which the last block is left out; 0: none ever is.
        after_relu: x is what a ReLU gave; the gradient in x that `backward` returns is then the
            one on the other side of that ReLU, which asks for no node of its own.
    """

    width: int
    index: int
    blocks: int
    drop: float = 0.0
    after_relu: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.blocks:
            raise ValueError(
                f"residual block {self.index} of {self.blocks}; they are numbered from 0"
            )
        if not 0.0 <= self.drop <= 1.0:
            raise ValueError(f"a drop probability of {self.drop}; give one in 0 to 1")

    @property
    def name(self) -> str:
        return f"block.{self.index}"

    @property
    def out_width(self) -> int:
        return self.width

    def tensors(self) -> tuple[TensorSpec, ...]:
        width = (self.width,)
        return (
            TensorSpec(f"{self.name}.norm.scale", width, Group.TRUNK, value=1.0),
            TensorSpec(f"{self.name}.norm.shift", width, Group.TRUNK),
            *linear_tensors(f"{self.name}.linear1", self.width, self.width),
            *linear_tensors(f"{self.name}.linear2", self.width, self.width),
        )

    def _matrix(self, emit: Emit, name: str) -> Ref:
        return emit.buffer(f"{self.name}.{name}", (emit.rows, self.width))

    def _kept(self, emit: Emit) -> tuple[Ref, Ref, Ref, Ref]:
        """What the forward pass leaves for the backward one: LN's output and statistics, ReLU's."""
        return (
            self._matrix(emit, "norm"),
            emit.buffer(f"{self.name}.mean", (emit.rows,)),
            emit.buffer(f"{self.name}.rstd", (emit.rows,)),
            self._matrix(emit, "hidden"),
        )

    def _scale(self, emit: Emit) -> Ref | None:
        """The block's scale, where it is not 1 in every step."""
        if not emit.training or not self.drop:
            return None
        emit.declare(Buffer(DEPTH_SCALE, (self.blocks,), "f32"))
        return Ref(DEPTH_SCALE, self.index, 1)

    def forward(self, emit: Emit, x: Ref) -> Ref:
        """From [rows, width] to [rows, width]."""
        norm, mean, rstd, hidden = self._kept(emit)
        branch, out = self._matrix(emit, "branch"), self._matrix(emit, "out")
        emit.launch(
            "layer_norm",
            x=x,
            scale=emit.param(f"{self.name}.norm.scale"),
            shift=emit.param(f"{self.name}.norm.shift"),
            out=norm,
            mean=mean,
            rstd=rstd,
            rows=emit.rows,
            cols=self.width,
            eps=EPSILON,
        )
        emit.linear(f"{self.name}.linear1", norm, self.width, self.width, hidden, relu=True)
        emit.linear(f"{self.name}.linear2", hidden, self.width, self.width, branch)
        scale = self._scale(emit)
        emit.launch(
            "scaled_add",
            a=x,
            b=branch,
            scale=scale or branch,  # not read unless `scaled`
            out=out,
            n=emit.rows * self.width,
            scaled=int(scale is not None),
        )
        return out

    def backward(self, emit: Emit, x: Ref, grad_out: Ref, *, need_grad_in: bool) -> Ref | None:
        """The gradients of the block's parameters, and of `x` if needed."""
        width = self.width
        norm, mean, rstd, hidden = self._kept(emit)
        grad_branch = grad_out
        if (scale := self._scale(emit)) is not None:
            grad_branch = self._matrix(emit, "grad_branch")
            n = emit.rows * width
            emit.launch("scaled_add_grad", grad_out=grad_out, scale=scale, grad_b=grad_branch, n=n)
        grad_hidden, grad_norm = self._matrix(emit, "grad_hidden"), self._matrix(emit, "grad_norm")
        linear1, linear2 = f"{self.name}.linear1", f"{self.name}.linear2"
        emit.linear_grad(linear2, hidden, grad_branch, width, width)
        emit.linear_grad_in(linear2, grad_branch, width, width, grad_hidden, relu_of=hidden)
        emit.linear_grad(linear1, norm, grad_hidden, width, width)
        emit.linear_grad_in(linear1, grad_hidden, width, width, grad_norm)
        grad_in = self._matrix(emit, "grad_in")
        emit.launch(
            "layer_norm_grad",
            x=x,
            mean=mean,
            rstd=rstd,
            scale=emit.param(f"{self.name}.norm.scale"),
            grad_out=grad_norm,
            residual=grad_out,
            grad_in=grad_in,
            grad_scale=emit.grad(f"{self.name}.norm.scale"),
            grad_shift=emit.grad(f"{self.name}.norm.shift"),
            rows=emit.rows,
            cols=width,
            tiles=tile_count(emit.rows, width),
            with_residual=1,
            after_relu=int(self.after_relu),
            depth=grad_norm,  # neither is touched without `with_branch`
            grad_branch=emit.buffer(f"{self.name}.no_branch", (emit.rows,)),
            with_branch=0,
        )
        return grad_in if need_grad_in else None
