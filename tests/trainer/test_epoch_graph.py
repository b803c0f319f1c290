"""The loop of rounds on the host device, and where it can't be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from offline.contract import recorded
from offline.made import chain_columns
from traced_device import FakeCupti, TracedDevice
from trainer.epoch_contract import LOOPED, RUN, STEPWISE, EpochGraphContract
from trainer.setups import OpenDevice, fill, gym, make, market, short

from onegraph.kernels.device import HostDevice
from onegraph.kernels.device.cupti_counts import CuptiCounter
from onegraph.stages.flags import choose_stages, parse_stages
from onegraph.stages.registry import ALL, StageSetError, up_to
from onegraph.stages.verify import verify
from onegraph.trainer.cli.stages import programs_at
from onegraph.trainer.cli.verify import possible
from onegraph.trainer.config import Config
from onegraph.trainer.loop import Loop
from onegraph.trainer.subject import TrainerRun, TrainerSubject
from onegraph.trainer.trainer import Trainer, TrainerError


@pytest.fixture
def open_device() -> OpenDevice:
    return HostDevice


@pytest.fixture
def cupti(monkeypatch) -> FakeCupti:
    fake = FakeCupti()
    fake.install(monkeypatch)
    monkeypatch.setattr(CuptiCounter, "_registered", False)
    return fake


class TestEpochGraph(EpochGraphContract):
    pass


#: A round of 100 learning steps, which is more than one graph holds.
LONG = {"loop__learns_per_collect": 100}


def test_a_round_that_is_too_long_is_refused_by_name_where_it_was_asked_for() -> None:
    with pytest.raises(StageSetError) as refused:
        make(HostDevice(), short(**LONG), ALL)
    assert str(refused.value) == (
        "stage 8 epoch-graph can't be on with this config: a round of 101 steps (1 of collect, 100"
        " of learn) can't be one program: that takes 1 to 64; leave it out (all,-epoch-graph)"
    )


def test_it_is_left_out_where_nobody_asked_for_it() -> None:
    said: list[str] = []
    trainer = Trainer(
        short(**LONG), HostDevice(), ALL, say=said.append, optional=choose_stages().optional
    )
    assert trainer.stages == ALL - {8}
    assert not trainer.loops
    assert set(trainer.runners) == set(trainer.budgets) == {"learn", "collect"}
    assert said == [
        "stage 8 epoch-graph is left out: a round of 101 steps (1 of collect, 100 of learn) can't"
        " be one program: that takes 1 to 64"
    ]
    fill(trainer)
    with pytest.raises(TrainerError, match="turn stage 8, epoch-graph, on, or call collect"):
        trainer.take_rounds(1)
    trainer.close()


@pytest.mark.parametrize(
    ("text", "optional"),
    [
        ("all", ALL),
        ("all,-3", ALL - {3}),
        ("all,8", ALL - {8}),
        ("all,epoch-graph,-3", ALL - {3, 8}),
        ("8", frozenset()),
        ("0-8", frozenset()),
        ("none", frozenset()),
        ("4", frozenset()),
    ],
)
def test_what_all_brought_in_may_be_left_out(text: str, optional: frozenset[int]) -> None:
    assert choose_stages(text).optional == optional


def test_a_stage_that_was_asked_for_stays_or_the_config_is_refused() -> None:
    trainer = fill(make(HostDevice(), short(), ALL))
    trainer.take_rounds(3)
    before = trainer.config
    with pytest.raises(StageSetError, match="stage 8 epoch-graph can't be on"):
        trainer.reconfigure(short(**LONG))
    assert trainer.config == before
    trainer.take_rounds(2)  # goes on as it was
    assert trainer.progress.learns == 5
    trainer.close()


def test_a_config_can_take_the_loop_away_and_give_it_back() -> None:
    ends = []
    for stages in (STEPWISE, LOOPED):
        chosen = parse_stages(stages)
        trainer = fill(Trainer(short(), HostDevice(), chosen, optional=chosen))
        trainer.reconfigure(short(**LONG))
        assert not trainer.loops
        for _ in range(3):
            trainer.collect()
            trainer.learn()
        trainer.reconfigure(short())
        assert trainer.loops == (stages == LOOPED)
        if trainer.loops:
            trainer.take_rounds(3)
        else:
            for _ in range(3):
                trainer.collect()
                trainer.learn()
        ends.append(trainer.workspace.read("theta").tobytes())
        trainer.close()
    assert ends[0] == ends[1]


def test_below_it_the_steps_are_launched_by_the_host() -> None:
    for number in range(7):
        trainer = make(HostDevice(), short(), up_to(number))
        assert not trainer.loops, number
        trainer.close()


@pytest.mark.slow
def test_the_display_moves_while_the_device_is_at_it(tmp_path, monkeypatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("onegraph.trainer.loop.SHOW_EVERY_S", 0.0)
    monkeypatch.setattr(
        "onegraph.trainer.loop.ProgressDisplay.update",
        lambda self, done, note="": seen.append(done),
    )
    trainer = make(HostDevice(), short(**RUN | {"loop__timed_steps": 0}), LOOPED)
    Loop(trainer, tmp_path).run()
    assert seen == sorted(seen)
    assert {64 + 4 * k for k in range(2, 10)} <= set(seen)


#: Why the device takes no rounds of lanes that the host steps.
BY_THE_HOST = (
    "copy_dtoh env_host_action <- env_action of program collect stands outside a graph, so the host"
    " has to run each step"
)

#: And why none where there is nothing but recorded transitions.
RECORDED = "program collect has no work, so there are no rounds to loop over"


@pytest.fixture(params=["gymnasium", "offline"])
def unlooped(request, tmp_path) -> tuple[Config, str]:
    """A config whose rounds the device can't take, and the reason."""
    if request.param == "gymnasium":
        return gym(loop__learn_every=2), BY_THE_HOST
    np.savez(tmp_path / "walks.npz", **chain_columns())
    return recorded(offline__transitions=str(tmp_path / "walks.npz")), RECORDED


