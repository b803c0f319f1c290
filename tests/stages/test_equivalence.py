"""Every valid set of stages, on a step that is no DQN: same bits, same calls, inside its budget."""

import numpy as np
import pytest
import toy

from onegraph.kernels.device import HostDevice
from onegraph.stages import Runner, Workspace, apply, budget, exact_sets, format_set
from onegraph.stages.registry import step_stages

pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

STEPS = 6
SETS = [pytest.param(s, id=format_set(s)) for s in exact_sets(step_stages())]


def reference() -> list[dict[str, bytes]]:
    return toy.trajectory(toy.Toy().program(), STEPS)


def test_the_toy_computes_what_it_says() -> None:
    """By hand, for n = 2: two steps from v = (1, 1), priorities (1, 1)."""
    a = toy.matrix(2)
    workspace = Workspace(HostDevice())
    runner = Runner(toy.Toy(2).program(), workspace)
    runner.step()
    # total 2: pick (14 + 0) % 2 = 0; scale 1/2; then v = A (1,1) / 2 + (1, 0); prio (3, 1)
    v1 = (a @ np.ones(2, np.float32)) * np.float32(0.5) + np.float32([1, 0])
    assert workspace.read("prio_host").tolist() == [3, 1]
    np.testing.assert_array_equal(workspace.read("v"), v1)
    runner.step()
    # total 4: pick (28 + 1) % 2 = 1; scale 1/3
    v2 = (a @ v1) * np.float32(1 / 3) + np.float32([0, 1])
    assert workspace.read("prio_host").tolist() == [3, 3]
    np.testing.assert_array_equal(workspace.read("v"), v2)
    assert workspace.read("norm_host")[0] == np.float32((v2.astype(float) ** 2).sum())


def test_the_trajectory_moves() -> None:
    """Or equality below would mean little."""
    seen = reference()
    assert len({s["v"] for s in seen}) == STEPS
    assert len({s["pick"] for s in seen}) > 1


@pytest.mark.parametrize("stages", SETS)
@pytest.mark.parametrize("timed", [False, True], ids=["plain", "timed"])
def test_bits_are_those_of_stage_0(stages: frozenset[int], timed: bool) -> None:
    parts = toy.Toy()
    program = apply(parts.program(), stages, parts)
    assert toy.trajectory(program, STEPS, timed=timed) == reference()


@pytest.mark.parametrize("stages", SETS)
def test_steady_steps_make_the_calls_of_the_program(stages: frozenset[int]) -> None:
    parts = toy.Toy()
    legacy = parts.program()
    program = apply(legacy, stages, parts)
    allowed = budget(legacy, stages)
    allowed.check(program.calls(), program)
    allowed.check(program.calls(timed=True), program, timed=True)
    runner = Runner(program, Workspace(HostDevice()))
    runner.step()
    for timed in (False, True, True, False):
        counts = runner.step(timed=timed).counts
        assert counts == program.calls(timed=timed)
        allowed.check(counts, program, timed=timed)


@pytest.mark.parametrize("stages", SETS)
def test_stage_0_breaks_the_budget_of_every_set_that_promises_something(stages) -> None:
    legacy = toy.Toy().program()
    broken = budget(legacy, stages).violations(legacy.calls(), legacy)
    promising = stages - {3}
    assert {v.limit.stage for v in broken} == {
        {1: "gpu-replay", 2: "philox-per", 4: "gpu-counters", 5: "child-graphs", 6: "parent-graph"}[
            n
        ]
        for n in promising
    }


def test_with_every_stage_the_step_is_one_graph_launch() -> None:
    parts = toy.Toy()
    runner = Runner(apply(parts.program(), frozenset(range(1, 7)), parts), Workspace(HostDevice()))
    runner.step()
    assert runner.step().counts == {("power", "graph_launch"): 1}
    # 6 phases, so 7 boundaries, whose nodes each get an event
    timed = {("power", "graph_launch"): 1, ("power", "event_set"): 7}
    assert runner.step(timed=True).counts == timed
    assert runner.step().counts == {("power", "graph_launch"): 1}
    # draw 2, count 1, multiply 3, publish 1, idle none, raise 1
    assert runner.graph_nodes() == {"power": 8}


def test_with_stage_5_each_phase_is_one_graph_launch() -> None:
    parts = toy.Toy()
    runner = Runner(apply(parts.program(), frozenset({1, 2, 4, 5}), parts), Workspace(HostDevice()))
    runner.step()
    phases = ("draw", "count", "multiply", "publish", "raise")
    assert runner.step().counts == {(phase, "graph_launch"): 1 for phase in phases}
    assert runner.graph_nodes() == {"draw": 2, "count": 1, "multiply": 3, "publish": 1, "raise": 1}


def test_the_legacy_read_back_warns_and_the_next_stage_does_not() -> None:
    parts = toy.Toy()
    runner = Runner(parts.program(), Workspace(HostDevice()))
    with pytest.warns(DeprecationWarning, match="to_host_checkpoint"):
        runner.step()
    Runner(apply(parts.program(), frozenset({1}), parts), Workspace(HostDevice())).step()
