"""flashbax: its prioritised item buffer, many steps in one `lax.scan` whose carry is donated."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

# First: it sets how JAX takes memory.
from ..jax_scan import SCAN, require_device  # isort: skip

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from .problem import Batch, ReplaySpec, ReplayState


class Carry(NamedTuple):
    """What a step changes, and what it drew."""

    state: Any  # flashbax's
    key: Array
    batch: Batch


def nodes_of(leaves: NDArray[np.float32], depth: int) -> NDArray[np.float32]:
    """flashbax's nodes [2^(depth + 1) - 1] over `leaves` [N]: the root, its children, and so on."""
    level = np.zeros(2**depth)
    level[: leaves.size] = leaves
    levels = [level]
    while levels[-1].size > 1:
        levels.append(levels[-1].reshape(-1, 2).sum(1))
    return np.concatenate(levels[::-1]).astype(np.float32)


class FlashbaxScan:
    """The scan, and its parts one by one."""

    quantum = SCAN

    def __init__(self, spec: ReplaySpec, initial: ReplayState) -> None:
        self.spec, self.device = spec, require_device(spec)
        self.buffer = flashbax.make_prioritised_item_buffer(
            max_length=spec.capacity,
            min_length=1,
            sample_batch_size=spec.batch,
            priority_exponent=spec.alpha,
            device="gpu" if spec.device == "cuda" else "cpu",
        )
        put = partial(jax.device_put, device=self.device)
        self.errors = put(initial.errors)
        with jax.default_device(self.device):
            key = jax.random.key(spec.seed)
            state = self._full(initial)
            empty = jax.eval_shape(self._drawn, state, key)
            batch = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), empty)
            self.carry = Carry(state, key, batch)

        def step(errors: Array, carry: Carry) -> Carry:
            key, mine = jax.random.split(carry.key)
            batch = self._drawn(carry.state, mine)
            return Carry(self._written(carry.state, batch.index, errors), key, batch)

        def scanned(errors: Array, carry: Carry) -> Carry:
            return lax.scan(lambda c, _: (step(errors, c), None), carry, length=SCAN)[0]

        self._scan = jax.jit(scanned, donate_argnums=1)
        self._draw = jax.jit(self._drawn)
        self._write = jax.jit(self._written, donate_argnums=0)

    def _full(self, initial: ReplayState) -> Any:
        """flashbax's state with every row filled, as so many single `add`s would leave it."""
        rows = {
            "states": initial.states,
            "next_states": initial.next_states,
            "actions": initial.actions,
            "returns": initial.returns,
            "discounts": initial.discounts,
        }
        state = self.buffer.init({name: jnp.asarray(values[0]) for name, values in rows.items()})
        put = partial(jax.device_put, device=self.device)
        tree = state.sum_tree_state
        tree = tree.replace(
            nodes=put(nodes_of(initial.leaves, tree.tree_depth)),
            max_recorded_priority=put(initial.leaves.max()),
        )
        return state.replace(
            experience={name: put(values[None]) for name, values in rows.items()},
            running_index=put(np.int32(self.spec.capacity)),
            is_full=put(np.bool_(True)),
            sum_tree_state=tree,
        )

    def _drawn(self, state: Any, key: Array) -> Batch:
        sample = self.buffer.sample(state, key)
        weights = (self.spec.capacity * sample.probabilities) ** -self.spec.beta
        rows = sample.experience
        return Batch(sample.indices, weights / weights.max(), **rows)

    def _written(self, state: Any, index: Array, errors: Array) -> Any:
        return self.buffer.set_priorities(state, index, jnp.abs(errors) + self.spec.eps)

    def run(self, steps: int) -> None:
        for _ in range(steps // SCAN):
            self.carry = self._scan(self.errors, self.carry)

    def wait(self) -> None:
        jax.block_until_ready(self.carry)

    def last(self) -> Batch:
        return Batch(*map(np.array, self.carry.batch))

    def draw(self) -> Batch:
        key, mine = jax.random.split(self.carry.key)
        batch = self._draw(self.carry.state, mine)
        self.carry = self.carry._replace(key=key)
        return Batch(*map(np.array, batch))

    def write_back(self, index: NDArray[Any], errors: NDArray[np.float32]) -> None:
        rows = jax.device_put(np.asarray(index, np.int32), self.device)
        state = self._write(self.carry.state, rows, jax.device_put(errors, self.device))
        self.carry = self.carry._replace(state=state)

    def priorities(self) -> NDArray[np.float32]:
        tree = self.carry.state.sum_tree_state
        first = 2**tree.tree_depth - 1
        return np.array(tree.nodes[first : first + self.spec.capacity])

    def close(self) -> None:
        self.__dict__.clear()


def make(spec: ReplaySpec, initial: ReplayState) -> FlashbaxScan:
    """The peer at its start; it compiles when first run."""
    return FlashbaxScan(spec, initial)
