"""No step reads scratch that it has not written, at any stage."""

from __future__ import annotations

import pytest
from capture_scenarios import config, trainer_on
from scratch_rules import CARRIED, run_poisoned, scratch

from onegraph.kernels.device import HostDevice
from onegraph.stages.registry import format_set, valid_sets

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["chain", "market"])
@pytest.mark.parametrize("stages", valid_sets(), ids=format_set)
def test_nonsense_in_the_scratch_changes_nothing(kind, stages) -> None:
    want = run_poisoned(HostDevice(), stages, 4, poison=False, env__kind=kind)
    assert run_poisoned(HostDevice(), stages, 4, env__kind=kind) == want


def test_a_read_of_scratch_would_show() -> None:
    """The gradient's gaps are read: with nonsense in them no step is taken."""
    trainer = trainer_on(HostDevice())
    gaps = trainer.workspace.read("grad")
    last = trainer.network.layout["head.bias"]
    gaps[last.offset + last.size :] = float("nan")
    trainer.workspace.write("grad", gaps)
    before = trainer.parameters()
    trainer.learn()
    assert (trainer.parameters() == before).all()


def test_what_is_carried_over_is_known() -> None:
    for stages in valid_sets():
        trainer = trainer_on(HostDevice(), stages, config())
        names = {b.name for b in scratch(trainer)}
        assert not names & set(CARRIED)
        assert {"td", "onlinehead", "onlinegrad0", "index"} <= names
