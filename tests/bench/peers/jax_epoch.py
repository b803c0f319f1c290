"""JAX: a whole epoch in one `lax.scan`, the environment inside.

Each turn of the scan acts in every lane of the table, inserts the transitions, and takes its
learning steps, which are those of `jax_scan`. It does less than ours: it inserts one-step
transitions (ours assembles n-step ones when it draws), explores with a constant epsilon, and
neither truncates episodes nor checks rows.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from onegraph.trainer.bench import BenchSubject

from .jax_scan import Carry, Data, JaxScan, draw, learn, q_values
from .problem import InitialState, PeerSpec

EPSILON = 0.1


class Table(NamedTuple):
    """The environment: successors, rewards and ends [S, A], and where episodes start."""

    successors: Array
    rewards: Array
    ends: Array
    start: int


class EpochCarry(NamedTuple):
    """What a turn changes."""

    learner: Carry
    data: Data
    lanes: Array  # [E] states
    slot: Array


def collect(spec: PeerSpec, table: Table, gamma: float, carry: EpochCarry) -> EpochCarry:
    """A step of every lane, inserted."""
    learner, count = carry.learner, carry.lanes.shape[0]
    key, explore, anything = jax.random.split(learner.key, 3)
    seen = jax.nn.one_hot(carry.lanes, spec.states)
    greedy = q_values(learner.params, seen).argmax(1)
    drawn = jax.random.randint(anything, (count,), 0, spec.actions)
    action = jnp.where(jax.random.uniform(explore, (count,)) < EPSILON, drawn, greedy)
    action = action.astype(carry.data.actions.dtype)
    arrived = table.successors[carry.lanes, action]
    ended = table.ends[carry.lanes, action]
    first = carry.slot * count
    into = partial(lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
    data = carry.data
    data = Data(
        into(data.states, seen),
        into(data.next_states, jax.nn.one_hot(arrived, spec.states)),
        into(data.actions, action),
        into(data.returns, table.rewards[carry.lanes, action]),
        into(data.discounts, jnp.where(ended, 0.0, gamma).astype(data.discounts.dtype)),
    )
    leaves = into(learner.leaves.reshape(-1), jnp.full((count,), learner.largest))
    leaves = leaves.reshape(learner.leaves.shape)
    # The rows of a vector step lie side by side: they touch few nodes of the tree.
    nodes = (first // spec.fan_out) + jnp.arange(count // spec.fan_out + 2)
    nodes = jnp.minimum(nodes, spec.tree_rows - 1)
    learner = learner._replace(
        key=key, leaves=leaves, sums=learner.sums.at[nodes].set(leaves[nodes].sum(1))
    )
    lanes = jnp.where(ended, table.start, arrived).astype(carry.lanes.dtype)
    slots = spec.capacity // count
    return EpochCarry(learner, data, lanes, (carry.slot + 1) % slots)


class JaxEpoch:
    """Epochs of `rounds` turns: vector steps, then learning steps, in the subject's ratio."""

    def __init__(
        self, label: str, subject: BenchSubject, spec: PeerSpec, initial: InitialState, rounds: int
    ) -> None:
        self.label = label
        self.scan = JaxScan(spec, initial)
        loop, made = subject.config.loop, subject.environment
        put = partial(jax.device_put, device=self.scan.device)
        table = Table(
            put(made.next_state), put(made.reward), put(made.terminated), max(made.start, 0)
        )
        start = put(np.full(made.lanes, table.start, np.int32))
        self.carry = EpochCarry(self.scan.carry, self.scan.data, start, put(np.int32(0)))
        optimiser, gamma = self.scan.optimiser, subject.config.learn.gamma

        def learned(carry: EpochCarry, _: None) -> tuple[EpochCarry, None]:
            key, mine = jax.random.split(carry.learner.key)
            learner = carry.learner._replace(key=key)
            index = draw(spec, learner, mine)
            return carry._replace(learner=learn(spec, optimiser, carry.data, learner, index)), None

        def turn(carry: EpochCarry, _: None) -> tuple[EpochCarry, None]:
            for _step in range(loop.learn_every):
                carry = collect(spec, table, gamma, carry)
            return lax.scan(learned, carry, length=loop.learns_per_collect)

        def epoch(carry: EpochCarry) -> EpochCarry:
            return lax.scan(turn, carry, length=rounds)[0]

        self._epoch = jax.jit(epoch, donate_argnums=0)

    def epoch(self) -> None:
        with self.scan.precision():
            self.carry = self._epoch(self.carry)
        jax.block_until_ready(self.carry)

    def close(self) -> None:
        self.scan.close()
        self.__dict__.clear()
