"""The gradient of the whole learner, against central differences of its losses in float64.

The phases `counters` to `post_aux` run on the host device with arrays of float64 in the place of
float32 ones: the twins keep the type of what they are given, so that it is the wiring of the
trainer's own ops that is held to the losses, and rounding is far below any tolerance. Targets,
draws, u and v of the spectral norm, and the depth masks are constants, as they are in the papers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from trainer.setups import fill, full, make, steps

from onegraph.kernels import catalogue
from onegraph.kernels.device import HostDevice
from onegraph.kernels.learner.sigmoid import sigmoid64
from onegraph.stages.program import Launch, Op, Phase, StepProgram
from onegraph.stages.runner import Runner
from onegraph.stages.workspace import Workspace
from onegraph.trainer.blocks.gate import LOGIT, SelectivityGate
from onegraph.trainer.blocks.iqn import IqnHead
from onegraph.trainer.blocks.spectral import SpectralNorm
from onegraph.trainer.config import Config
from onegraph.trainer.learner import GRAD, GRAD_AUX, GRAD_VACCINE
from onegraph.trainer.network import QNetwork

NO_BLOCKS = {"network__residual_blocks": 0}

VARIANTS: dict[str, Config] = {
    "full": full(),
    "c51": full(network__head="c51", network__c51__atoms=7),
    "dqn, noisy": full(network__head="dqn", network__noisy=True),
    "iqn, noisy": full(network__noisy=True),
    "no residual": full(**NO_BLOCKS),
    "c51, no residual": full(**NO_BLOCKS, network__head="c51"),
    "no readiness": full(network__iqn__readiness=False),
    "no readiness, no residual": full(**NO_BLOCKS, network__iqn__readiness=False),
    "no vaccine, not dueling": full(
        learn__vaccine=False, network__dueling=False, network__double=False
    ),
    "trunk of hidden layers": full(
        **NO_BLOCKS,
        network__gate=False,
        network__attention_groups=0,
        network__spectral_cap=0.0,
    ),
}

pytestmark = pytest.mark.slow

#: What scales or projects a finished gradient; each has tests of its own.
AFTER = {"component_norms", "apply_budget", "vaccine_partial", "project_gradient"}

#: Along a unit direction. float64 noise over this step is near 1e-9 of a loss, and no ReLU or
#: Huber bend of these batches lies within it.
STEP = 1e-6

#: Of a tensor's gradient, in the 2-norm: what rounding and curvature over the step leave. A term
#: that is missing or doubled, or rows of another part, change it by 1e-3 and more.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Wide:
    """One batch of a trainer in float64: its losses as a function of the parameters."""

    config: Config
    network: QNetwork
    space: Workspace
    forward: Runner
    backward: Runner
    theta: NDArray[np.float64]

    def losses(self, theta: NDArray[np.float64]) -> dict[str, float]:
        """The objective that each gradient buffer is the slope of."""
        self.space.write("theta", theta)
        self.forward.step()
        penalty = 0.0
        if self.config.network.gate:
            logit = self.network.layout[LOGIT].values(theta)[: self.network.observation_width]
            penalty = self.config.network.gate_l1 * float(sigmoid64(logit)[0].sum())
        found = {GRAD: self._means("loss", "plain_loss", "valueiql_loss", "valueiql_low_loss")}
        found[GRAD] += penalty
        if self.config.aux.denoise:
            found[GRAD_AUX] = self._means("noiseddenoise_loss")
        if self.config.learn.vaccine:
            found[GRAD_VACCINE] = self._means("vaccine_loss", "vaccine_plain_loss") + penalty
        return found

    def _means(self, *names: str) -> float:
        there = [name for name in names if name in self.space.buffers]
        assert names[0] in there
        return sum(float(self.space.read(name).mean()) for name in there)

    def gradients(self) -> dict[str, NDArray[np.float64]]:
        self.losses(self.theta)
        self.backward.step()
        names = [n for n in (GRAD, GRAD_AUX, GRAD_VACCINE) if n in self.space.buffers]
        return {name: self.space.read(name) for name in names}


def wide(config: Config, monkeypatch: pytest.MonkeyPatch) -> Wide:
    """A trainer of `config` after some steps, with its last batch, in float64."""
    trainer = steps(fill(make(HostDevice(), config, "all")), 6)
    trainer.learn()
    while config.network.residual_blocks and not trainer.workspace.read("depth_scale").all():
        trainer.learn()  # until no block is left out
    values = {n: trainer.workspace.read(n) for n in trainer.workspace.arrays}
    work: Mapping[str, tuple[Op, ...]] = trainer.programs.learner.work
    buffers = trainer.learn_program.buffers
    trainer.close()

    monkeypatch.setitem(catalogue.DTYPES, "f32", np.dtype(np.float64))  # type: ignore[arg-type]
    space = Workspace(HostDevice())
    space.ensure(buffers)
    for buffer in buffers:
        dtype = catalogue.DTYPES[buffer.dtype]
        if buffer.name in values and buffer.name not in (GRAD, GRAD_AUX, GRAD_VACCINE):
            space.write(buffer.name, values[buffer.name].astype(dtype))

    def runner(*phases: str) -> Runner:
        made = tuple(Phase(name, tuple(map(_fixed, _kept(work[name])))) for name in phases)
        return Runner(StepProgram("wide", "learn", made, buffers), space)

    return Wide(
        config,
        trainer.network,
        space,
        runner("counters", "spectral", "forward", "ddqn", "aux"),
        runner("post_aux"),
        values["theta"].astype(np.float64),
    )


def _kept(ops: tuple[Op, ...]) -> list[Op]:
    return [op for op in ops if not (isinstance(op, Launch) and op.kernel in AFTER)]


def _fixed(op: Op) -> Op:
    """The power iteration with u and v as they are: the gradient takes them as constants."""
    if isinstance(op, Launch) and op.kernel in ("spectral_right", "spectral_scale"):
        return replace(op, args={**op.args, "iterate": 0})
    return op


def wrong_tensors(learner: Wide) -> dict[str, float]:
    """Tensors whose gradient is not the losses' slope, by how much of the gradient it is off."""
    gradients = learner.gradients()
    rng = np.random.default_rng(5)
    wrong = {}
    for tensor in learner.network.layout:
        direction = np.zeros_like(learner.theta)
        tensor.values(direction)[...] = rng.normal(size=tensor.shape)
        direction /= np.linalg.norm(direction)
        above = learner.losses(learner.theta + STEP * direction)
        below = learner.losses(learner.theta - STEP * direction)
        for name, gradient in gradients.items():
            slope = (above[name] - below[name]) / (2 * STEP)
            norm = max(float(np.linalg.norm(tensor.values(gradient))), 1e-3)
            off = abs(float(gradient @ direction) - slope) / norm
            if not off <= TOLERANCE:
                wrong[f"{name} of {tensor.name}"] = off
    return wrong


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_tensors_gradient_is_the_slope_of_the_losses(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = wide(VARIANTS[variant], monkeypatch)
    assert wrong_tensors(learner) == {}
    # Or the equality would say little of these parts.
    if learner.config.network.spectral_cap:
        sigma = learner.space.read("spectral_sigma")
        assert (sigma > learner.config.network.spectral_cap).any()
    if learner.config.network.residual_blocks:
        assert learner.space.read("depth_scale").max() > 1.0
    gradients = learner.gradients()
    for tensor in learner.network.layout:
        assert sum(np.abs(tensor.values(g)).sum() for g in gradients.values()) > 0.0, tensor.name


# ------------------------------------------------------------------------ faults that must show


def lose_the_plain_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient in the features is not added to the quantiles'."""
    real = IqnHead.backward
    monkeypatch.setattr(
        IqnHead,
        "backward",
        lambda head, emit, features, grad, **_: real(head, emit, features, grad, add_to=None),
    )


def take_the_mask_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient passes the trunk's last ReLU where that is zero."""
    real = QNetwork.trunk_backward
    monkeypatch.setattr(
        QNetwork,
        "trunk_backward",
        lambda net, emit, x, features, grad, **_: real(net, emit, x, features, grad, masked=True),
    )


def take_the_rows_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vaccine's gradient is formed with the first half of the states."""
    real = QNetwork.backward
    monkeypatch.setattr(
        QNetwork,
        "backward",
        lambda net, emit, x, *args: real(net, emit, replace(x, offset=0), *args),
    )


def count_the_penalty_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate's penalty is in the denoising pass' gradient too."""
    real = SelectivityGate.backward
    monkeypatch.setattr(
        SelectivityGate,
        "backward",
        lambda gate, emit, *args, **kw: real(
            gate, replace(emit, ops=emit.ops, penalties=True), *args, **kw
        ),
    )


def leave_a_gradient_in_the_normalised_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SpectralNorm.grad_ops
    monkeypatch.setattr(
        SpectralNorm,
        "grad_ops",
        lambda norm, *, grads: () if grads == GRAD_AUX else real(norm, grads=grads),
    )


#: What each fault must be seen in, at least.
FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str, set[str]]] = {
    "a head's contribution is missing": (
        lose_the_plain_head,
        "full",
        {"grad of hidden.0.weight", "grad_vaccine of block.1.linear2.bias", "grad of gate.logit"},
    ),
    "a wrong mask": (
        take_the_mask_as_done,
        "no residual",
        {"grad of hidden.1.weight", "grad_vaccine of hidden.1.bias", "grad_aux of hidden.1.bias"},
    ),
    "rows of another part": (
        take_the_rows_of_the_batch,
        "c51",
        {"grad_vaccine of gate.logit"},
    ),
    "a penalty twice": (count_the_penalty_twice, "full", {"grad_aux of gate.logit"}),
    "a step of the chain rule is missing": (
        leave_a_gradient_in_the_normalised_weights,
        "full",
        {"grad_aux of hidden.0.weight"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_wiring_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, variant, seen = FAULTS[fault]
    plant(monkeypatch)
    wrong = wrong_tensors(wide(VARIANTS[variant], monkeypatch))
    assert seen <= set(wrong), wrong
    assert min(wrong[name] for name in seen) > 100 * TOLERANCE, wrong
