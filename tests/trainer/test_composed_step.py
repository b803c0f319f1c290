"""The learning step by the kernels of its ends and the passes between: stage 6 to rounding.

The update adds up in an order of its own; all else is the kernels' that the bits come from. So one
of the three ways is held to stage 6, and the others to its bits.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from trainer.setups import bit_flip, chain, end_of, fill, full, make, small, steps, trajectory
from trainer.test_fused import kernels, shapes_of
from trainer.test_fused_update import alike
from trainer.test_regrouping import COMPOSED, CONFIGS, dag_of, ways

from onegraph.kernels.common.layout import Diagnostic
from onegraph.kernels.device import HostDevice
from onegraph.kernels.fused.update_step import STATIC_BYTES, slot_bytes
from onegraph.stages.program import GraphLaunch, Launch, LaunchGroup, Op, opened
from onegraph.stages.registry import ALL, up_to
from onegraph.stages.verify import verify
from onegraph.trainer.config import Config, override_config
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.hindsight import relabelling
from onegraph.trainer.regrouping import ComposedStep, regroupings
from onegraph.trainer.subject import TrainerSubject
from onegraph.trainer.trainer import Trainer

SIX, SEVEN = up_to(6), up_to(7)

# Stage 0 reads back through the deprecated call; that it warns has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

#: Configs whose passes differ most; the others take longer than a commit's tests may.
FEW = ("two hidden layers", "not double", "full", "hindsight")

WHICH = [
    pytest.param(name, marks=() if name in FEW else pytest.mark.slow, id=name) for name in CONFIGS
]


def by(name: str, config: Config) -> Trainer:
    """A trainer with a full replay, whose step is done in one of the ways."""
    trainer = fill(make(HostDevice(), ways(config, name), SEVEN))
    assert {"update_step", "write_back"} < kernels(trainer.learn_program)
    return trainer


@pytest.mark.parametrize("which", WHICH)
def test_it_agrees_with_stage_6_to_rounding(which: str) -> None:
    config = CONFIGS[which]
    six, seven = fill(make(HostDevice(), config, SIX)), by("ends", config)
    start = six.parameters()
    for _ in range(12):
        for trainer in (six, seven):
            trainer.learn()
        np.testing.assert_array_equal(seven.indices(), six.indices())
        for trainer in (six, seven):
            trainer.collect()
    assert (six.parameters() != start).any()
    alike(six, seven, start)
    six.close()
    seven.close()


@pytest.mark.parametrize("which", WHICH)
def test_the_ways_and_their_runs_are_one(which: str) -> None:
    config = CONFIGS[which]
    first, *others = (
        trajectory(make(HostDevice(), ways(config, name), SEVEN), 12)
        for name in ("ends", *COMPOSED)
    )
    for name, found in zip(COMPOSED, others, strict=True):
        assert found == first, name


@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.parametrize("config", [chain(), full()], ids=["dqn", "full"])
def test_a_gradient_that_is_no_number_skips_the_step(config: Config, name: str) -> None:
    """A NaN in the target network makes TD errors, and the gradient, NaN; then it is gone again."""
    six, seven = fill(make(HostDevice(), config, SIX)), by(name, config)
    start = six.parameters()
    for trainer in (six, seven):
        steps(trainer, 3)
        space = trainer.workspace
        target = space.read("theta_target")
        broken = target.copy()
        trainer.network.layout["hidden.0.bias"].values(broken)[:] = np.nan
        kept = {n: space.read(n) for n in ("theta", "adam_m", "adam_v", "replay_max_leaf")}
        space.write("theta_target", broken)
        for skipped in (1, 2):
            trainer.learn()
            for array, values in kept.items():
                np.testing.assert_array_equal(space.read(array), values, err_msg=array)
            np.testing.assert_array_equal(space.read("theta_target"), broken)
            assert trainer.history(1)["skipped"].tolist() == [skipped]
        assert np.isfinite(space.read("replay_nodes")).all()
        assert space.read("diagnostics")[Diagnostic.NONFINITE_TD] > 0
        space.write("theta_target", target)
        steps(trainer, 2)
        seen = trainer.history(1)
        assert (seen["adam_step"][0], seen["skipped"][0]) == (5, 2)
    np.testing.assert_array_equal(seven.indices(), six.indices())
    alike(six, seven, start)
    six.close()
    seven.close()


@pytest.mark.parametrize("name", COMPOSED)
def test_another_config_goes_on_as_stage_6_does(name: str) -> None:
    """Other sizes, a part that comes and goes, and another way: each builds the step anew."""
    config = small()
    six, seven = fill(make(HostDevice(), config, SIX)), by(name, config)
    start = six.parameters()
    other = COMPOSED[COMPOSED.index(name) - 1]
    changes: list[tuple[str, dict[str, object]]] = [
        (name, {"learn.batch_size": 21}),
        (name, {"learn.vaccine": True}),
        (other, {"learn.vaccine": False}),
        (name, {"learn.lr.start": 1e-4}),
    ]
    for fusion, fields in changes:
        for trainer, way in ((six, "none"), (seven, fusion)):
            fields = {**fields, "fusion": way}
            trainer.reconfigure(override_config(trainer.config, fields, "the test"))
            steps(trainer, 3)
        assert seven.fusion is not None
        assert seven.fusion.name == fusion
        assert "update_step" in kernels(seven.learn_program)
        np.testing.assert_array_equal(seven.indices(), six.indices())
    alike(six, seven, start)
    six.close()
    seven.close()


@pytest.mark.parametrize("name", COMPOSED)
def test_a_state_goes_on_as_if_nothing_had_been(name: str) -> None:
    """Barriers and sums that the kernels keep from step to step are no part of a run's state."""
    config = bit_flip()
    straight, first = (steps(by(name, config), 7) for _ in range(2))
    state, progress = first.state(), first.progress
    first.close()
    second = make(HostDevice(), ways(config, name), SEVEN)
    second.restore(state, progress)
    for trainer in (straight, second):
        steps(trainer, 6)
    wanted, found = end_of(straight), end_of(second)
    assert [array for array in wanted if wanted[array] != found[array]] == []
    straight.close()
    second.close()


