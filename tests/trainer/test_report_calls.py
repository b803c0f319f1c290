"""The columns that a step's device calls are counted in."""

from collections import Counter

from trainer.setups import make, short

from onegraph.kernels.device import HostDevice
from onegraph.stages.call_columns import CALL_COLUMNS, call_rows, calls_by_kind
from onegraph.stages.registry import stage_names


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


def test_the_programs_at_the_last_stage_are_one_graph_launch_each():
    trainer = make(HostDevice(), short(), "all")
    one = [0, 1, 0, 0, 0, 0, 0, 0, 0]
    for program in (trainer.learn_program, trainer.collect_program):
        assert call_rows(calls_by_kind(program)) == one


def test_stage_names():
    assert stage_names(frozenset()) == "0 legacy"
    assert stage_names(frozenset({1, 3})) == "1 gpu-replay, 3 phase-events"
