"""Batches and lanes beyond what one block takes: other kernels, and the bits of stage 0."""

from __future__ import annotations

import pytest
from capture_scenarios import config, steps, trainer_on

from onegraph.kernels.device import HostDevice
from onegraph.kernels.replay import importance_weights, refresh_inserted, update_priorities
from onegraph.stages.program import Launch
from onegraph.stages.registry import ALL

LARGE = {
    "env__lanes": refresh_inserted.AT_ONCE + 4,
    "replay__capacity": 3 * (refresh_inserted.AT_ONCE + 4),
    "learn__batch_size": importance_weights.AT_ONCE + 1,
    "loop__start_steps": importance_weights.AT_ONCE + 1,
}


def kernels(program):
    return {op.kernel for _, op, _ in program.all_ops() if isinstance(op, Launch)}


@pytest.mark.parametrize("stages", [frozenset({1}), frozenset({1, 2}), ALL])
def test_every_form_of_a_large_step_gives_stage_0s_bits(stages):
    def trajectory(at):
        trainer = trainer_on(HostDevice(), at, config(**LARGE))
        seen = steps(trainer, 4)
        trainer.close()
        return seen

    first = trajectory(frozenset())
    assert len({parameters for _, parameters in first}) == 4
    assert trajectory(stages) == first


def test_sizes_alone_choose_the_kernels():
    spread = {"raw_weights", "scale_weights", "claim_priorities", "write_priorities"}
    for batch, more in ((update_priorities.AT_ONCE, False), (LARGE["learn__batch_size"], True)):
        settings = config(learn__batch_size=batch, loop__start_steps=batch, replay__capacity=2048)
        trainer = trainer_on(HostDevice(), ALL, settings)
        found = kernels(trainer.learn_program)
        assert ("update_priorities" in found) is not more
        assert (spread | {"refresh_drawn"} <= found) is more
        trainer.close()
    trainer = trainer_on(HostDevice(), ALL, config(**LARGE))
    assert "refresh_slot" in kernels(trainer.collect_program)
    trainer.close()


def test_a_part_of_level_1_is_recomputed_alone(monkeypatch):
    """2,048 leaves have 64 nodes above them, of which a batch of 32 touches a half at most."""
    monkeypatch.setattr(update_priorities, "AT_ONCE", 16)
    settings = config(learn__batch_size=32, loop__start_steps=64, replay__capacity=2048)

    def trajectory(at):
        trainer = trainer_on(HostDevice(), at, settings)
        assert ("refresh_touched" in kernels(trainer.learn_program)) is (1 in at)
        seen = [*steps(trainer, 4), trainer.workspace.read("replay_nodes").tobytes()]
        trainer.close()
        return seen

    assert trajectory(ALL - {7}) == trajectory(frozenset())