@pytest.mark.parametrize("name", COMPOSED)
def test_verification_takes_it_for_stage_7(name: str) -> None:
    config = ways(small(network__hidden=[8, 8, 8]), name)
    result = verify(TrainerSubject(config), HostDevice, (SIX, SEVEN), steps=6)
    assert result.ok, result.findings
    assert [one.exact for one in result.sets][-2:] == [True, False]
    assert result.sets[-1].programs["learn"].plain == {"graph_launch": 1}


@pytest.mark.parametrize("name", COMPOSED)
def test_the_devices_loop_takes_the_same_steps(name: str) -> None:
    ends = set()
    for stages in (SEVEN, SEVEN - {3}, ALL):
        trainer = fill(make(HostDevice(), ways(chain(), name), stages))
        if 8 in stages:
            trainer.take_rounds(10)
        while trainer.progress.learns < 10:
            trainer.collect()
            trainer.learn()
        ends.add(trainer.parameters().tobytes())
        trainer.close()
    assert len(ends) == 1


def test_three_parts_are_timed() -> None:
    trainer = by("ends-wide", chain())
    for timed in (False, True, True):
        trainer.learn(timed=timed)
    assert list(trainer.timings().phases) == ["draw", "passes_and_update", "write_back"]
    trainer.close()


def test_nothing_but_the_passes_waits_for_the_masks_of_a_step() -> None:
    """They are the draw's in `ends`, and stand beside the passes in the other two."""
    for name in COMPOSED:
        trainer = make(HostDevice(), ways(full(), name), SEVEN)
        ((_, parent),) = trainer.learn_program.ops()
        assert isinstance(parent, GraphLaunch)
        where = [
            child.name
            for child in parent.body
            if isinstance(child, GraphLaunch)
            for op in opened(child.body)
            if isinstance(op, Launch) and op.kernel == "depth_masks"
        ]
        assert where == ["draw" if name == "ends" else "passes_and_update"]
        if name != "ends":
            dag = dag_of(trainer.learn_program)
            (place,) = (i for i, op in enumerate(dag.ops) if kernel_of(op) == "depth_masks")
            assert dag.waits()[place] == ()
        trainer.close()


def kernel_of(op: Op) -> str:
    return op.kernel if isinstance(op, Launch) else ""


def test_launches_of_one_kernel_are_one_where_they_are_asked_to_be() -> None:
    seen = {}
    for name in ("ends-wide", "ends-grouped"):
        trainer = make(HostDevice(), ways(full(), name), SEVEN)
        dag = dag_of(trainer.learn_program)
        seen[name] = len(dag.ops), sum(isinstance(op, LaunchGroup) for op in dag.ops)
        assert {op.module for op in dag.ops} == {"graphed"}
        # Its blocks wait for one another: nothing else is under way by then.
        places = [i for i, op in enumerate(dag.ops) if getattr(op, "kernel", "") == "update_step"]
        assert places == [len(dag.ops) - 1]
        assert dag.ancestors()[-1] == (1 << len(dag.ops) - 1) - 1
        trainer.close()
    assert seen["ends-wide"][1] == 0 < seen["ends-grouped"][1]
    assert seen["ends-grouped"][0] < seen["ends-wide"][0]


# ---------------------------------------------------------------- where there are none


def composed(config: Config, shared: int, relabels: bool = True) -> list[ComposedStep]:
    environment, _ = build_environment(config)
    device = SimpleNamespace(name="X", largest_shared=shared)
    given = relabelling(config, environment) if relabels else None
    found = regroupings(shapes_of(config), device, given)
    return [form for form in found if isinstance(form, ComposedStep)]


def test_a_block_without_room_for_the_update_has_none_of_them() -> None:
    least = STATIC_BYTES + slot_bytes(with_aux=0, with_vaccine=0)
    assert composed(chain(), least - 1) == []
    found = composed(chain(), least)
    assert [form.name for form in found] == [*COMPOSED]
    assert {form.shared_bytes for form in found} == {slot_bytes(with_aux=0, with_vaccine=0)}


def test_hindsight_without_its_relabelling_has_none_of_them() -> None:
    assert composed(bit_flip(), HostDevice.largest_shared, relabels=False) == []
    assert len(composed(bit_flip(), HostDevice.largest_shared)) == len(COMPOSED)


def test_it_is_the_same_way_over_another_replay() -> None:
    config = bit_flip()
    fewer = shapes_of(override_config(config, {"replay.capacity": 80}, "the test"))
    for form in composed(config, HostDevice.largest_shared):
        moved = form.over(fewer)
        assert (moved.name, moved.shapes, moved.hindsight) == (form.name, fewer, form.hindsight)
        assert (moved.regroups, moved.launches) == (form.regroups, form.launches)
