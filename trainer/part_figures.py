"""What the learner's optional parts say of a learning step, read once an epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onegraph.guards.markers import cold_path
from onegraph.kernels.learner.budget import Component
from onegraph.kernels.learner.iqn_readiness import Ready
from onegraph.trainer.blocks.iqn import READY

if TYPE_CHECKING:
    from onegraph.trainer.trainer import Trainer


@dataclass(frozen=True)
class PartFigures:
    """Figures of one learning step; of a part that is off there are none.

    Attributes:
        gradient_norms: 2-norm of each component of the gradient, before the budget.
        gradient_scales: what the budget scaled it by: 1 within its share, 0 without a share.
        quantile_loss: the average of the quantile head's loss that readiness goes by; NaN before
            the first step that counts.
        quantile_weight: how much of the action values is the quantile head's, 0 to 1.
        spectral_norms: largest singular value of each normalised matrix of the online network, as
            the power iteration has it, before the cap.
        vaccine_removed: the factor of the vaccine gradient that was projected out; 0 or below.
        aux_losses: mean over the batch: ``iql_high``, ``iql_low`` and ``denoise``.
    """

    gradient_norms: dict[str, float] = field(default_factory=dict)
    gradient_scales: dict[str, float] = field(default_factory=dict)
    quantile_loss: float | None = None
    quantile_weight: float | None = None
    spectral_norms: dict[str, float] = field(default_factory=dict)
    vaccine_removed: float | None = None
    aux_losses: dict[str, float] = field(default_factory=dict)

    def words(self) -> list[str]:
        """What belongs on an epoch's line, a phrase for each part."""
        said = []
        if self.quantile_weight is not None:
            said.append(f"quantile weight {self.quantile_weight:.3g}")
        if self.aux_losses:
            said.append("losses " + _listed(self.aux_losses))
        if self.gradient_scales:
            scaled = {name: s for name, s in self.gradient_scales.items() if s != 1.0}
            said.append("scaled " + _listed(scaled) if scaled else "no gradient scaled")
        if self.spectral_norms:
            said.append(f"largest sigma {max(self.spectral_norms.values()):.3g}")
        if self.vaccine_removed is not None:
            said.append(f"vaccine {self.vaccine_removed:.3g}")
        return said


def _listed(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in figures.items())


@cold_path("in the epoch scope, when no step runs")
def part_figures(trainer: Trainer) -> PartFigures | None:
    """Figures of the trainer's last learning step; ``None`` where no part that has some is on."""
    network, learn = trainer.network, trainer.config.learn
    learner = trainer.programs.learner
    with trainer.device.ledger.within("epoch"):
        read = trainer.workspace.read
        norms, scales = dict[str, float](), dict[str, float]()
        if learn.budget.on:
            names = [component.name.lower() for component in Component]
            norms = dict(zip(names, read("budget_norms").tolist(), strict=True))
            scales = dict(zip(names, read("budget_scales").tolist(), strict=True))
        loss = weight = None
        if network.iqn and network.iqn.readiness:
            ready = read(READY)
            loss, weight = float(ready[Ready.EMA]), float(ready[Ready.WEIGHT])
        sigmas = dict[str, float]()
        if network.spectral:
            matrices = network.spectral.names
            online = read("spectral_sigma")[: len(matrices)].tolist()
            sigmas = dict(zip(matrices, online, strict=True))
        removed = float(read("vaccine_removed")[0]) if learn.vaccine else None
        losses = {
            name: float(read(at.buffer).mean(dtype="f8")) for name, at in learner.aux_losses.items()
        }
    found = PartFigures(norms, scales, loss, weight, sigmas, removed, losses)
    return None if found == PartFigures() else found
