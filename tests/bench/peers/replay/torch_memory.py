"""The replay in plain PyTorch: a two-level tree, or prefix sums, over arrays on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from ..torch_learner import Replay
from .problem import Batch, ReplaySpec, ReplayState


class Memory(Replay):
    """Transitions and leaves; how rows are found, and what a new leaf changes, is a subclass's."""

    def __init__(self, spec: ReplaySpec, initial: ReplayState, device: torch.device) -> None:
        super().__init__(spec, initial, device)
        self.stratum = self.stratum.double()
        self.sums = self.leaves.sum(1, dtype=torch.float64)

    def find(self) -> tuple[Tensor, Tensor]:
        """Stratified prioritized rows [B] i64, and the sum of all leaves, float64."""
        raise NotImplementedError

    def thresholds(self, total: Tensor) -> Tensor:
        """One in each of B equal parts of `total`: [B], float64."""
        u = torch.rand(self.spec.batch, device=self.leaves.device)
        return (self.stratum + u) * (total / self.spec.batch)

    def drawn(self) -> Batch:
        """A batch, gathered and weighed."""
        index, total = self.find()
        share = (self.leaves.view(-1)[index] / total).float()
        weights = (self.spec.capacity * share).pow(-self.spec.beta)
        return Batch(
            index,
            weights / weights.max(),
            self.states[index],
            self.next_states[index],
            self.actions[index],
            self.returns[index],
            self.discounts[index],
        )

    def state(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        return [self.leaves, self.sums, self.largest]


class TwoLevelTree(Memory):
    """Leaves in rows of about sqrt(N), and the sums of the rows in float64."""

    def find(self) -> tuple[Tensor, Tensor]:
        fan_out = self.spec.fan_out
        cumulative = self.sums.cumsum(0)
        total = cumulative[-1]
        at = self.thresholds(total)
        row = torch.searchsorted(cumulative, at, right=True).clamp_(max=self.sums.numel() - 1)
        rest = (at - (cumulative[row] - self.sums[row])).float()
        within = self.leaves[row].cumsum(1)
        column = torch.searchsorted(within, rest[:, None], right=True)[:, 0].clamp_(max=fan_out - 1)
        return (row * fan_out + column).clamp_(max=self.spec.capacity - 1), total

    def write_back(self, index: Tensor, td: Tensor) -> None:
        leaf = (td.abs() + self.spec.eps).pow(self.spec.alpha)
        self.leaves.view(-1).scatter_(0, index, leaf)
        row = index // self.spec.fan_out
        self.sums.scatter_(0, row, self.leaves[row].sum(1, dtype=torch.float64))
        torch.maximum(self.largest, leaf.max(), out=self.largest)


class PrefixSums(Memory):
    """No sums are kept: each draw takes the prefix sums of all leaves."""

    def find(self) -> tuple[Tensor, Tensor]:
        cumulative = self.leaves.view(-1).cumsum(0, dtype=torch.float64)
        total = cumulative[-1]
        index = torch.searchsorted(cumulative, self.thresholds(total), right=True)
        return index.clamp_(max=self.spec.capacity - 1), total

    def write_back(self, index: Tensor, td: Tensor) -> None:
        leaf = (td.abs() + self.spec.eps).pow(self.spec.alpha)
        self.leaves.view(-1).scatter_(0, index, leaf)
        torch.maximum(self.largest, leaf.max(), out=self.largest)
