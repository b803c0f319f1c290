"""``onegraph verify``: exit codes, what goes where, and a stage of the trainer's that breaks."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from onegraph.stages import STAGES
from onegraph.stages.program import Host
from onegraph.stages.registry import apply
from onegraph.trainer import staged, subject
from onegraph.trainer.cli import main

SMALL = (
    *("--config", "chain", "--device", "host", "--steps", "4"),
    *("--set", "loop.start_steps=64", "--set", "learn.batch_size=8", "--set", "env.lanes=8"),
)


def test_two_sets_and_stage_0(capsys) -> None:
    assert main(["verify", *SMALL, "--stages", "2", "--stages", "all,-phase-events,-8"]) == 0
    out, err = capsys.readouterr()
    first = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert [label for label in ("0", "0-2", "0,1,2,4,5,6,7") if label in first] == [
        "0",
        "0-2",
        "0,1,2,4,5,6,7",
    ]
    assert "learn" in out
    assert "collect" in out
    assert "CUPTI: not counted; the host device makes no driver calls" in out
    assert "verified: 3 sets of stages" in out
    assert "stages 0-2: 4 steps" in err  # progress is no result


def test_every_set_by_default_as_json(capsys) -> None:
    assert main(["verify", *SMALL, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is True
    assert [one["label"] for one in result["sets"]] == [
        *("0", "0,1", "0-2", "0-3", "0-4", "0-5", "0-6", "0-7", "0-8")
    ]
    last = result["sets"][-1]
    assert last["programs"]["epoch"]["plain"] == {"graph_launch": 1}
    last = result["sets"][-2]
    assert last["programs"]["learn"]["plain"] == {"graph_launch": 1}
    assert last["programs"]["learn"]["timed"] == {"event_set": 13, "graph_launch": 1}
    assert last["from_first"]["equal"]
    assert last["choices"] == result["sets"][0]["choices"]


@pytest.fixture
def hidden_read_back(monkeypatch):
    """Philox-per with a host op left in it, which only its budget forbids."""

    def broken(program, parts):
        program = STAGES[2].rewrite(program, parts)
        if program.name != "learn":
            return program
        phases = tuple(
            replace(p, ops=(*p.ops, Host("peek", lambda _: None))) if p.name == "per_sample" else p
            for p in program.phases
        )
        return replace(program, phases=phases)

    known = tuple(replace(s, rewrite=broken) if s.number == 2 else s for s in STAGES)
    monkeypatch.setattr(subject, "STAGES", known)
    monkeypatch.setattr(staged, "apply", partial(apply, known=known))


def test_a_broken_stage_ends_in_exit_1_and_is_named(hidden_read_back, capsys) -> None:
    assert main(["verify", *SMALL, "--stages", "1", "--stages", "2"]) == 1
    out, _ = capsys.readouterr()
    lines = [line for line in out.splitlines() if line.startswith("stages 0-2: ")]
    assert [line.split()[2] for line in lines] == ["program-budget:", "ledger-budget:"]
    for line in lines:
        assert "stage philox-per, program learn, phase per_sample, op host peek" in line
        assert "1 host calls in replay phases, at most 0 allowed" in line
    assert "FAILED at stages 0-2" in out
    assert main(["verify", *SMALL, "--stages", "2", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is False
    assert {f["check"] for f in result["sets"][-1]["findings"]} == {
        "program-budget",
        "ledger-budget",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--steps", "2"), 2, "2 steps are too few to verify"),
        (("--stages", "5,6"), 1, "child-graphs needs gpu-counters"),
        (("--stages", "philox"), 1, "did you mean philox-per?"),
        (("--set", "learn.gama=1"), 1, "gama"),
        (("--config", "absent.toml"), 1, "absent.toml"),
        (("--device", "tpu"), 1, "tpu"),
    ],
)
def test_what_a_user_can_get_wrong(arguments, code: int, words: str, capsys) -> None:
    assert main(["verify", *SMALL, *arguments]) == code
    out, err = capsys.readouterr()
    assert words in " ".join(err.replace("│", " ").split())
    assert out == ""
