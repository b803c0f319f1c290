"""Which stages there are, which go together, and how a set prints."""

import pytest
import toy

from onegraph.stages import (
    STAGES,
    StageSetError,
    apply,
    budget,
    exact_sets,
    format_set,
    is_exact,
    valid_sets,
)
from onegraph.stages.registry import by_number, missing, require_valid, step_stages


def test_the_stages_are_those_of_the_design() -> None:
    assert [(s.number, s.name) for s in STAGES] == [
        (0, "legacy"),
        (1, "gpu-replay"),
        (2, "philox-per"),
        (3, "phase-events"),
        (4, "gpu-counters"),
        (5, "child-graphs"),
        (6, "parent-graph"),
        (7, "fused-phases"),
        (8, "epoch-graph"),
    ]
    assert all(s.summary for s in STAGES)


def test_twelve_sets_keep_every_bit() -> None:
    chain = [set(), {1}, {1, 2}, {1, 2, 4}, {1, 2, 4, 5}, {1, 2, 4, 5, 6}]
    wanted = {frozenset(s) for s in chain} | {frozenset(s | {3}) for s in chain}
    found = exact_sets(step_stages())
    assert len(found) == 12
    assert set(found) == wanted
    assert all(is_exact(s) for s in wanted)
    assert [len(s) for s in found] == sorted(len(s) for s in found)


def test_those_with_fused_phases_agree_to_rounding() -> None:
    more = [s for s in valid_sets() if s not in exact_sets()]
    fused = frozenset({1, 2, 4, 5, 6, 7})
    assert set(more) == {fused, fused | {3}, fused | {8}, fused | {3, 8}}
    assert not any(is_exact(s) for s in more)


@pytest.mark.parametrize(
    ("stages", "lacks"),
    [
        ({2}, {"philox-per": ("gpu-replay",)}),
        ({4}, {"gpu-counters": ("gpu-replay", "philox-per")}),
        ({2, 4}, {"philox-per": ("gpu-replay",), "gpu-counters": ("gpu-replay",)}),
        ({5}, {"child-graphs": ("gpu-counters",)}),
        ({1, 2, 4, 6}, {"parent-graph": ("child-graphs",)}),
        ({1, 2, 4, 5, 8}, {"epoch-graph": ("parent-graph",)}),
        ({1, 2, 3, 4, 5, 6}, {}),
        ({7}, {"fused-phases": ("parent-graph",)}),
    ],
)
def test_missing_requirements_by_name(stages: set[int], lacks) -> None:
    assert missing(frozenset(stages)) == lacks
    if lacks:
        with pytest.raises(StageSetError) as error:
            require_valid(frozenset(stages))
        for name, what in lacks.items():
            assert f"{name} needs {' and '.join(what)}" in str(error.value)


def test_an_unknown_stage() -> None:
    with pytest.raises(StageSetError, match=r"stage 9 is unknown; the stages are 0 legacy, 1 gpu"):
        by_number(9)


def test_an_invalid_set_is_neither_applied_nor_budgeted() -> None:
    parts = toy.Toy()
    with pytest.raises(StageSetError):
        apply(parts.program(), frozenset({6}), parts)
    with pytest.raises(StageSetError):
        budget(parts.program(), frozenset({6}))


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        (set(), "0"),
        ({1}, "0,1"),
        ({3}, "0,3"),
        ({1, 2}, "0-2"),
        ({1, 2, 4}, "0,1,2,4"),
        ({1, 2, 3, 4, 5, 6}, "0-6"),
        ({1, 2, 3, 4, 5, 6, 8}, "0-6,8"),
        ({1, 2, 4, 5, 6, 8}, "0,1,2,4,5,6,8"),
    ],
)
def test_format(stages: set[int], text: str) -> None:
    assert format_set(frozenset(stages)) == text
