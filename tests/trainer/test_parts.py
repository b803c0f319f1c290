"""Each part of the learner: what is there with it, and that nothing of it is left without it."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pytest
from trainer.setups import fill, full, make, small, steps

from onegraph.kernels.device import HostDevice
from onegraph.stages.program import GraphLaunch, Launch, Op
from onegraph.stages.registry import up_to
from onegraph.trainer.config import Config
from onegraph.trainer.phases import PHASES
from onegraph.trainer.trainer import Trainer

pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")


@dataclass(frozen=True)
class Part:
    """A part, and what is its own.

    Attributes:
        on, off: the fields that put it in, and those that leave it out of the preset `full`.
        kernels: that nothing else launches.
        buffers: pattern of the names of its buffers.
        tensors: first words of the names of its parameters.
        phases: of the full preset that have work for it alone.
        shared: kernels that it may bring along, which other parts launch too.
    """

    on: dict[str, object]
    off: dict[str, object]
    kernels: set[str]
    buffers: str
    tensors: set[str] = field(default_factory=set)
    phases: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)


BUDGET = {"component_norms", "apply_budget", "clip_factor"}

PARTS = {
    "gate": Part(
        {"network__gate": True},
        {"network__gate": False},
        {"gate_forward", "gate_backward"},
        r"(\w*)gate\.\w+",
        {"gate"},
    ),
    "attention": Part(
        {"network__attention_groups": 2},
        {"network__attention_groups": 0},
        {"attention_core", "attention_core_grad"},
        r"(\w*)attn\.\w+",
        {"attn"},
        shared={"scaled_add"},
    ),
    "residual blocks": Part(
        {"network__residual_blocks": 2, "network__drop_path": 0.3},
        {"network__residual_blocks": 0},
        {"layer_norm", "layer_norm_grad", "scaled_add_grad", "depth_masks"},
        r"(\w*)block\.\d\.\w+|depth_scale",
        {"block"},
        shared={"scaled_add"},
    ),
    "stochastic depth": Part(
        {"network__residual_blocks": 2, "network__drop_path": 0.3},
        {"network__drop_path": 0.0},
        {"depth_masks", "scaled_add_grad"},
        r"(\w*)block\.\d\.grad_branch|depth_scale",
    ),
    "quantile head": Part(
        {"network__head": "iqn"},
        {"network__head": "dqn"},
        {
            "iqn_cosines",
            "iqn_mix",
            "iqn_mix_grad",
            "iqn_values",
            "iqn_loss",
            "iqn_readiness",
        },
        r"(\w*)iqn\.\w+|iqn_ready|(vaccine_)?plain_\w+",
        {"iqn"},
        shared={"relu_epilogue"},
    ),
    "plain head beside the quantiles": Part(
        {"network__head": "iqn"},
        {"network__iqn__readiness": False},
        {"dqn_loss", "iqn_readiness"},
        r"(online|target|select|aux|act_)head|onlinegrad_head|(vaccine_)?plain_\w+",
        {"head"},
    ),
    "categorical head": Part(
        {"network__head": "c51"},
        {"network__head": "dqn"},
        {"c51_values", "c51_loss"},
        r"(\w*)c51\.\w+",
        {"c51"},
    ),
    "noisy": Part(
        {"network__noisy": True},
        {"network__noisy": False},
        {"noisy_weights", "noisy_grad"},
        r"noisy_\w+|theta_noisy_\w+",
    ),
    "spectral": Part(
        {"network__spectral_cap": 0.5},
        {"network__spectral_cap": 0.0},
        {"spectral_left", "spectral_right", "spectral_scale", "spectral_dot", "spectral_grad"},
        r"spectral_\w+|theta_(target_)?normal",
        phases={"spectral"},
    ),
    "value networks": Part(
        {"aux__iql": True},
        {"aux__iql": False, "aux__modulate": False},
        {"expectile_loss"},
        r"valueiql_\w+|aux[\w.]+",
        {"iql", "iql_low"},
        {"iql_modulate"},
    ),
    "modulation": Part(
        {"aux__iql": True, "aux__modulate": True},
        {"aux__modulate": False},
        {"iql_modulate"},
        r"$",  # it works on the errors in place
        phases={"iql_modulate"},
    ),
    "denoising": Part(
        {"aux__denoise": True},
        {"aux__denoise": False},
        {"add_noise", "denoise_loss"},
        r"noised[\w.]+|grad_aux",
        {"denoise"},
        shared={*BUDGET, "relu_epilogue"},
    ),
    "auxiliaries": Part(
        {"aux__iql": True, "aux__denoise": True},
        {"aux__iql": False, "aux__modulate": False, "aux__denoise": False},
        {"expectile_loss", "add_noise", "denoise_loss"},
        r"valueiql_\w+|aux[\w.]+|noised[\w.]+|grad_aux",
        {"iql", "iql_low", "denoise"},
        {"aux", "iql_modulate"},
        shared={*BUDGET, "relu_epilogue"},
    ),
    "budget": Part(
        {"learn__budget__on": True},
        # The denoising gradient is added by the budget's kernels, with or without limits.
        {"learn__budget__on": False, "aux__denoise": False},
        {"component_norms", "apply_budget"},
        r"budget_\w+",
        shared={"clip_factor"},
    ),
    "vaccine": Part(
        {"learn__vaccine": True},
        {"learn__vaccine": False},
        {"vaccine_partial", "project_gradient"},
        r"vaccine_\w+|grad_vaccine",
        shared={"clip_factor"},
    ),
}

EACH = pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)


@dataclass(frozen=True)
class Found:
    """What a trainer at stage 0 or at all stages is made of."""

    kernels: set[str]
    buffers: set[str]
    tensors: set[str]
    phases: set[str]


def _kernels(op: Op) -> set[str]:
    if isinstance(op, GraphLaunch):
        return {name for inner in op.body for name in _kernels(inner)}
    return {op.kernel} if isinstance(op, Launch) else set()


def found(config: Config, stages: str) -> Found:
    trainer = make(HostDevice(), config, stages)
    programs = (trainer.learn_program, trainer.collect_program)
    kernels = {name for p in programs for _, op in p.ops() for name in _kernels(op)}
    buffers = set(trainer.workspace.buffers)
    phases = {p.name for p in trainer.learn_program.phases if p.ops}
    tensors = {t.name.split(".")[0] for t in trainer.network.layout}
    trainer.close()
    return Found(kernels, buffers, tensors, phases)


def named(pattern: str, names: set[str]) -> set[str]:
    return {name for name in names if re.fullmatch(pattern, name)}


def test_every_part_acts_in_the_small_full_learner() -> None:
    """Or that its bits are the same in every set of stages would say little of it."""
    config = full()
    trainer = fill(make(HostDevice(), config))
    seen: dict[str, list[np.ndarray]] = defaultdict(list)
    names = ("depth_scale", "iqn_ready", "vaccine_removed", "budget_scales", "spectral_sigma")
    for _ in range(config.loop.epoch_steps):
        steps(trainer, 1)
        for name in names:
            seen[name].append(trainer.workspace.read(name))
        seen["td"].append(np.abs(trainer.workspace.read("td")).mean())
        seen["unscaled td"].append(trainer.history(1)["td_mean"][0])
    depth = np.array(seen["depth_scale"])
    assert (depth == 0.0).any()
    assert (depth.min(axis=1) > 1.0).any(), "each that is kept is scaled up"
    ready = np.array(seen["iqn_ready"])[:, 1]
    assert ((ready > 0.0) & (ready < 1.0)).any()
    assert min(seen["vaccine_removed"]) < 0.0
    scales = np.array(seen["budget_scales"])
    assert (scales < 1.0).any()
    assert (scales == 1.0).any()
    assert (np.array(seen["spectral_sigma"]) > config.network.spectral_cap).any()
    ratio = np.array(seen["td"]) / np.array(seen["unscaled td"])
    assert ratio.max() > 1.1
    assert ratio.min() < 0.9
    trainer.close()


@EACH
@pytest.mark.parametrize("stages", ["0", "4,2,1"])
def test_off_in_the_full_preset_it_is_gone(part: Part, stages: str) -> None:
    with_it, without = found(full(**part.on), stages), found(full(**part.off), stages)
    assert part.kernels <= with_it.kernels
    assert part.tensors <= with_it.tensors
    assert part.phases <= with_it.phases
    assert named(part.buffers, with_it.buffers) or part.buffers == "$"

    assert not part.kernels & without.kernels
    assert not part.tensors & without.tensors
    assert not part.phases & without.phases
    assert named(part.buffers, without.buffers) == set()


#: Parts of parts: alone they have nothing to stand on.
ALONE = {
    name: part
    for name, part in PARTS.items()
    if name not in ("stochastic depth", "plain head beside the quantiles", "modulation")
}


@pytest.mark.parametrize("part", ALONE.values(), ids=ALONE)
def test_on_by_itself_it_brings_its_own_and_nothing_else(part: Part) -> None:
    without, with_it = found(small(), "4,2,1"), found(small(**part.on), "4,2,1")
    new = with_it.kernels - without.kernels
    assert part.kernels <= new <= part.kernels | part.shared
    assert with_it.tensors - without.tensors == part.tensors
    others = named(r"budget_\w+|onlinegrad_in", with_it.buffers)
    added = with_it.buffers - without.buffers
    assert added - others <= named(part.buffers, with_it.buffers)


PHASED = {name: part for name, part in PARTS.items() if part.phases}


@pytest.mark.parametrize("part", PHASED.values(), ids=PHASED)
def test_a_phase_without_work_has_no_graph(part: Part) -> None:
    for config, there in ((full(**part.on), True), (full(**part.off), False)):
        trainer = steps(fill(make(HostDevice(), config, up_to(5))), 2)
        absent = set() if there else part.phases
        assert set(trainer.graph_nodes()) == set(PHASES) - absent
        assert trainer.learn().by_kind() == {"graph_launch": len(PHASES) - len(absent)}
        trainer.close()


def test_a_part_that_is_off_costs_no_node() -> None:
    """The preset `dqn` is what it was without any part."""

    def nodes(config: Config) -> int:
        trainer: Trainer = steps(fill(make(HostDevice(), config)), 1)
        count = sum(trainer.graph_nodes().values())
        trainer.close()
        return count

    alone = nodes(small())
    for part in PARTS.values():
        assert nodes(small(**part.off)) == alone