def test_the_host_stepped_and_the_recorded_are_refused_by_name(unlooped) -> None:
    config, reason = unlooped
    words = f"stage 8 epoch-graph can't be on with this config: {reason}; leave it out"
    with pytest.raises(StageSetError) as refused:
        Trainer(config, HostDevice(), parse_stages("8"))
    assert str(refused.value) == f"{words} (all,-epoch-graph)"
    subject = TrainerSubject(config)
    assert subject.refused == {8: reason}
    assert {stage.number for stage in subject.known} == {0, *ALL} - {8}


def test_all_leaves_it_out_with_a_note_where_it_cant_be(unlooped) -> None:
    config, reason = unlooped
    said: list[str] = []
    trainer = Trainer(config, HostDevice(), ALL, say=said.append, optional=ALL)
    assert said == [f"stage 8 epoch-graph is left out: {reason}"]
    assert (trainer.stages, trainer.loops, trainer.epoch_program) == (ALL - {8}, False, None)
    with pytest.raises(TrainerError, match="turn stage 8, epoch-graph, on, or call collect"):
        trainer.take_rounds(1)
    run = TrainerRun(trainer)
    each = {"learn"} if trainer.offline else {"learn", "collect", "env_actions"}
    assert set(run.runners) == each
    assert each <= set(run.budgets)
    for timed in (False, True, False):
        assert set(run.step(timed=timed)) == each
    run.close()


def test_the_programs_that_there_are_are_listed(unlooped) -> None:
    config, _ = unlooped
    offline = bool(config.offline.transitions)
    there = {"learn"} if offline else {"learn", "collect", "reset"}
    for stages in ("0", "6", "all"):
        assert set(programs_at(config, parse_stages(stages))) == there
    assert "epoch" in programs_at(short(), ALL)


def test_verification_of_all_leaves_it_out_and_of_8_refuses_it(unlooped) -> None:
    config, _ = unlooped
    subject = TrainerSubject(config)
    assert possible("all", subject) == ALL - {8}
    assert possible("6", subject) == up_to(6)
    with pytest.raises(StageSetError, match="stage 8 epoch-graph can't be on with this config"):
        possible("all,8", subject)
    assert verify(subject, HostDevice, [possible("all", subject)], steps=4).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{}, {"loop__learn_every": 2, "loop__learns_per_collect": 3}], ids=["1:1", "2:3"]
)
def test_verification_with_a_cupti_that_does_not_see_into_the_loop(changes, cupti) -> None:
    subject = TrainerSubject(short(**changes))
    result = verify(subject, lambda: TracedDevice(cupti), [up_to(0), up_to(6), ALL], steps=6)
    assert result.ok, [str(f) for s in result.sets for f in s.findings]
    last = result.sets[-1]
    assert last.programs["epoch"].plain == {"graph_launch": 1}


def test_a_loop_of_which_nothing_ran_is_found(cupti, monkeypatch) -> None:
    launch = TracedDevice._graph_launch

    def silent(self, executable):
        if executable.graph.loops:
            HostDevice._graph_launch(self, executable)
            self.cupti.call("cuGraphLaunch")
        else:
            launch(self, executable)

    monkeypatch.setattr(TracedDevice, "_graph_launch", silent)
    result = verify(TrainerSubject(short()), lambda: TracedDevice(cupti), [ALL], steps=5)
    (finding,) = result.sets[-1].findings
    assert finding.check == "cupti-kernels"
    assert "CUPTI saw 0 kernels run in graphs, the graphs hold 1 or more" in str(finding)


def test_turns_that_are_not_those_asked_for_are_found(monkeypatch) -> None:
    """As the device counts them: no trace would show it."""
    take = Trainer.take_rounds
    monkeypatch.setattr(Trainer, "take_rounds", lambda self, count: take(self, count + 1))
    result = verify(TrainerSubject(short()), HostDevice, [ALL], steps=4)
    assert [f.check for f in result.sets[-1].findings] == ["run"]
    assert "asked for a round of 1 learning steps, and the device counted 2" in str(
        result.sets[-1].findings[0]
    )


def test_every_launch_of_the_loop_is_counted_as_its_own(tmp_path: Path) -> None:
    config = market(
        loop__epoch_steps=64,
        loop__timed_steps=8,
        loop__start_steps=64,
        replay__capacity=256,
        loop__total_env_steps=64 + 4 * 191,
    )
    device = HostDevice()
    Loop(make(device, config, LOOPED), tmp_path).run()
    found = {key: n for key, n in device.ledger.totals.items() if key[0] == "round" and n}
    assert found["round", "epoch", "graph_launch"] == 3
    assert [key for key in found if key[2] == "graph_launch"] == [
        ("round", "epoch", "graph_launch")
    ]
