"""The gate before any comparison: a peer takes our steps, from one start, on one list of rows.

Measured on float32 over many seeds: where no discrete choice is near its edge, 100 steps part ours
and a peer by 3e-8 to 4e-7 of the parameters' norm, and by up to 2e-6 of the losses'. Two things can
part two right implementations further, and neither is a difference of the operations:

- a ReLU whose input is zero within rounding (7e-8, in the case that was traced) is on for one side
  only. If the unit was silent before, Adam turns its first gradient, however small, into a step of
  the size of the learning rate. Over 100 steps at batch 128 and MLP 120-84 some 3 million inputs
  pass a ReLU: at S and M about half of 20 runs ended 1e-5 to 2e-3 apart, the others 4e-8 to 6e-7.
- with the priority's eps at 1e-6 a row of tiny TD error gets a leaf that magnifies the rounding of
  that error, and the batch's weights are divided by the weight of its smallest leaf.

So the 100 steps are taken at `GATE`: few units, eps 0.01, and a clip that binds on about half of
them; the rows repeat, so that written priorities are read again. At the timed sizes it is
`STEPS_AT_SIZE` steps, with eps 0.01 too.

The full step is held at `FULL_GATE`, where caps, shares and kappa bind, the blocks are dropped now
and then, and the quantiles have a part of the say. A third thing parts two right implementations
there: attention's keys have a bias that no output depends on. Its gradient is rounding, of which
Adam makes steps: with its eps at 1e-8, of 6 seeds 4 ended 4e-6 to 7e-6 apart after 100 steps, and 2
of them 3e-5 and 1e-4. And the gradient of a component that is over its share in every step has a
size that Adam does not see, so that a wrong share would not show. With an eps of 1e-3, which the
gate has, it does, and 10 seeds ended within 5e-6, most of them at 1.9e-6: that is how PyTorch's
fused AdamW rounds a decay. The peer that computes it as we do is 1e-7 off after 10 steps, the fused
one 1e-6. At the full size `STEPS_AT_SIZE` steps part the two by 1.1e-6 at most, of 3 seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from injected import InjectedRun
from numpy.typing import NDArray
from peers import Peer, PeerSpec, open_peer, problem
from peers.full.problem import draws_of, is_full
from peers.problem import InitialState, named_parameters

from onegraph.kernels.device import Device
from onegraph.kernels.learner.publish import RecordField
from onegraph.trainer.bench import BenchSubject, named_size

#: The bound on the relative difference, in the 2-norm, of losses and of parameters.
BOUND = 1e-5

STEPS = 100
STEPS_AT_SIZE = 10

GATE: Mapping[str, object] = {
    "states": 6,
    "network.hidden": [24, 16],
    "learn.batch_size": 32,
    "learn.max_grad_norm": 0.1,
    "replay.capacity": 1024,
    "replay.eps": 0.01,
}
FULL_GATE: Mapping[str, object] = {
    "seed": 4,
    "states": 16,
    "network.attention_groups": 4,
    "network.attention_heads": 2,
    "network.hidden": [16],
    "network.spectral_cap": 0.9,
    "network.gate_l1": 0.06,
    "network.drop_path": 0.4,
    "network.iqn.quantiles": 8,
    "network.iqn.target_quantiles": 6,
    "network.iqn.kappa": 0.5,
    "network.iqn.ready_low": 0.5,
    "network.iqn.ready_high": 3.0,
    "network.iqn.ready_decay": 0.9,
    "aux.iql_hidden": 12,
    "aux.modulate_eps": 0.1,
    "aux.denoise_hidden": 12,
    "aux.denoise_weight": 0.25,
    "learn.batch_size": 32,
    "learn.weight_decay": 0.1,
    "learn.adam_eps": 1e-3,
    "learn.max_grad_norm": 0.5,
    "replay.capacity": 1024,
    "replay.eps": 0.01,
}
AT_SIZE: Mapping[str, object] = {"replay.eps": 0.01}
FULL_AT_SIZE: Mapping[str, object] = {
    **AT_SIZE,
    "learn.adam_eps": 1e-3,
    "aux.modulate_eps": 0.1,
}


@dataclass(frozen=True)
class Trajectory:
    """What some steps did: the loss of each, and the parameters and priorities after the last."""

    losses: NDArray[np.float64]
    parameters: NDArray[np.float32]
    priorities: NDArray[np.float32]
    clipped: int = 0


@dataclass(frozen=True)
class Agreement:
    """Relative differences in the 2-norm."""

    losses: float
    parameters: float
    priorities: float

    @property
    def worst(self) -> float:
        return max(self.losses, self.parameters, self.priorities)


def gate_subject() -> BenchSubject:
    """The step at the size of the gate's 100 steps."""
    return BenchSubject(named_size("S"), GATE)


def full_subject() -> BenchSubject:
    """The full preset's step at a small size."""
    return BenchSubject(named_size("FULL"), FULL_GATE)


def rows(subject: BenchSubject, steps: int) -> NDArray[np.int32]:
    """The rows of each step [steps, B], drawn uniformly: they repeat.

    Within a full step they do not: a row that stands twice in a batch has two TD errors, of other
    quantile levels, and which of them a library keeps is its own affair.
    """
    shapes = subject.shapes
    rng = np.random.default_rng(subject.config.seed)
    if is_full(subject.config):
        drawn = [rng.permutation(shapes.capacity)[: shapes.draws] for _ in range(steps)]
        return np.array(drawn, np.int32)
    return rng.integers(0, shapes.capacity, (steps, shapes.batch)).astype(np.int32)


def ours(subject: BenchSubject, device: Device, steps: int) -> Trajectory:
    """Our steps, every stage on."""
    run = InjectedRun(subject, device)
    try:
        losses, clipped = [], 0
        for indices in rows(subject, steps):
            run.step(indices)
            losses.append(float(run.read("record")[RecordField.LOSS]))
            clipped += float(run.read("clip")[1]) < 1.0
        named = named_parameters(subject.network, run.read("theta"))
        return Trajectory(np.array(losses), _flat(named), run.read("replay_leaves"), clipped)
    finally:
        run.close()


def theirs(peer: Peer, subject: BenchSubject, steps: int) -> Trajectory:
    """A peer's steps on the same rows."""
    losses = []
    full = is_full(subject.config)
    for step, indices in enumerate(rows(subject, steps)):
        peer.step(draws_of(subject, step, indices) if full else indices)
        losses.append(peer.loss())
    return Trajectory(np.array(losses), _flat(peer.parameters()), peer.priorities())


def agreement(
    name: str, spec: PeerSpec, initial: InitialState, subject: BenchSubject, reference: Trajectory
) -> Agreement:
    """How far the peer `name` ends from `reference`.

    Raises:
        PeerUnavailableError: the peer can't run here.
    """
    peer = open_peer(name, spec, initial)
    try:
        found = theirs(peer, subject, len(reference.losses))
    finally:
        peer.close()
    return Agreement(
        _relative(found.losses, reference.losses),
        _relative(found.parameters, reference.parameters),
        _relative(found.priorities, reference.priorities),
    )


def start(subject: BenchSubject, device: Device) -> tuple[PeerSpec, InitialState]:
    """Where the peers start, on the kind of device that ours run on."""
    return problem(subject, device.kind)


def _flat(named: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate([values.ravel() for values in named.values()])


def _relative(found: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
    difference = np.linalg.norm(np.asarray(found, np.float64) - reference)
    return float(difference / np.linalg.norm(np.asarray(reference, np.float64)))
