"""The vaccine projection as ops: no step that the gradient of a second batch speaks against."""

from __future__ import annotations

from onegraph.stages.program import Buffer, Launch, Op, Ref
from onegraph.trainer.blocks.layout import Layout


class VaccineProjection:
    """Ops that project the conflict with the gradient in `vaccine` out of the one in `grad`.

    They stand after the gradient budget: scaling components apart afterwards would undo the
    projection, while the projection never lengthens the gradient. The result's partial sums of
    squares stand in the buffer `partial` [parts] afterwards, as the budget leaves them.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        parts: int,
        grad: str = "grad",
        vaccine: str = "grad_vaccine",
        partial: str = "norm_partial",
    ) -> None:
        self.layout, self.parts = layout, parts
        self.grad, self.vaccine, self.partial = grad, vaccine, partial

    def buffers(self) -> tuple[Buffer, ...]:
        """What the ops need beside the gradients; ``vaccine_removed`` [1] is for the log."""
        return (
            Buffer("vaccine_dots", (2, self.parts), "f64"),
            Buffer("vaccine_removed", (1,), "f32"),
            Buffer(self.partial, (self.parts,), "f64"),
        )

    def ops(self) -> tuple[Op, ...]:
        """Two nodes, after both gradients are written."""
        common: dict[str, Ref | int | float] = {
            "grad": Ref(self.grad),
            "vaccine": Ref(self.vaccine),
            "dots": Ref("vaccine_dots"),
            "n": self.layout.size,
            "parts": self.parts,
        }
        return (
            Launch("vaccine_partial", common),
            Launch(
                "project_gradient",
                common | {"removed": Ref("vaccine_removed"), "partial": Ref(self.partial)},
            ),
        )
