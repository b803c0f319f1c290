"""What an epoch's times are said to mean, by table."""

from collections import Counter

import pytest
from trainer.setups import make, short

from onegraph.kernels.device import HostDevice
from onegraph.stages.runner import PhaseTimes
from onegraph.trainer.report import (
    CALL_COLUMNS,
    call_rows,
    phase_report,
    program_calls,
    stage_names,
)


def times(**phases):
    steps = len(next(iter(phases.values())))
    return PhaseTimes(tuple(range(steps)), phases)


@pytest.mark.parametrize(
    ("mean", "step_ms", "diagnosis"),
    [
        (
            {"forward": 0.1, "adam": 0.2},
            3.0,
            "the phases take 0.300 ms of a 3.000 ms step: the device waits on the host (pipeline"
            " stall, launch-bound)",
        ),
        ({"forward": 0.1, "adam": 0.3}, 0.8, "the slowest phase is adam: 0.300 ms, 75% of them"),
        (
            {"forward": 0.3, "adam": 0.1},
            0.41,
            "the slowest phase is forward: 0.300 ms, 75% of them",
        ),
        ({"forward": 0.0, "adam": 0.0}, 0.0, "the slowest phase is forward: 0.000 ms, 0% of them"),
    ],
)
def test_the_diagnosis(mean, step_ms, diagnosis):
    report = phase_report(times(**{name: (value,) for name, value in mean.items()}), step_ms)
    assert report.diagnosis == diagnosis


def test_last_and_mean_of_the_timed_steps():
    report = phase_report(times(forward=(1.0, 2.0, 6.0), adam=(2.0, 2.0, 2.0)), 5.0)
    assert report.last == {"forward": 6.0, "adam": 2.0}
    assert report.mean == {"forward": 3.0, "adam": 2.0}
    assert report.timed_steps == 3


def test_no_timed_step_no_report():
    assert phase_report(PhaseTimes((), {}), 1.0) is None
    assert phase_report(PhaseTimes((), {"forward": ()}), 1.0) is None


def test_call_columns_sum_their_kinds():
    counts = Counter(launch=3, matmul=4, alloc=1, free=2, memset=5, memset_sync=6, host=7)
    assert dict(zip(CALL_COLUMNS, call_rows(counts), strict=True)) == {
        "launches": 7,
        "graph launches": 0,
        "HtoD": 0,
        "DtoH": 0,
        "DtoD": 0,
        "memsets": 11,
        "allocs, frees": 3,
        "syncs": 0,
        "host ops": 7,
    }


def test_every_kind_of_call_that_a_stage_0_step_makes_has_a_column():
    trainer = make(HostDevice(), short(), "0")
    known = {kind for kinds in CALL_COLUMNS.values() for kind in kinds}
    for program in (trainer.learn_program, trainer.collect_program):
        assert {kind for _, kind in program.calls()} <= known


def test_program_calls_at_the_last_stage_are_one_graph_launch_each():
    trainer = make(HostDevice(), short(), "all")
    one = [0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert program_calls(trainer) == {"learn": one, "collect": one}


def test_stage_names():
    assert stage_names(frozenset()) == "0 legacy"
    assert stage_names(frozenset({1, 3})) == "1 gpu-replay, 3 phase-events"
