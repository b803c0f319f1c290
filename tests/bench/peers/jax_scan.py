"""JAX: the step jitted, many of them in one `lax.scan` whose carry is donated."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, NamedTuple

# JAX would take most of the GPU's memory at its first use, and the others are there too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from numpy.typing import NDArray

from .problem import InitialState, PeerSpec, PeerUnavailableError

#: Steps of one scan.
SCAN = 64

Params = list[tuple[Array, Array]]


class Carry(NamedTuple):
    """What a step changes."""

    params: Params
    target: Params
    adam: Any
    leaves: Array  # [rows, fan_out]
    sums: Array  # [rows]
    largest: Array
    key: Array
    loss: Array


class Data(NamedTuple):
    """What it only reads."""

    states: Array
    next_states: Array
    actions: Array
    returns: Array
    discounts: Array


def q_values(params: Params, x: Array) -> Array:
    """Action values [B, A] of the dueling MLP."""
    for weight, bias in params[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = params[-1]
    out = x @ weight + bias
    advantage, value = out[:, :-1], out[:, -1:]
    return value + advantage - advantage.mean(1, keepdims=True)


def draw(spec: PeerSpec, carry: Carry, key: Array) -> Array:
    """Stratified prioritized indices [B]."""
    cumulative = jnp.cumsum(carry.sums)
    u = jax.random.uniform(key, (spec.batch,))
    at = (jnp.arange(spec.batch) + u) * (cumulative[-1] / spec.batch)
    row = jnp.minimum(jnp.searchsorted(cumulative, at, side="right"), spec.tree_rows - 1)
    at = at - (cumulative[row] - carry.sums[row])
    within = jnp.cumsum(carry.leaves[row], axis=1)
    find = jax.vmap(partial(jnp.searchsorted, side="right"))
    column = jnp.minimum(find(within, at), spec.fan_out - 1)
    return jnp.minimum(row * spec.fan_out + column, spec.capacity - 1)


def learn(
    spec: PeerSpec, optimiser: optax.GradientTransformation, data: Data, carry: Carry, index: Array
) -> Carry:
    """One step on the rows `index` [B]."""
    leaf = carry.leaves.reshape(-1)[index]
    weights = (spec.capacity * (leaf / carry.sums.sum())) ** -spec.beta
    weights = weights / weights.max()
    rows = jnp.arange(spec.batch)
    next_states = data.next_states[index]
    best = q_values(carry.params, next_states).argmax(1)
    value = q_values(carry.target, next_states)[rows, best]
    goal = data.returns[index] + data.discounts[index] * value

    def objective(params: Params) -> tuple[Array, Array]:
        q = q_values(params, data.states[index])[rows, data.actions[index]]
        return (weights * optax.huber_loss(q, goal, delta=spec.huber_delta)).mean(), goal - q

    (loss, td), grads = jax.value_and_grad(objective, has_aux=True)(carry.params)
    updates, adam = optimiser.update(grads, carry.adam)
    params = optax.apply_updates(carry.params, updates)
    new_leaf = (jnp.abs(td) + spec.eps) ** spec.alpha
    flat = carry.leaves.reshape(-1).at[index].set(new_leaf)
    leaves = flat.reshape(carry.leaves.shape)
    row = index // spec.fan_out
    return carry._replace(
        params=params,
        target=optax.incremental_update(params, carry.target, spec.tau),
        adam=adam,
        leaves=leaves,
        sums=carry.sums.at[row].set(leaves[row].sum(1)),
        largest=jnp.maximum(carry.largest, new_leaf.max()),
        loss=loss,
    )


class JaxScan:
    """The scan over drawn rows, and a single jitted step on injected ones."""

    quantum = SCAN

    def __init__(self, spec: PeerSpec, initial: InitialState) -> None:
        self.spec = spec
        self.device = require_device(spec)
        optimiser = optax.chain(
            optax.clip_by_global_norm(spec.max_grad_norm),
            optax.adam(spec.lr, spec.adam_beta1, spec.adam_beta2, spec.adam_eps),
        )
        self.optimiser = optimiser
        put = partial(jax.device_put, device=self.device)
        self.names = list(initial.weights)
        arrays = list(initial.weights.values())
        params: Params = [
            (put(w.T.copy()), put(b)) for w, b in zip(arrays[::2], arrays[1::2], strict=True)
        ]
        leaves = put(spec.padded_leaves(initial.leaves))
        with jax.default_device(self.device):
            self.carry = Carry(
                params,
                jax.tree.map(jnp.copy, params),
                optimiser.init(params),
                leaves,
                leaves.sum(1),
                leaves.max(),
                jax.random.key(spec.seed),
                jnp.zeros(()),
            )
        self.data = Data(
            *map(
                put,
                (
                    initial.states,
                    initial.next_states,
                    initial.actions,
                    initial.returns,
                    initial.discounts,
                ),
            )
        )

        def drawn(data: Data, carry: Carry) -> Carry:
            key, mine = jax.random.split(carry.key)
            index = draw(spec, carry, mine)
            return learn(spec, optimiser, data, carry._replace(key=key), index)

        def scanned(data: Data, carry: Carry) -> Carry:
            return lax.scan(lambda c, _: (drawn(data, c), None), carry, length=SCAN)[0]

        self._scan = jax.jit(scanned, donate_argnums=1)
        self._drawn = jax.jit(drawn, donate_argnums=1)
        self._given = jax.jit(partial(learn, spec, optimiser), donate_argnums=1)

    def precision(self) -> Any:
        """How float32 products are taken inside."""
        # Not "default": that is TF32 on a GPU.
        tf32 = self.spec.precision == "tf32"
        return jax.default_matmul_precision("tensorfloat32" if tf32 else "highest")

    def step(self, indices: NDArray[Any] | None = None) -> None:
        with self.precision():
            if indices is None:
                self.carry = self._drawn(self.data, self.carry)
            else:
                index = jax.device_put(np.asarray(indices, np.int32), self.device)
                self.carry = self._given(self.data, self.carry, index)

    def run(self, steps: int) -> None:
        with self.precision():
            for _ in range(steps // SCAN):
                self.carry = self._scan(self.data, self.carry)

    def wait(self) -> None:
        jax.block_until_ready(self.carry)

    def loss(self) -> float:
        return float(self.carry.loss)

    def parameters(self) -> dict[str, NDArray[Any]]:
        flat = [a for w, b in self.carry.params for a in (np.asarray(w).T, np.asarray(b))]
        return {name: np.array(a) for name, a in zip(self.names, flat, strict=True)}

    def priorities(self) -> NDArray[Any]:
        return np.array(self.carry.leaves).reshape(-1)[: self.spec.capacity]

    def close(self) -> None:
        self.__dict__.clear()


def require_device(spec: PeerSpec) -> Any:
    """JAX's device of the spec.

    Raises:
        PeerUnavailableError: this JAX has none.
    """
    platform = "gpu" if spec.device == "cuda" else "cpu"
    try:
        return jax.devices(platform)[0]
    except RuntimeError as error:
        raise PeerUnavailableError(
            f"jax {jax.__version__} has no {platform} device ({error})"
        ) from error


def make(spec: PeerSpec, initial: InitialState) -> JaxScan:
    """The peer at its start; it compiles when first run."""
    return JaxScan(spec, initial)
