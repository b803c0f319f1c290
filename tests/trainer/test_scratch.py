"""No step reads scratch that it has not written, at any stage."""

from __future__ import annotations

import pytest
from capture_scenarios import config, trainer_on
from scratch_rules import CARRIED, run_poisoned, scratch
from trainer.setups import PARTS

from onegraph.kernels.device import HostDevice
from onegraph.stages.registry import ALL, exact_sets, format_set

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["chain", "market"])
@pytest.mark.parametrize("stages", exact_sets(), ids=format_set)
def test_nonsense_in_the_scratch_changes_nothing(kind, stages) -> None:
    want = run_poisoned(HostDevice(), stages, 4, poison=False, env__kind=kind)
    assert run_poisoned(HostDevice(), stages, 4, env__kind=kind) == want


@pytest.mark.parametrize("kind", ["chain", "market"])
def test_nonsense_in_the_scratch_changes_nothing_of_the_fused_kernels(kind) -> None:
    changes = {"env__kind": kind, "network__hidden": [16, 8]}
    want = run_poisoned(HostDevice(), ALL, 4, poison=False, **changes)
    assert run_poisoned(HostDevice(), ALL, 4, **changes) == want


LEARNERS: dict[str, dict[str, object]] = {
    "full": {},
    "IQN alone, no blocks": {
        "network__iqn__readiness": False,
        "network__residual_blocks": 0,
        "learn__vaccine": False,
    },
    "C51, noisy": {"network__head": "c51", "network__noisy": True},
    "plain": {
        "network__head": "dqn",
        "network__dueling": False,
        "network__double": False,
        "learn__budget__on": False,
    },
}


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("stages", [frozenset(), ALL], ids=format_set)
def test_nonsense_in_the_scratch_changes_nothing_of_the_full_learner(learner, stages) -> None:
    changes = {name.replace(".", "__"): value for name, value in PARTS.items()} | LEARNERS[learner]
    want = run_poisoned(HostDevice(), stages, 4, poison=False, **changes)
    assert run_poisoned(HostDevice(), stages, 4, **changes) == want


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


@pytest.mark.parametrize(
    ("fusion", "known", "barriers"),
    [
        (
            "auto",
            {"fused_hidden0", "fused_grad_head", "fused_squares", "raw_weight"},
            {"fused_barrier"},
        ),
        (
            "ends-grouped",
            {"update_squares", "new_leaf", "raw_weight"},
            {"fused_draw_barrier", "fused_write_barrier", "fused_write_ticket", "update_barrier"},
        ),
    ],
)
def test_the_scratch_of_the_fused_kernels_is_known(fusion, known, barriers) -> None:
    """But for the words of their barriers, in which a number would make a grid wait for ever."""
    trainer = trainer_on(HostDevice(), ALL, config(network__hidden=[16, 8], fusion=fusion))
    names = {b.name for b in scratch(trainer)}
    assert known <= names
    assert barriers <= {*trainer.workspace.buffers}
    assert not barriers & names


@pytest.mark.parametrize("fusion", ["ends", "ends-grouped"])
def test_nonsense_in_the_scratch_changes_nothing_of_the_ends(fusion) -> None:
    want = run_poisoned(HostDevice(), ALL, 4, poison=False, fusion=fusion)
    assert run_poisoned(HostDevice(), ALL, 4, fusion=fusion) == want


def test_what_is_carried_over_is_known() -> None:
    for stages in exact_sets():
        trainer = trainer_on(HostDevice(), stages, config())
        names = {b.name for b in scratch(trainer)}
        assert not names & set(CARRIED)
        assert {"td", "onlinehead", "onlinegrad0", "index"} <= names
