"""What compute-sanitizer looks at (`make gpu-sanitize`): each kernel once, and small trainers.

The sizes sit just beyond a warp, a block or a tile, where an index goes wrong first; the sanitizer
slows kernels down by up to a hundred times, so there are few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from capture_scenarios import CHILDREN, FORKED, config, steps, trainer_on
from fused_cases import apply_case, td_case
from gpu import test_aux_kernels as aux
from gpu import test_env_kernels as env
from gpu import test_fused_kernels as fused
from gpu import test_gemm as matmul
from gpu import test_head_kernels as heads
from gpu import test_hindsight_kernels as hindsight
from gpu import test_learner_kernels as learner
from gpu import test_matmul as tiles
from gpu import test_matmul_long as long_sums
from gpu import test_optim_kernels as optim
from gpu import test_replay as replay
from gpu import test_trunk_kernels as trunk
from gpu import test_update_step as updating
from pair_runs import run_on
from scratch_rules import run_poisoned

from onegraph.kernels.device import Device
from onegraph.kernels.device.base import Matmul
from onegraph.kernels.env.env_market import Fill, RewardKind, Sizing
from onegraph.kernels.learner.advance_counters import COLLECT
from onegraph.kernels.replay.hindsight_assemble import Strategy
from onegraph.stages.registry import ALL, up_to
from onegraph.trainer.blocks import grouping

pytestmark = [pytest.mark.gpu, pytest.mark.sanitize]


@pytest.fixture(scope="module")
def cuda() -> Iterator[Device]:
    """Without cuBLASLt, whose kernels are not ours to check and slow to load under a tool."""
    from onegraph.kernels.device.cuda import CudaDevice

    with CudaDevice(gemm="kernel") as device:
        yield device


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _gemm(cuda: Device) -> None:
    for shape, trans in (((17, 33, 65), (True, False)), ((33, 36, 68), (False, True))):
        spec = Matmul(*shape, *trans)
        a, b, _ = matmul.operands(spec)
        for tile_m in (16, 32):  # one block, so that it goes from tile to tile
            matmul.raw(cuda, spec, a, b, tile_m=tile_m, max_blocks=1)
    matmul.test_kernel_against_float64(cuda, (17, 33, 65), (False, False))


def _tiles(precision: str) -> Callable[[Device], None]:
    def run(device: Device) -> None:
        for tile in range(5):
            tiles.test_bits_depend_on_neither_grid_nor_alignment(device, tile, precision)

    return run


#: By kernel of the catalogue: its test at one size.
CASES: dict[str, Callable[[Device], None]] = {
    "act": lambda d: learner.test_act(d, 257, 3, 4, 0.3, 0),
    "adam_step": lambda d: learner.test_adam_step(d, 257, "several", 0),
    "add_noise": lambda d: aux.test_add_noise(d, 33, 5, 8, 0.3, 1),
    "add_norm": lambda d: trunk.test_add_norm(d, 33, 257, 0, 1, 1.25),
    "advance_counters": lambda d: (
        learner.test_bias_corrections_at_any_age(d, 2),
        learner.test_advance_counters_through_a_run(d, COLLECT, 2),
    ),
    "apply_budget": lambda d: optim.test_apply_budget(d, 1001, 3, 1, 0.5),
    "attention_core": lambda d: trunk.test_attention_core(d, 5, 8, 12, 2, 0),
    "attention_core_grad": lambda d: trunk.test_attention_core_grad(d, 5, 8, 12, 2, 0),
    "batch_stats": lambda d: learner.test_batch_stats(d, 257, 0.01),
    "c51_loss": lambda d: heads.test_c51_loss(d, 5, 51, 3, 1, 0.002),
    "c51_values": lambda d: heads.test_c51_values(d, 5, 51, 5, 0),
    "claim_priorities": lambda d: replay.test_priorities_in_several_launches(
        d, _rng(), 1, 1025, 1025, 0.6, 1e-6
    ),
    "clip_factor": lambda d: learner.test_clip_factor(d, 255, 0.5, None),
    "column_sum": lambda d: learner.test_column_sum(d, 33, 33),
    "component_norms": lambda d: optim.test_component_norms(d, 1001, 3, 1),
    "apply_step": lambda d: fused.test_apply_step(d, (33, 16, 36, 52, 4, 1)),
    "draw_batch": lambda d: [
        fused.test_draw_batch(d, 4096, each, 1025, 5, 65, 5, 130, 136) for each in (1, 8)
    ],
    "draw_relabelled": lambda d: fused.test_draw_relabelled(
        d, Strategy.RANDOM, 7, 100, 60, 0.1, 70, 5
    ),
    "draw_rows": lambda d: fused.test_draw_rows(d, 4096, 700, 7, 65, 3, 130, 136),
    "td_pass": lambda d: fused.test_td_pass(d, (33, 16, 36, 52, 4, 1), 3, 4),
    "write_back": lambda d: [
        fused.test_write_back(d, 4096, form, 1025, 32_769) for form in fused.Form
    ],
    "denoise_loss": lambda d: aux.test_denoise_loss(d, 257, 5, 8, 0.7),
    "depth_masks": lambda d: trunk.test_depth_masks(d, 33, 0.3),
    "dqn_loss": lambda d: learner.test_dqn_loss(d, 257, 5, 1, 1, 0),
    "env_bit_flip": lambda d: hindsight.test_env_bit_flip(d, 5, 33, 72, 4),
    "env_coin": lambda d: env.test_env_coin(d, 131, 40),
    "env_market": lambda d: env.test_env_market_in_every_mode(
        d, Sizing.EQUITY, Fill.NEXT_OPEN, RewardKind.LOG_RATIO
    ),
    "env_receive": lambda d: env.test_env_receive(d, 131, 40, 0),
    "env_tabular": lambda d: env.test_env_tabular(d, 5, 40, -1, 3),
    "expectile_loss": lambda d: aux.test_expectile_loss(d, 257, 3, 1, 0.7, 0.3),
    "gate_backward": lambda d: trunk.test_gate_backward(d, 33, 9, 0.3, 0),
    "gate_forward": lambda d: trunk.test_gate_forward(d, 33, 9, 5),
    "gather_f32": lambda d: replay.test_gather_scalars(d, _rng(), 1, "f32", 1023),
    "gather_i32": lambda d: replay.test_gather_scalars(d, _rng(), 1, "i32", 1023),
    "gather_relabelled": lambda d: hindsight.test_gather_relabelled(d, 257, 30, 32, 30, 0, 15, 15),
    "gather_rows": lambda d: replay.test_gather_rows(d, _rng(), 1, 257, 5, 8, 8),
    "gemm": _gemm,
    "gemm_group": lambda d: matmul.test_a_group_of_any_tiles_on_any_grid(d, 16, 3),
    "grad_norm": lambda d: learner.test_grad_norm(d, 5003, 3, None),
    "grad_norm_partial": lambda d: learner.test_grad_norm_partial(d, 5003, 3),
    "hindsight_assemble": lambda d: [
        hindsight.test_hindsight_assemble(d, strategy, 5, 33, 50, 0.5, 37, 5)
        for strategy in hindsight.Strategy
    ],
    "importance_weights": lambda d: replay.test_importance_weights(d, _rng(), 1025, 0.73),
    "insert_rows": lambda d: replay.test_insert_rows(d, _rng(), 1, 33, 40, 3, 1),
    "iql_modulate": lambda d: aux.test_iql_modulate(d, 257, 1.0, 1.0, 1e-3, 0.5, 2.0),
    "iqn_cosines": lambda d: heads.test_iqn_cosines(d, 257, 7, 0, 1),
    "iqn_loss": lambda d: heads.test_iqn_loss(d, 5, 33, 17, 3, 1, 0.005),
    "iqn_mix": lambda d: heads.test_iqn_mix(d, 5, 3, 7),
    "iqn_mix_grad": lambda d: heads.test_iqn_mix_grad(d, 5, 3, 7, 1, 1.25),
    "iqn_readiness": lambda d: heads.test_iqn_readiness(d, 257, (0.7, 0.4), 0, None),
    "iqn_values": lambda d: heads.test_iqn_values(d, 5, 5, 3, 0.3),
    "layer_norm": lambda d: trunk.test_layer_norm(d, 33, 257, 0),
    "layer_norm_grad": lambda d: trunk.test_layer_norm_grad(d, 33, 257, 0, 1, 1, 1.25),
    "loop_control": lambda d: learner.test_loop_control(d, (9, 0, 2, 0), 1),
    "maintain": lambda d: learner.test_maintain(d, 257, 257, 0.005, 0, 0),
    "matmul_float32": _tiles("float32"),
    "matmul_long": lambda d: [
        long_sums.test_bits_depend_on_neither_grid_nor_alignment(d, shape)
        for shape in ((130, 36, 1284), (65, 7, 4099))
    ],
    "matmul_tf32": _tiles("tf32"),
    "matmul_tf32x3": _tiles("tf32x3"),
    "noisy_grad": lambda d: optim.test_noisy_grad(d, [(33, 34), (5, 1)]),
    "noisy_weights": lambda d: optim.test_noisy_weights(d, [(33, 34), (5, 1)], 0, 3),
    "nstep_assemble": lambda d: replay.test_nstep_assemble(d, _rng(), 1, 7, 100, 350, 3),
    "pad_rows": lambda d: replay.test_pad_rows(d, _rng(), 1, 257, 5, 8),
    "philox_thresholds": lambda d: replay.test_philox_thresholds(d, _rng(), 1, 257, 1),
    "project_gradient": lambda d: optim.test_project_gradient(d, 1001, 3, -1),
    "publish": lambda d: learner.test_publish(d, 6, 5),
    "raw_weights": lambda d: replay.test_weights_in_two_launches(d, _rng(), 1, 257, 0.4),
    "refresh_drawn": lambda d: replay.test_priorities_in_several_launches(
        d, _rng(), 4096, 40_000, 32, 0.6, 1e-6
    ),
    "refresh_inserted": lambda d: replay.test_refresh_inserted(d, _rng(), 33, 40, 39),
    "refresh_slot": lambda d: replay.test_refresh_inserted(d, _rng(), 2000, 20, 7),
    "refresh_touched": lambda d: replay.test_priorities_in_several_launches(
        d, _rng(), 4096, 40_000, 32, 0.6, 1e-6
    ),
    "relu_epilogue": lambda d: matmul.test_relu_epilogue_equals_its_twin(d, 257, 1, 4, 8),
    "sample_batch": lambda d: (
        replay.test_sample_batch(d, _rng(), 4096, 700, 7, 64, 3, 1),
        replay.test_sample_batch_of_several_rows_a_warp(d, _rng(), 4096, 1025, 5, 65, 5, 17, 20),
    ),
    "scale_weights": lambda d: replay.test_weights_in_two_launches(d, _rng(), 4096, 257, 0.4),
    "scaled_add": lambda d: trunk.test_scaled_add_and_its_gradient(d, 257, 1.25, 1),
    "scaled_add_grad": lambda d: trunk.test_scaled_add_and_its_gradient(d, 257, 1.25, 1),
    "spectral_dot": lambda d: optim.test_spectral_dot(d, [(33, 130), (5, 1)], 3),
    "spectral_grad": lambda d: optim.test_spectral_grad(d, [(33, 130), (5, 1)], 3),
    "spectral_left": lambda d: optim.test_spectral_iteration(d, [(33, 130), (5, 1)], 1, 3, 7),
    "spectral_right": lambda d: optim.test_spectral_iteration(d, [(33, 130), (5, 1)], 1, 3, 7),
    "spectral_scale": lambda d: optim.test_spectral_iteration(d, [(33, 130), (5, 1)], 0, 3, 7),
    "target_update": lambda d: learner.test_target_update(d, 257, 0.005, 0, 1, 0),
    "tree_descend": lambda d: replay.test_tree_descend(d, _rng(), 1, 1025, 33, 0.5),
    "update_priorities": lambda d: replay.test_update_priorities(d, _rng(), 1025, 1025, 0.6, 1e-6),
    "update_step": lambda d: (
        updating.test_update_step(d, "odd", "full", 1),
        updating.test_update_step(d, "one", "plain", 1),
    ),
    "vaccine_partial": lambda d: optim.test_vaccine_partial(d, 1001, 3),
    "sample_relabelled": lambda d: [
        hindsight.test_sample_relabelled(d, strategy, 5, 33, 50, 0.5, 700, 40, 1)
        for strategy in hindsight.Strategy
    ],
    "write_priorities": lambda d: replay.test_priorities_in_several_launches(
        d, _rng(), 4096, 1025, 257, 0.6, 1e-6
    ),
}


@pytest.mark.parametrize("kernel", CASES)
def test_kernel(cuda, kernel) -> None:
    CASES[kernel](cuda)
    assert any(name == kernel for name, _ in cuda.launch_sites)


@pytest.mark.parametrize("stages", [up_to(4), CHILDREN, ALL], ids=["4", "5", "6"])
def test_trainer(cuda, stages) -> None:
    trainer = trainer_on(cuda, stages, config(learn__batch_size=33, loop__start_steps=36))
    steps(trainer, 3)
    trainer.learn(timed=True)
    trainer.timings()
    trainer.close()


@pytest.mark.parametrize("name", ["rows3-cluster8", "rows8-cluster4"])
def test_fused_trainer(cuda, name) -> None:
    fused.needs_clusters(cuda)
    small = {"network__hidden": [36, 52], "learn__batch_size": 33, "loop__start_steps": 36}
    trainer = trainer_on(cuda, ALL, config(**small, fusion=name))
    steps(trainer, 3)
    trainer.learn(timed=True)
    trainer.timings()
    trainer.close()


@pytest.mark.parametrize("size", [(0, 8, 16, 16, 2, 1), (129, 24, 64, 252, 1, 0)], ids=str)
def test_fused_kernels_at_edge_sizes(cuda, size) -> None:
    """Of no row, and of more rows than there are clusters; one block does all, and many share."""
    fused.needs_clusters(cuda)
    for cap in (8, 4096):
        run_on(cuda, "td_pass", cap, **td_case(size, rows=3, cluster=8))
    for cap in (1, 4096):
        run_on(cuda, "apply_step", cap, **apply_case(size))
    fused.test_draw_rows(cuda, 1, 700, 7, size[0], 3, 300, 304)


def test_full_trainer_in_branches(cuda, monkeypatch) -> None:
    """Every pass is a branch, whatever its size: no branch may read what another one writes."""
    monkeypatch.setattr(grouping, "_SHARES_UP_TO", 0)
    small = {"network__iqn__quantiles": 3, "learn__batch_size": 9, "loop__start_steps": 36}
    trainer = trainer_on(cuda, ALL, config(**FORKED | small))
    assert "branches {" in trainer.learn_program.describe()
    steps(trainer, 3)
    trainer.close()


def test_no_step_reads_scratch_that_it_has_not_written(cuda) -> None:
    fused_step = {"network__hidden": [36, 52], "fusion": "rows3-cluster8"}
    for changes in ({}, fused_step) if cuda.largest_cluster > 1 else ({},):
        want = run_poisoned(cuda, ALL, 3, poison=False, **changes)
        assert run_poisoned(cuda, ALL, 3, **changes) == want
