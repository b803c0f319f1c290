"""The learning step in PyTorch, op by op: what the eager peer runs and the graphed one captures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from .problem import InitialState, PeerSpec, PeerUnavailableError


@contextmanager
def matmul_precision(spec: PeerSpec) -> Iterator[None]:
    """PyTorch's global float32 matmul precision, for as long as the peer's step is being run."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if spec.precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def require_device(spec: PeerSpec) -> torch.device:
    """PyTorch's device of the spec."""
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise PeerUnavailableError(f"torch {torch.__version__} sees no CUDA device")
    return torch.device(spec.device)


def require_cuda(spec: PeerSpec) -> None:
    """Refuse a device that has no CUDA graphs."""
    if spec.device != "cuda":
        raise PeerUnavailableError("CUDA graphs need a GPU")


class Dueling(nn.Module):
    """MLP with one linear head of A advantages and a state value."""

    def __init__(self, spec: PeerSpec, weights: dict[str, NDArray[np.float32]]) -> None:
        super().__init__()
        widths = (spec.states, *spec.hidden)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.head = nn.Linear(spec.hidden[-1], spec.actions + 1)
        self.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = F.relu(layer(x))
        out = self.head(x)
        advantage, value = out[:, :-1], out[:, -1:]
        return value + advantage - advantage.mean(1, keepdim=True)


class Replay:
    """n-step transitions on the device under a two-level sum tree."""

    def __init__(self, spec: PeerSpec, initial: InitialState, device: torch.device) -> None:
        def put(values: NDArray[Any]) -> Tensor:
            return torch.from_numpy(values).to(device)

        self.spec = spec
        self.states, self.next_states = put(initial.states), put(initial.next_states)
        self.actions = put(initial.actions).long()
        self.returns, self.discounts = put(initial.returns), put(initial.discounts)
        self.leaves = put(spec.padded_leaves(initial.leaves))  # [rows, fan_out]
        self.sums = self.leaves.sum(1)  # [rows]
        self.largest = self.leaves.max()
        strata = torch.arange(spec.batch, device=device, dtype=torch.float32)
        self.stratum = strata.repeat(spec.rows // spec.batch)

    def draw(self) -> Tensor:
        """Stratified prioritized indices, a row a stratum and batch: [B], or more batches."""
        fan_out = self.spec.fan_out
        cumulative = self.sums.cumsum(0)
        u = torch.rand(self.spec.rows, device=self.leaves.device)
        at = (self.stratum + u) * (cumulative[-1] / self.spec.batch)
        row = torch.searchsorted(cumulative, at, right=True).clamp_(max=self.sums.numel() - 1)
        at = at - (cumulative[row] - self.sums[row])
        within = self.leaves[row].cumsum(1)
        column = torch.searchsorted(within, at[:, None], right=True)[:, 0].clamp_(max=fan_out - 1)
        return (row * fan_out + column).clamp_(max=self.spec.capacity - 1)

    def weights(self, index: Tensor) -> Tensor:
        """Importance weights of all rows over their largest."""
        share = self.leaves.view(-1)[index] / self.sums.sum()
        weights = (self.spec.capacity * share).pow(-self.spec.beta)
        return weights / weights.max()

    def write_back(self, index: Tensor, td: Tensor) -> None:
        """New leaves, the sums above them, and the largest leaf so far."""
        leaf = (td.abs() + self.spec.eps).pow(self.spec.alpha)
        self.leaves.view(-1).scatter_(0, index, leaf)
        row = index // self.spec.fan_out
        self.sums.scatter_(0, row, self.leaves[row].sum(1))
        torch.maximum(self.largest, leaf.max(), out=self.largest)


class Learner:
    """Networks, optimiser and replay, and one step of them."""

    def __init__(self, spec: PeerSpec, initial: InitialState) -> None:
        self.spec, self.device = spec, require_device(spec)
        torch.manual_seed(spec.seed)
        self.online = Dueling(spec, initial.weights).to(self.device)
        self.target = Dueling(spec, initial.weights).to(self.device).requires_grad_(False)
        self.replay = Replay(spec, initial, self.device)
        self.adam = torch.optim.Adam(
            self.online.parameters(),
            lr=spec.lr,
            betas=(spec.adam_beta1, spec.adam_beta2),
            eps=spec.adam_eps,
            fused=True,
            capturable=spec.device == "cuda",
        )
        self.params = list(self.online.parameters())
        self.target_params = list(self.target.parameters())
        self.last_loss = torch.zeros((), device=self.device)

    def losses(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted mean Huber loss, and the TD errors [B]."""
        replay = self.replay
        q = self.online(replay.states[index]).gather(1, replay.actions[index][:, None])[:, 0]
        with torch.no_grad():
            next_states = replay.next_states[index]
            best = self.online(next_states).argmax(1, keepdim=True)
            value = self.target(next_states).gather(1, best)[:, 0]
            goal = replay.returns[index] + replay.discounts[index] * value
            weights = replay.weights(index)
        huber = F.huber_loss(q, goal, reduction="none", delta=self.spec.huber_delta)
        return (weights * huber).mean(), goal - q.detach()

    def learn(self, index: Tensor) -> None:
        """One step on the rows `index` [B]."""
        loss, td = self.losses(index)
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.params, self.spec.max_grad_norm, foreach=True)
        self.adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.target_params, self.params, self.spec.tau)
            self.replay.write_back(index, td)
            self.last_loss.copy_(loss.detach())

    def upload(self, indices: NDArray[Any]) -> Tensor:
        """Injected indices as the replay takes them."""
        return torch.from_numpy(np.ascontiguousarray(indices, np.int64)).to(self.device)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def loss(self) -> float:
        return float(self.last_loss)

    def parameters(self) -> dict[str, NDArray[Any]]:
        return {name: p.detach().cpu().numpy().copy() for name, p in self.online.named_parameters()}

    def priorities(self) -> NDArray[Any]:
        return self.replay.leaves.view(-1)[: self.spec.capacity].cpu().numpy().copy()
