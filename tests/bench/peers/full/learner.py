"""The full step in PyTorch, over tensors that it changes in place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from onegraph.kernels.learner.budget import Component

from ..torch_learner import Replay, require_device
from .network import (
    blend,
    features,
    linear,
    plain_head,
    quantile_head,
    value_of,
    values_of,
)
from .parameters import Parameters
from .problem import Draws, FullSpec, FullState

#: The matrices that are normalised, by the names of `Parameters`.
BLOCKS = "blocks.weight"

#: Of the pieces of `Parameters.component_sizes`, and of the trunk's denoising gradient.
OWNERS = (
    Component.SELECTIVITY,
    Component.ATTENTION,
    Component.Q,
    Component.IQL_HIGH,
    Component.IQL_LOW,
    Component.DENOISE,
    Component.DENOISE,
)


class Given(NamedTuple):
    """`Draws` on the device."""

    index: Tensor
    online: Tensor
    select: Tensor
    target: Tensor
    aux: Tensor
    noise: Tensor
    depth: Tensor


class Copies(NamedTuple):
    """Parameters by section, with a copy for each gradient that is wanted.

    Attributes:
        trunk: [3, t], for the batch, the vaccine batch and the noised states.
        heads: [2, h], for the batch and the vaccine batch.
        iql: [2, i], the value networks.
        decoder: [d].
    """

    trunk: Tensor
    heads: Tensor
    iql: Tensor
    decoder: Tensor


class Found(NamedTuple):
    """What the pass finds beside the gradients: loss [], TD errors, q, V_hi and V_lo [B]."""

    loss: Tensor
    td: Tensor
    q: Tensor
    high: Tensor
    low: Tensor


Objective = Callable[[Copies], tuple[Tensor, Found]]


class FullLearner(ABC):
    """Networks, optimiser and replay, and one step of them."""

    def __init__(self, spec: FullSpec, initial: FullState) -> None:
        self.spec, self.device = spec, require_device(spec)
        torch.manual_seed(spec.seed)
        self.names = list(initial.weights)
        self.shape = Parameters(spec)
        self.theta = self.shape.load(initial.weights, self.device)
        self.target = self.theta[: self.shape.q_size].clone()
        self.replay = Replay(spec, initial, self.device)
        self.vectors = self._load_vectors(initial)
        self.ready_loss = torch.full((), torch.nan, device=self.device)
        self.ready = torch.zeros((), device=self.device)
        self.shares = torch.tensor(spec.shares, device=self.device)
        owners = torch.tensor(OWNERS, device=self.device)
        sizes = torch.tensor(self.shape.component_sizes, device=self.device)
        self.owner = owners[:-1].repeat_interleave(sizes)
        self.owns = (owners == torch.arange(len(Component), device=self.device)[:, None]).float()
        r = spec.residual_blocks
        self.keep = 1.0 - spec.drop_path / r * torch.arange(1.0, r + 1, device=self.device)
        self.last_loss = torch.zeros((), device=self.device)

    def _load_vectors(self, initial: FullState) -> dict[str, tuple[Tensor, Tensor]]:
        """u and v of each tensor of matrices, of the online and the target network: [2, ...]."""

        def both(arrays: list[NDArray[np.float32]]) -> Tensor:
            stacked = torch.from_numpy(np.stack(arrays)).to(self.device)
            return torch.stack([stacked, stacked])

        found = {}
        tensors = self.shape.trunk.tensors
        for name in [n for n in tensors if n.startswith("hidden.") and n.endswith(".weight")]:
            u, v = initial.vectors[name]
            found[name] = both([u])[:, 0].contiguous(), both([v])[:, 0].contiguous()
        pairs = [initial.vectors[name] for name in tensors[BLOCKS].holds]
        found[BLOCKS] = both([u for u, _ in pairs]), both([v for _, v in pairs])
        return found

    # ---------------------------------------------------------------- what a subclass decides

    @abstractmethod
    def differentiate(self, objective: Objective, at: Copies) -> tuple[Copies, Found]:
        """Gradients of the objective."""

    @abstractmethod
    def adam(self, grad: Tensor) -> None:
        """One step of AdamW."""

    # ---------------------------------------------------------------- random numbers

    def draw(self) -> Given:
        """Rows, levels, noise and masks of a step."""
        spec, b = self.spec, self.spec.batch
        shapes = [
            (2, b, spec.quantiles),
            (2 * b, spec.quantiles),
            (2 * b, spec.target_quantiles),
            (b, spec.target_quantiles),
        ]
        sizes = [torch.Size(shape).numel() for shape in shapes]
        levels = torch.rand(sum(sizes), device=self.device).split(sizes)
        online, select, target, aux = (v.view(s) for v, s in zip(levels, shapes, strict=True))
        kept = torch.rand(len(self.keep), device=self.device) < self.keep
        return Given(
            self.replay.draw(),
            online,
            select,
            target,
            aux,
            torch.randn(b, spec.states, device=self.device),
            kept / self.keep,
        )

    def upload(self, draws: Draws) -> Given:
        """Given draws. The levels in float64, as ours are multiplied by their frequencies."""

        def put(values: NDArray[Any], dtype: torch.dtype) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(self.device, dtype)

        online, select, target, aux = (
            put(v, torch.float64) for v in (draws.online, draws.select, draws.target, draws.aux)
        )
        return Given(
            put(draws.index, torch.int64),
            online.view(2, self.spec.batch, -1),
            select,
            target,
            aux,
            put(draws.noise, torch.float32),
            put(draws.depth, torch.float32),
        )

    # ---------------------------------------------------------------- the step

    def learn(self, given: Given) -> None:
        """One step, in place."""
        spec, replay, b = self.spec, self.replay, self.spec.batch
        states, actions = replay.states[given.index], replay.actions[given.index]
        weights = replay.weights(given.index)
        online, target = self._normalised()
        goals, plain_goal, q = self._goals(given, states, online, target)

        def objective(at: Copies) -> tuple[Tensor, Found]:
            return self._objective(at, given, states, actions, weights, goals, plain_goal, q)

        trunk, heads, iql, decoder = self.shape.sections(self.theta)
        copies = Copies(trunk.expand(3, -1), heads.expand(2, -1), iql, decoder)
        grads, found = self.differentiate(objective, copies)
        self.adam(self._combined(grads))
        self.target.lerp_(self.theta[: self.shape.q_size], spec.tau)
        self._trust(found.loss)
        spread = (found.high - found.low).clamp(min=0.0) + spec.modulate_eps
        exponent = (spec.modulate_k * (found.q - found.low) / spread).clamp(max=20.0)
        factor = exponent.exp().clamp(spec.modulate_low, spec.modulate_high)
        replay.write_back(given.index[:b], found.td * factor)
        self.last_loss.copy_(found.loss)

    def _normalised(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """A power iteration; the normalised weights of both networks."""
        trunk = self.shape.trunk
        both = trunk.views(torch.stack([self.theta[: trunk.size], self.target[: trunk.size]]))
        online, target = {}, {}
        for name, (u, v) in self.vectors.items():
            w = both[name]
            v.copy_(F.normalize((w @ u.unsqueeze(-1)).squeeze(-1), dim=-1))
            raw = (w.mT @ v.unsqueeze(-1)).squeeze(-1)
            u.copy_(F.normalize(raw, dim=-1))
            sigma = (u * raw).sum(-1)
            online[name], target[name] = self._over_cap(w, sigma).unbind()
        return online, target

    def _over_cap(self, weight: Tensor, sigma: Tensor) -> Tensor:
        return weight / (sigma / self.spec.spectral_cap).clamp(min=1.0)[..., None, None]

    def _goals(
        self, given: Given, states: Tensor, online: dict[str, Tensor], target: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Targets of the quantiles [2, B, Q'] and of the plain head [2, B], and Q(s, a) [B].

        The last is the target network's, at the batch's states and actions.
        """
        spec, replay, b = self.spec, self.replay, self.spec.batch
        shape, next_states = self.shape, replay.next_states[given.index]
        heads = shape.heads.views(self.theta[shape.trunk.size : shape.q_size])
        trunk = shape.trunk.views(self.theta[: shape.trunk.size])
        x = features(spec, trunk, online, next_states)
        levels = quantile_head(spec, heads, x, given.select)
        best = blend(plain_head(heads, x), levels, self.ready)[:, :-1].argmax(-1)

        trunk, heads = self.target.split([shape.trunk.size, shape.heads.size])
        p = shape.trunk.views(trunk) | shape.heads.views(heads)
        x = features(spec, p, target, torch.cat([next_states, states[:b]]))
        plain = plain_head(p, x)
        levels = quantile_head(spec, p, x, torch.cat([given.target, given.aux]))
        returns, discounts = replay.returns[given.index], replay.discounts[given.index]
        goals = torch.addcmul(
            returns[:, None], discounts[:, None], values_of(levels[: 2 * b], best)
        )
        plain_goal = torch.addcmul(returns, discounts, value_of(plain[: 2 * b], best))
        values = blend(plain[2 * b :], levels[2 * b :], self.ready)
        q = value_of(values, replay.actions[given.index[:b]])
        return goals.view(2, b, -1), plain_goal.view(2, b), q

    def _objective(
        self,
        at: Copies,
        given: Given,
        states: Tensor,
        actions: Tensor,
        weights: Tensor,
        goals: Tensor,
        plain_goal: Tensor,
        q: Tensor,
    ) -> tuple[Tensor, Found]:
        """The sum of all losses; what is learned from which is told apart by the copies."""
        spec, shape, b = self.spec, self.shape, self.spec.batch
        trunk, heads = shape.trunk.views(at.trunk), shape.heads.views(at.heads)
        normal = {
            name: self._over_cap(
                trunk[name], ((trunk[name] @ u[0].unsqueeze(-1)).squeeze(-1) * v[0]).sum(-1)
            )
            for name, (u, v) in self.vectors.items()
        }
        clean = states[:b]
        noised = clean + spec.denoise_sigma * given.noise
        x = features(spec, trunk, normal, torch.cat([states, noised]).view(3, b, -1), given.depth)
        pair, actions, weights = x[:2], actions.view(2, b), weights.view(2, b)

        # Both heads, on the batch and the vaccine batch: [2, B].
        taken = value_of(plain_head(heads, pair), actions)
        plain = F.huber_loss(taken, plain_goal, reduction="none", delta=spec.huber_delta)
        theta = values_of(quantile_head(spec, heads, pair, given.online), actions)  # [2, B, Q]
        theta_i, goal_j = torch.broadcast_tensors(theta.unsqueeze(-1), goals.unsqueeze(-2))
        huber = F.huber_loss(theta_i, goal_j, reduction="none", delta=spec.kappa) / spec.kappa
        below = (goal_j < theta_i).to(theta.dtype)
        side = (given.online.to(theta.dtype).unsqueeze(-1) - below).abs()
        quantile = weights * (side * huber).mean(-1).sum(-1)
        penalty = spec.gate_l1 * torch.sigmoid(trunk["gate.logit"][:2]).sum()

        # Both value networks: [2, B].
        p = shape.iql.views(at.iql)
        hidden = linear(clean.expand(2, -1, -1), p["hidden.weight"], p["hidden.bias"])
        values = linear(F.relu(hidden), p["value.weight"], p["value.bias"]).squeeze(-1)
        u = q - values
        expectile = u.new_tensor([[spec.expectile_high], [spec.expectile_low]])
        regression = weights[0] * (expectile - (u < 0).to(u.dtype)).abs() * u.square()

        # The decoder.
        p = shape.decoder.views(at.decoder)
        hidden = F.relu(linear(x[2], p["denoise.hidden.weight"], p["denoise.hidden.bias"]))
        decoded = linear(hidden, p["denoise.state.weight"], p["denoise.state.bias"])
        denoise = spec.denoise_weight * F.mse_loss(decoded, clean)

        total = (
            ((weights * plain).sum() + quantile.sum() + regression.sum()) / b + penalty + denoise
        )
        found = Found(
            quantile[0].detach().mean(),
            (goals[0].mean(-1) - theta[0].detach().mean(-1)),
            q,
            values[0].detach(),
            values[1].detach(),
        )
        return total, found

    def _combined(self, grads: Copies) -> Tensor:
        """From the losses' gradients to one [size]: budget, projection, clip."""
        spec, shape = self.spec, self.shape
        (trunk, vaccine_trunk, noised), (heads, vaccine_heads) = grads.trunk, grads.heads
        grad = torch.cat([trunk, heads, grads.iql.flatten(), grads.decoder])
        norms = torch._foreach_norm([*grad.split(shape.component_sizes), noised])
        squares = torch.stack(norms).square()
        norm = (self.owns * squares).sum(-1).sqrt().clamp(min=torch.finfo(squares.dtype).tiny)
        scale = (self.shares * spec.max_grad_norm / norm).clamp(max=1.0)
        grad *= scale[self.owner]
        grad[: shape.trunk.size] += scale[Component.DENOISE] * noised

        main, vaccine = grad[: shape.q_size], torch.cat([vaccine_trunk, vaccine_heads])
        cross, square = torch.dot(main, vaccine), torch.dot(vaccine, vaccine)
        main -= torch.where(cross < 0.0, cross / square, 0.0) * vaccine
        grad *= (spec.max_grad_norm / grad.norm()).clamp(max=1.0)
        return grad

    def _trust(self, loss: Tensor) -> None:
        """Take the quantile loss into its average, and give the quantiles the weight they earn."""
        spec, before = self.spec, self.ready_loss
        moved = torch.lerp(loss, before, spec.ready_decay)
        self.ready_loss.copy_(torch.where(before.isnan(), loss, moved))
        share = (spec.ready_high - self.ready_loss) / (spec.ready_high - spec.ready_low)
        self.ready.copy_(share.clamp(0.0, 1.0))

    # ---------------------------------------------------------------- what the gate reads

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def loss(self) -> float:
        return float(self.last_loss)

    def parameters(self) -> dict[str, NDArray[Any]]:
        named = self.shape.named(self.theta.detach())
        return {name: named[name].cpu().numpy().copy() for name in self.names}

    def priorities(self) -> NDArray[Any]:
        return self.replay.leaves.view(-1)[: self.spec.capacity].cpu().numpy().copy()
