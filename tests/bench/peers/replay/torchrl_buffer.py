"""torchrl: its prioritized replay buffer over storage on the device, or its sampler alone."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler

from ..problem import PeerUnavailableError
from ..torch_learner import require_device
from .problem import Batch, ReplaySpec, ReplayState

#: Where the sampler looks for the TD errors' absolute values.
KEY = "td_error"

Trees = Literal["cpu", "cuda"]


class TorchrlBuffer:
    """`sample`, then `update_tensordict_priority`."""

    quantum = 1

    def __init__(self, spec: ReplaySpec, initial: ReplayState, trees: Trees) -> None:
        if trees == "cuda" and spec.device != "cuda":
            raise PeerUnavailableError("trees on the GPU need a GPU")
        self.spec, self.device = spec, require_device(spec)
        if self.device.type == "cuda":
            # With its number: else torchrl takes its own trees to be on another device, and makes
            # new ones, empty, in every call.
            self.device = torch.device("cuda", torch.cuda.current_device())
        torch.manual_seed(spec.seed)
        try:
            self.sampler = PrioritizedSampler(
                spec.capacity,
                spec.alpha,
                spec.beta,
                spec.eps,
                device=self.device if trees == "cuda" else "cpu",
            )
        except RuntimeError as error:  # built for another PyTorch, or without CUDA
            raise PeerUnavailableError(f"torchrl: {error}") from error
        self.buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(spec.capacity, device=self.device),
            sampler=self.sampler,
            batch_size=spec.batch,
            priority_key=KEY,
        )
        rows = {
            "states": initial.states,
            "next_states": initial.next_states,
            "actions": initial.actions,
            "returns": initial.returns,
            "discounts": initial.discounts,
        }
        tensors = {name: torch.from_numpy(values) for name, values in rows.items()}
        self.buffer.extend(TensorDict(tensors, batch_size=[spec.capacity]))
        self.buffer.update_priority(torch.arange(spec.capacity), self._priority(initial.leaves))
        self.magnitudes = torch.from_numpy(np.abs(initial.errors)).to(self.device)
        self._last: Any = None

    def _priority(self, leaves: NDArray[np.float32]) -> torch.Tensor:
        """The priorities of which the sampler makes `leaves`."""
        raw = leaves.astype(np.float64) ** (1.0 / self.spec.alpha) - self.spec.eps
        return torch.from_numpy(np.maximum(raw, 0.0).astype(np.float32))

    def _drawn(self) -> Any:
        return self.buffer.sample()

    def _written(self, drawn: Any, magnitudes: torch.Tensor) -> None:
        drawn.set(KEY, magnitudes)
        self.buffer.update_tensordict_priority(drawn)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            drawn = self._drawn()
            self._written(drawn, self.magnitudes)
        self._last = drawn

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def last(self) -> Batch:
        return self._batch(self._last)

    def draw(self) -> Batch:
        return self._batch(self._drawn())

    def _batch(self, drawn: Any) -> Batch:
        names = ("index", "priority_weight", *Batch._fields[2:])
        return Batch(*(drawn[name].cpu().numpy() for name in names))

    def write_back(self, index: NDArray[Any], errors: NDArray[np.float32]) -> None:
        rows = torch.from_numpy(np.asarray(index, np.int64)).to(self.device)
        magnitudes = torch.from_numpy(np.abs(errors)).to(self.device)
        self.buffer.update_priority(rows, magnitudes)

    def priorities(self) -> NDArray[np.float32]:
        rows = torch.arange(self.spec.capacity, device=self.sampler.device)
        return torch.as_tensor(self.sampler._sum_tree[rows]).cpu().numpy()

    def close(self) -> None:
        self.__dict__.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class TorchrlSampler(TorchrlBuffer):
    """The sampler's `sample`, then its `update_priority`: nothing is gathered."""

    def _drawn(self) -> Any:
        return self.sampler.sample(self.buffer.storage, self.spec.batch)

    def _written(self, drawn: Any, magnitudes: torch.Tensor) -> None:
        self.sampler.update_priority(drawn[0], magnitudes)

    def _batch(self, drawn: Any) -> Batch:
        index, information = drawn
        weights = information["priority_weight"]
        return Batch(index.cpu().numpy(), torch.as_tensor(weights).cpu().numpy())


def cpu_trees(spec: ReplaySpec, initial: ReplayState) -> TorchrlBuffer:
    """The buffer with its trees on the host."""
    return TorchrlBuffer(spec, initial, "cpu")


def cuda_trees(spec: ReplaySpec, initial: ReplayState) -> TorchrlBuffer:
    """The buffer with its trees on the GPU."""
    return TorchrlBuffer(spec, initial, "cuda")


def cpu_sampler(spec: ReplaySpec, initial: ReplayState) -> TorchrlSampler:
    """The sampler alone, with its trees on the host."""
    return TorchrlSampler(spec, initial, "cpu")


def cuda_sampler(spec: ReplaySpec, initial: ReplayState) -> TorchrlSampler:
    """The sampler alone, with its trees on the GPU."""
    return TorchrlSampler(spec, initial, "cuda")
