"""Plain JAX: the two-level tree, or prefix sums, many steps in one `lax.scan`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol

# First: it sets how JAX takes memory.
from ..jax_scan import SCAN, Data, require_device  # isort: skip

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from .problem import Batch, ReplaySpec, ReplayState


class Carry(NamedTuple):
    """What a step changes, and what it drew."""

    leaves: Array  # [rows, fan_out]
    sums: Array  # [rows] f64; unused with prefix sums
    largest: Array
    key: Array
    batch: Batch


class Search(Protocol):
    """How rows are found and leaves written."""

    def find(self, carry: Carry, key: Array) -> tuple[Array, Array]:
        """Stratified prioritized rows [B] i32, and the sum of all leaves, float64."""
        ...

    def sums(self, carry: Carry, leaves: Array, index: Array) -> Array:
        """The sums that are kept, with `leaves` written at `index`."""
        ...


class _Base:
    def __init__(self, spec: ReplaySpec) -> None:
        self.spec = spec
        # JAX's documentation has the unrolled search as the faster one on a GPU.
        method = "scan_unrolled" if spec.device == "cuda" else "scan"
        self.search = partial(jnp.searchsorted, side="right", method=method)

    def thresholds(self, key: Array, total: Array) -> Array:
        batch = self.spec.batch
        u = jax.random.uniform(key, (batch,), jnp.float32)
        return (jnp.arange(batch, dtype=jnp.float64) + u) * (total / batch)


class TwoLevelTree(_Base):
    """Leaves in rows of about sqrt(N), and the sums of the rows in float64."""

    def find(self, carry: Carry, key: Array) -> tuple[Array, Array]:
        spec = self.spec
        cumulative = jnp.cumsum(carry.sums)
        at = self.thresholds(key, cumulative[-1])
        row = jnp.minimum(self.search(cumulative, at), spec.tree_rows - 1).astype(jnp.int32)
        rest = (at - (cumulative[row] - carry.sums[row])).astype(jnp.float32)
        within = jnp.cumsum(carry.leaves[row], axis=1)
        column = jnp.minimum(jax.vmap(self.search)(within, rest), spec.fan_out - 1)
        index = row * spec.fan_out + column.astype(jnp.int32)
        return jnp.minimum(index, spec.capacity - 1), cumulative[-1]

    def sums(self, carry: Carry, leaves: Array, index: Array) -> Array:
        row = index // self.spec.fan_out
        return carry.sums.at[row].set(leaves[row].sum(1, dtype=jnp.float64))


class PrefixSums(_Base):
    """No sums are kept: each draw takes the prefix sums of all leaves."""

    def find(self, carry: Carry, key: Array) -> tuple[Array, Array]:
        cumulative = jnp.cumsum(carry.leaves.reshape(-1), dtype=jnp.float64)
        index = self.search(cumulative, self.thresholds(key, cumulative[-1])).astype(jnp.int32)
        return jnp.minimum(index, self.spec.capacity - 1), cumulative[-1]

    def sums(self, carry: Carry, leaves: Array, index: Array) -> Array:
        return carry.sums


def drawn(spec: ReplaySpec, search: Search, data: Data, carry: Carry, key: Array) -> Batch:
    """A batch, gathered and weighed."""
    index, total = search.find(carry, key)
    share = (carry.leaves.reshape(-1)[index] / total).astype(jnp.float32)
    weights = (spec.capacity * share) ** -spec.beta
    return Batch(index, weights / weights.max(), *(array[index] for array in data))


def written(spec: ReplaySpec, search: Search, carry: Carry, index: Array, td: Array) -> Carry:
    """The carry with the leaves of `td` at `index`."""
    leaf = (jnp.abs(td) + spec.eps) ** spec.alpha
    leaves = carry.leaves.reshape(-1).at[index].set(leaf).reshape(carry.leaves.shape)
    return carry._replace(
        leaves=leaves,
        sums=search.sums(carry, leaves, index),
        largest=jnp.maximum(carry.largest, leaf.max()),
    )


class JaxReplay:
    """The scan, and its parts one by one."""

    quantum = SCAN

    def __init__(self, search: Search, spec: ReplaySpec, initial: ReplayState) -> None:
        self.spec, self.device = spec, require_device(spec)
        put = partial(jax.device_put, device=self.device)
        leaves = spec.padded_leaves(initial.leaves)
        arrays = (initial.states, initial.next_states, initial.actions)
        self.data = Data(*map(put, (*arrays, initial.returns, initial.discounts)))
        self.errors = put(initial.errors)
        with jax.enable_x64(True), jax.default_device(self.device):
            key = jax.random.key(spec.seed)
            carry = Carry(put(leaves), put(leaves.sum(1, dtype=np.float64)), leaves.max(), key, ())
            empty = jax.eval_shape(partial(drawn, spec, search), self.data, carry, key)
            batch = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), empty)
            self.carry = carry._replace(batch=batch, largest=put(leaves.max()))

        def step(data: Data, errors: Array, carry: Carry) -> Carry:
            key, mine = jax.random.split(carry.key)
            batch = drawn(spec, search, data, carry, mine)
            carry = written(spec, search, carry, batch.index, errors)
            return carry._replace(key=key, batch=batch)

        def scanned(data: Data, errors: Array, carry: Carry) -> Carry:
            return lax.scan(lambda c, _: (step(data, errors, c), None), carry, length=SCAN)[0]

        self._scan = jax.jit(scanned, donate_argnums=2)
        self._drawn = jax.jit(partial(drawn, spec, search))
        self._written = jax.jit(partial(written, spec, search), donate_argnums=0)

    def run(self, steps: int) -> None:
        with jax.enable_x64(True):
            for _ in range(steps // SCAN):
                self.carry = self._scan(self.data, self.errors, self.carry)

    def wait(self) -> None:
        jax.block_until_ready(self.carry)

    def last(self) -> Batch:
        return Batch(*map(np.array, self.carry.batch))

    def draw(self) -> Batch:
        with jax.enable_x64(True):
            key, mine = jax.random.split(self.carry.key)
            batch = self._drawn(self.data, self.carry, mine)
            self.carry = self.carry._replace(key=key)
        return Batch(*map(np.array, batch))

    def write_back(self, index: NDArray[Any], errors: NDArray[np.float32]) -> None:
        with jax.enable_x64(True):
            rows = jax.device_put(np.asarray(index, np.int32), self.device)
            given = jax.device_put(errors, self.device)
            self.carry = self._written(self.carry, rows, given)

    def priorities(self) -> NDArray[np.float32]:
        return np.array(self.carry.leaves).reshape(-1)[: self.spec.capacity]

    def close(self) -> None:
        self.__dict__.clear()


def tree_scan(spec: ReplaySpec, initial: ReplayState) -> JaxReplay:
    """The two-level tree."""
    return JaxReplay(TwoLevelTree(spec), spec, initial)


def prefix_scan(spec: ReplaySpec, initial: ReplayState) -> JaxReplay:
    """Prefix sums."""
    return JaxReplay(PrefixSums(spec), spec, initial)
