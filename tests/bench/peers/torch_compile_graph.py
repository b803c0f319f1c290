"""PyTorch with the whole step compiled by torch.compile, in one CUDA graph.

The step is one function over lists of tensors, so that Inductor sees all of it at once, from the
draw to the write-back: it fuses the gathers, the loss, clip, Adam and the target update as it
can. The graph is PyTorch's own and not Inductor's "reduce-overhead", which copies inputs.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from .problem import InitialState, PeerSpec
from .torch_graph import capture
from .torch_learner import Replay, matmul_precision, require_cuda, require_device

#: PyTorch 2.11's Inductor fails an assertion of its own on this step at M (reordering the loops of
#: two halves of a split reduction, `reorder_loops_by_dep_pair`). Without the split it compiles, and
#: took 159 us a step in float32 and 123 us in TF32 on an H200.
INDUCTOR = {"split_reductions": False}


class CompiledStep:
    """The state, and the step as compiled functions over it."""

    def __init__(self, spec: PeerSpec, initial: InitialState, backend: str = "inductor") -> None:
        self.spec, self.device = spec, require_device(spec)
        torch.manual_seed(spec.seed)
        self.names = list(initial.weights)
        self.params = [torch.from_numpy(w).to(self.device) for w in initial.weights.values()]
        self.params = [p.clone() for p in self.params]
        self.targets = [p.clone() for p in self.params]
        self.means = [torch.zeros_like(p) for p in self.params]
        self.squares = [torch.zeros_like(p) for p in self.params]
        self.count = torch.zeros((), device=self.device)
        self.replay = Replay(spec, initial, self.device)
        self.last_loss = torch.zeros((), device=self.device)

        def drawn() -> None:
            self._learn(self.replay.draw())

        how = {"backend": backend, "fullgraph": True, "dynamic": False}
        if backend == "inductor":
            how["options"] = INDUCTOR
        self._compiled_drawn = torch.compile(drawn, **how)
        self._compiled_learn = torch.compile(self._learn, **how)

    def _q(self, params: list[Tensor], x: Tensor) -> Tensor:
        for weight, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
            x = F.relu(F.linear(x, weight, bias))
        out = F.linear(x, params[-2], params[-1])
        advantage, value = out[:, :-1], out[:, -1:]
        return value + advantage - advantage.mean(1, keepdim=True)

    def _learn(self, index: Tensor) -> None:
        """One step on the rows `index` [B], in place."""
        spec, replay = self.spec, self.replay
        states, next_states = replay.states[index], replay.next_states[index]
        actions = replay.actions[index][:, None]
        best = self._q(self.params, next_states).argmax(1, keepdim=True)
        value = self._q(self.targets, next_states).gather(1, best)[:, 0]
        goal = replay.returns[index] + replay.discounts[index] * value
        weights = replay.weights(index)

        def objective(params: list[Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            q = self._q(params, states).gather(1, actions)[:, 0]
            huber = F.huber_loss(q, goal, reduction="none", delta=spec.huber_delta)
            loss = (weights * huber).mean()
            return loss, (loss, goal - q)

        grads, (loss, td) = torch.func.grad(objective, has_aux=True)(self.params)
        norm = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
        scale = (spec.max_grad_norm / norm).clamp(max=1.0)
        grads = torch._foreach_mul(list(grads), scale)
        self._adam(grads)
        torch._foreach_lerp_(self.targets, self.params, spec.tau)
        replay.write_back(index, td)
        self.last_loss.copy_(loss)

    def _adam(self, grads: list[Tensor]) -> None:
        spec = self.spec
        self.count.add_(1.0)
        correction1 = 1.0 - torch.pow(spec.adam_beta1, self.count)
        correction2 = 1.0 - torch.pow(spec.adam_beta2, self.count)
        torch._foreach_lerp_(self.means, grads, 1.0 - spec.adam_beta1)
        torch._foreach_mul_(self.squares, spec.adam_beta2)
        torch._foreach_addcmul_(self.squares, grads, grads, 1.0 - spec.adam_beta2)
        root = torch._foreach_sqrt(torch._foreach_div(self.squares, correction2))
        torch._foreach_add_(root, spec.adam_eps)
        update = torch._foreach_div(torch._foreach_div(self.means, correction1), root)
        torch._foreach_add_(self.params, update, alpha=-spec.lr)

    def state(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        replay = self.replay
        own = [*self.params, *self.targets, *self.means, *self.squares, self.count]
        return [*own, replay.leaves, replay.sums, replay.largest, self.last_loss]

    def on_drawn(self) -> None:
        with torch.no_grad():
            self._compiled_drawn()

    def on_rows(self, index: Tensor) -> None:
        with torch.no_grad():
            self._compiled_learn(index)

    def loss(self) -> float:
        return float(self.last_loss)

    def parameters(self) -> dict[str, NDArray[Any]]:
        named = zip(self.names, self.params, strict=True)
        return {name: p.cpu().numpy().copy() for name, p in named}

    def priorities(self) -> NDArray[Any]:
        return self.replay.leaves.view(-1)[: self.spec.capacity].cpu().numpy().copy()


class TorchCompileGraph(CompiledStep):
    """Two graphs of the compiled step, each made when first asked for: on drawn and given rows."""

    quantum = 1

    def __init__(self, spec: PeerSpec, initial: InitialState) -> None:
        require_cuda(spec)
        super().__init__(spec, initial)
        self.injected = torch.zeros(spec.batch, dtype=torch.int64, device=self.device)

    @cached_property
    def _drawn(self) -> torch.cuda.CUDAGraph:
        with matmul_precision(self.spec):
            return capture(self.on_drawn, self.state())

    @cached_property
    def _given(self) -> torch.cuda.CUDAGraph:
        with matmul_precision(self.spec):
            return capture(lambda: self.on_rows(self.injected), self.state())

    def step(self, indices: NDArray[Any] | None = None) -> None:
        if indices is None:
            self._drawn.replay()
            return
        graph = self._given
        self.injected.copy_(torch.from_numpy(indices.astype("int64")))
        graph.replay()

    def run(self, steps: int) -> None:
        replay = self._drawn.replay
        for _ in range(steps):
            replay()

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)

    def close(self) -> None:
        self.__dict__.clear()
        torch.compiler.reset()
        torch.cuda.empty_cache()


def make(spec: PeerSpec, initial: InitialState) -> TorchCompileGraph:
    """The peer at its start; it compiles when first run."""
    return TorchCompileGraph(spec, initial)
