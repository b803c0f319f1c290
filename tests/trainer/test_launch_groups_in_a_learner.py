"""A whole learner with its launches in groups computes the bits of one without."""

from __future__ import annotations

import pytest
from capture_scenarios import CHILDREN, config, steps, trainer_on
from grouped_learner import FULL, group_launches

from onegraph.kernels.device import HostDevice
from onegraph.stages.program import LaunchGroup, StepProgram
from onegraph.stages.registry import ALL, up_to
from onegraph.stages.verify import verify
from onegraph.trainer.cli.stages import audit_rows
from onegraph.trainer.subject import TrainerSubject


def groups(program: StepProgram) -> set[str]:
    return {op.launched for _, op, _ in program.all_ops() if isinstance(op, LaunchGroup)}


@pytest.mark.parametrize("stages", [up_to(0), up_to(4), CHILDREN, ALL], ids=["0", "4", "5", "all"])
def test_the_full_learner_has_the_same_bits(stages, monkeypatch) -> None:
    plain = trainer_on(HostDevice(), stages, config(**FULL))
    want, nodes = steps(plain, 3), sum(plain.graph_nodes().values())
    assert groups(plain.learn_program) == set()
    plain.close()
    group_launches(monkeypatch)
    device = HostDevice()
    trainer = trainer_on(device, stages, config(**FULL))
    assert steps(trainer, 3) == want
    found = groups(trainer.learn_program)
    assert {"layer_norm_group_2", "spectral_dot_group_3"} <= found
    assert found <= {kernel for kernel, _ in device.launch_sites}
    assert found <= {kernel for kernel, _, _ in audit_rows({"learn": trainer.learn_program})}
    assert sum(trainer.graph_nodes().values()) < nodes or not nodes
    trainer.close()


def test_verify_finds_nothing_at_a_learner_with_groups(monkeypatch) -> None:
    group_launches(monkeypatch)
    result = verify(TrainerSubject(config(**FULL)), HostDevice, (up_to(0), up_to(6)), steps=5)
    assert result.ok, [finding for _, finding in result.findings]
