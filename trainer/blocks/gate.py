"""The selectivity gate: every input feature is scaled by how much the network lets it through."""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.kernels.learner.gate_forward import row_parts
from onegraph.stages.program import Ref
from onegraph.trainer.blocks.emit import Emit
from onegraph.trainer.blocks.layout import Group, TensorSpec

LOGIT = "gate.logit"

#: First logit of a gate: nearly open (0.88), where the sigmoid still has a slope (0.10).
INITIAL_LOGIT = 2.0


@dataclass(frozen=True)
class SelectivityGate:
    """``y = sigmoid(logit) x`` for each feature, with the L1 norm of the gates as a penalty.

    Attributes:
        width: of the input and output, padding included (Sp).
        observation_width: of the input without its padding (S); the padding's output is 0.
        l1: the penalty is ``l1 * sum_j sigmoid(logit_j)``, added to the mean loss (0: none).
    """

    width: int
    observation_width: int
    l1: float

    def __post_init__(self) -> None:
        if not 0 < self.observation_width <= self.width:
            raise ValueError(
                f"{self.observation_width} features in a width of {self.width};"
                " give at least one, and no more than the width"
            )
        if not self.l1 >= 0.0:
            raise ValueError(f"an L1 penalty of {self.l1}; give 0 or more")

    @property
    def out_width(self) -> int:
        return self.width

    def tensors(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(LOGIT, (self.width,), Group.SELECTIVITY, value=INITIAL_LOGIT),)

    def forward(self, emit: Emit, x: Ref) -> Ref:
        """From [rows, width] to [rows, width]."""
        out = emit.buffer("gate.out", (emit.rows, self.width))
        emit.launch(
            "gate_forward",
            x=x,
            logit=emit.param(LOGIT),
            out=out,
            rows=emit.rows,
            cols=self.width,
            width=self.observation_width,
            parts=row_parts(emit.rows),
        )
        return out

    def backward(self, emit: Emit, x: Ref, grad_out: Ref, *, need_grad_in: bool) -> Ref | None:
        """The gradients of the logits, the penalty's with them if the pass has it, and of `x`."""
        # The kernel takes an array in any case. Without need it writes nothing: an element a row
        # stands in, so that parts of one pass have none in common and may run at once.
        grad_in = (
            emit.buffer("gate.grad_in", (emit.rows, self.width))
            if need_grad_in
            else emit.buffer("gate.no_grad_in", (emit.rows,))
        )
        emit.launch(
            "gate_backward",
            x=x,
            logit=emit.param(LOGIT),
            grad_out=grad_out,
            grad_logit=emit.grad(LOGIT),
            grad_in=grad_in,
            rows=emit.rows,
            cols=self.width,
            width=self.observation_width,
            l1=self.l1 if emit.penalties else 0.0,
            with_grad_in=int(need_grad_in),
        )
        return grad_in if need_grad_in else None
