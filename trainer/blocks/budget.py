"""The gradient budget as ops: no part of the gradient takes more than its share of the norm."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose

import numpy as np

from onegraph.kernels.learner.budget import NORM_COLUMNS, Component
from onegraph.stages.program import Buffer, Launch, Op, Ref
from onegraph.trainer.blocks.layout import Layout


class GradientBudget:
    """Ops that scale the components of the gradient to their shares of `max_norm`, and add them.

    The result's partial sums of squares stand in the buffer `partial` [parts] afterwards:
    `clip_factor` follows without `grad_norm_partial`.

    Args:
        shares: by component; one that is absent has share 0, which removes it.
        max_norm: the norm that the shares are of; 0: no budget, though shares of 0 still remove.
        parts: chunks that the gradient is summed in.
        aux: the buffer of the denoise loss' gradient, where it has one of its own. It is laid out
            like the parameters and zero wherever that loss has no gradient.

    Raises:
        ValueError: shares that are negative or do not sum to 1, or a negative `max_norm`.
    """

    def __init__(
        self,
        layout: Layout,
        shares: Mapping[Component, float],
        max_norm: float,
        *,
        parts: int,
        grad: str = "grad",
        aux: str | None = None,
        partial: str = "norm_partial",
    ) -> None:
        if any(not share >= 0.0 for share in shares.values()) or not max_norm >= 0.0:
            raise ValueError(
                f"the budget's shares and norm are {dict(shares)} and {max_norm}; give numbers from"
                " 0 up"
            )
        total = sum(shares.values())
        if not isclose(total, 1.0, abs_tol=1e-6):
            raise ValueError(
                f"the budget's shares sum to {total}; change {_names(shares)} so that they sum to 1"
            )
        self.layout, self.max_norm, self.parts = layout, max_norm, parts
        self.grad, self.aux, self.partial = grad, aux, partial
        self.shares = np.array([shares.get(c, 0.0) for c in Component])

    def buffers(self) -> tuple[Buffer, ...]:
        """What the ops need beside the gradients and ``adam_ends``.

        ``budget_norms`` and ``budget_scales`` [6] hold the present step's, by `Component`.
        """
        count = len(Component)
        return (
            Buffer("budget_squares", (NORM_COLUMNS, self.parts), "f64"),
            Buffer("budget_shares", (count,), "f64", initial=self.shares.copy),
            Buffer("budget_norms", (count,), "f32"),
            Buffer("budget_scales", (count,), "f32"),
            Buffer(self.partial, (self.parts,), "f64"),
            *(() if self.aux else (Buffer("budget_no_aux", (1,), "f32"),)),
        )

    def ops(self) -> tuple[Op, ...]:
        """Two nodes, after all gradients are written."""
        common: dict[str, Ref | int | float] = {
            "grad": Ref(self.grad),
            "aux": Ref(self.aux or "budget_no_aux"),
            "ends": Ref("adam_ends"),
            "squares": Ref("budget_squares"),
            "n": self.layout.size,
            "parts": self.parts,
            "with_aux": int(self.aux is not None),
        }
        return (
            Launch("component_norms", common),
            Launch(
                "apply_budget",
                common
                | {
                    "shares": Ref("budget_shares"),
                    "norms": Ref("budget_norms"),
                    "scales": Ref("budget_scales"),
                    "partial": Ref(self.partial),
                    "max_norm": self.max_norm,
                },
            ),
        )


def _names(shares: Mapping[Component, float]) -> str:
    return ", ".join(f"{c.name.lower()} ({share})" for c, share in shares.items())
