"""Every form and source of a stage flag, and what each refusal says."""

import pytest

from onegraph.stages import StageSetError, choose_stages, parse_stages

SIX = {1, 2, 3, 4, 5, 6}
ALL = SIX | {7, 8}


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        # a lone number n means 0 to n
        ("0", set()),
        ("1", {1}),
        ("2", {1, 2}),
        ("3", {1, 2, 3}),
        ("4", {1, 2, 3, 4}),
        ("6", SIX),
        ("7", SIX | {7}),
        ("8", ALL),
        ("0-8", ALL),
        # a list is exact
        ("0,3", {3}),
        ("0,1,2,4", {1, 2, 4}),
        ("1,2", {1, 2}),
        ("4,2,1", {1, 2, 4}),
        # names, alone or among numbers
        ("legacy", set()),
        ("phase-events", {3}),
        ("gpu-replay", {1}),
        ("gpu-replay,2,gpu-counters", {1, 2, 4}),
        # all, none, and taking away
        ("all", ALL),
        ("none", set()),
        ("all,-phase-events", ALL - {3}),
        ("all,-3", ALL - {3}),
        ("all,-8,-fused-phases,-parent-graph,-5", {1, 2, 3, 4}),
        ("none,phase-events", {3}),
        ("all,0", ALL),
        # white space, case, duplicates, empty items
        (" all , - Phase-Events ", ALL - {3}),
        ("ALL", ALL),
        ("GPU-Replay,Philox-PER", {1, 2}),
        ("3,3,phase-events", {3}),
        ("all,-3,-3", ALL - {3}),
        ("1,,2,", {1, 2}),
    ],
)
def test_what_a_flag_means(text: str, stages: set[int]) -> None:
    assert parse_stages(text) == stages


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["''", "use all, none, a number or a list"]),
        (" , ", ["' , '", "names no stage"]),
        ("9", ["'9'", "unknown", "0 legacy", "6 parent-graph", "7 fused-phases"]),
        ("-1", ["'-1'", "gpu-replay", "is not on", "start the list with all"]),
        ("²", ["'²'", "unknown"]),
        ("007", ["'007'", "unknown"]),
        ("1 2", ["'1 2'", "unknown"]),
        ("phase-event", ["'phase-event'", "did you mean phase-events?"]),
        ("all,-nonsense", ["'nonsense'", "use all, none, or of:"]),
        ("-phase-events", ["'-phase-events'", "is not on", "start the list with all"]),
        ("none,-3", ["'none,-3'", "phase-events", "is not on"]),
        ("3,all", ["'3,all'", "'all' can only stand first"]),
        ("all,none", ["'all,none'", "'none' can only stand first"]),
        ("all,-legacy", ["'all,-legacy'", "every set starts from stage 0", "leave -legacy out"]),
        ("3,-3", ["'3,-3'", "phase-events", "keep one of the two"]),
        ("all,3,-phase-events", ["both names and takes away phase-events"]),
        ("philox-per", ["'philox-per'", "philox-per needs gpu-replay", "add what is needed"]),
        ("0,4", ["'0,4'", "gpu-counters needs gpu-replay and philox-per"]),
        ("0,5", ["child-graphs needs gpu-counters"]),
        ("1,2,4,6", ["parent-graph needs child-graphs"]),
        ("all,-parent-graph", ["fused-phases needs parent-graph"]),
        (
            "all,-gpu-replay",
            ["philox-per needs gpu-replay", "gpu-counters needs gpu-replay", "leave out"],
        ),
    ],
)
def test_a_refusal_names_the_value_and_the_remedy(text: str, parts: list[str]) -> None:
    with pytest.raises(StageSetError) as error:
        parse_stages(text)
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("flag", "environment", "config", "stages", "source"),
    [
        ("1", {"ONEGRAPH_STAGES": "2"}, "3", {1}, "--stages"),
        (None, {"ONEGRAPH_STAGES": "2"}, "3", {1, 2}, "ONEGRAPH_STAGES"),
        (None, {}, "3", {1, 2, 3}, "the config's stages"),
        (None, {}, None, ALL, "the default"),
        ("none", {"ONEGRAPH_STAGES": "all"}, None, set(), "--stages"),
        # what is outvoted is not read
        ("1", {"ONEGRAPH_STAGES": "nonsense"}, "9", {1}, "--stages"),
    ],
)
def test_the_first_that_speaks_decides(flag, environment, config, stages, source) -> None:
    choice = choose_stages(flag, config, environment)
    assert (choice.stages, choice.source) == (stages, source)


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEGRAPH_STAGES", "all,-phase-events")
    choice = choose_stages(config="0")
    assert choice.stages == ALL - {3}
    assert choice.text == "all,-phase-events"
    monkeypatch.delenv("ONEGRAPH_STAGES")
    assert choose_stages(config="0").stages == set()


@pytest.mark.parametrize(
    ("kwargs", "source"),
    [
        ({"flag": "nine"}, "--stages: "),
        ({"environment": {"ONEGRAPH_STAGES": "nine"}}, "ONEGRAPH_STAGES: "),
        ({"environment": {"ONEGRAPH_STAGES": ""}}, "ONEGRAPH_STAGES: stages ''"),
        ({"config": "nine", "environment": {}}, "the config's stages: "),
    ],
)
def test_a_refusal_names_its_source(kwargs, source: str) -> None:
    with pytest.raises(StageSetError) as error:
        choose_stages(**kwargs)
    assert str(error.value).startswith(source)
