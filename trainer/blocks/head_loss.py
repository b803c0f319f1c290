"""What a head's loss reads of the batch, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.stages.program import Ref


@dataclass(frozen=True)
class HeadBatch:
    """The sampled transitions, each [B]: action i32, the others float32."""

    action: Ref
    reward: Ref
    discount: Ref
    weight: Ref


@dataclass(frozen=True)
class LossBuffers:
    """Where a loss leaves what it finds of each row, float32 [B].

    Attributes:
        td: what the priorities are made of.
        loss: weighted.
        q_taken: value of the action taken.
    """

    td: Ref
    loss: Ref
    q_taken: Ref


@dataclass(frozen=True)
class HeadLoss(LossBuffers):
    """A loss' outputs, float32.

    Attributes:
        grad_head: gradient of the mean loss in the head's matrix, written whole.
    """

    grad_head: Ref
