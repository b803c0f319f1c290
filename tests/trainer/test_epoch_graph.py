"""The loop of rounds on the host device, and where it can't be."""

from __future__ import annotations

import pytest
from trainer.epoch_contract import LOOPED, RUN, STEPWISE, EpochGraphContract
from trainer.setups import OpenDevice, fill, make, short

from onegraph.kernels.device import HostDevice
from onegraph.stages.flags import choose_stages, parse_stages
from onegraph.stages.registry import ALL, StageSetError, up_to
from onegraph.trainer.loop import Loop
from onegraph.trainer.trainer import Trainer, TrainerError


@pytest.fixture
def open_device() -> OpenDevice:
    return HostDevice


class TestEpochGraph(EpochGraphContract):
    pass


#: A round of 100 learning steps, which is more than one graph holds.
LONG = {"loop__learns_per_collect": 100}


def test_a_round_that_is_too_long_is_refused_by_name_where_it_was_asked_for() -> None:
    with pytest.raises(StageSetError) as refused:
        make(HostDevice(), short(**LONG), LOOPED)
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
    trainer = fill(make(HostDevice(), short(), LOOPED))
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
