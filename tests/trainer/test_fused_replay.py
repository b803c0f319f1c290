"""The replay's part of a step by two kernels: the bits of stage 6, whatever the config."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer.setups import bit_flip, chain, end_of, fill, full, make, short, trajectory

from onegraph.kernels.device import HostDevice
from onegraph.kernels.fused import write_back as writing
from onegraph.kernels.replay import sample_batch
from onegraph.stages.program import Launch, Merge
from onegraph.stages.registry import up_to
from onegraph.trainer import fused_replay
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.hindsight import relabelling
from onegraph.trainer.network import QNetwork
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.shapes import Shapes

SIX, SEVEN = up_to(6), up_to(7)

#: Every choice that reaches the two kernels.
WAYS = {
    "chain": chain(),
    "not stratified": chain(replay__stratified=False),
    "uniform": chain(replay__alpha=0.0),
    "odd batch": short(learn__batch_size=37),
    "full": full(),
    "full, plain": full(learn__vaccine=False, network__noisy=True, learn__budget__on=False),
    "future": bit_flip(),
    "final": bit_flip(hindsight__strategy="final"),
    "random": bit_flip(hindsight__strategy="random"),
    "no goal": bit_flip(hindsight__strategy="none"),
}


def merges(self: DqnPrograms, program: str) -> tuple[Merge, ...]:
    """The two fragments in the place of their phases."""
    if program != "learn":
        return ()
    drawn = fused_replay.draw(self.shapes, self.replay.hindsight)
    return (
        Merge("draw", fused_replay.DRAWS, drawn),
        Merge("write_back", fused_replay.WRITES, fused_replay.write_back(self.shapes)),
    )


@pytest.fixture
def merged(monkeypatch) -> None:
    monkeypatch.setattr(DqnPrograms, "merges", merges)


def kernels(trainer) -> list[str]:
    return [op.kernel for _, op, _ in trainer.learn_program.all_ops() if isinstance(op, Launch)]


def shapes_of(config) -> Shapes:
    environment, _ = build_environment(config)
    return Shapes(config, QNetwork.of(config, environment), config.replay.capacity)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_has_the_bits_of_stage_6(merged, way: str) -> None:
    config = WAYS[way]
    trainer = make(HostDevice(), config, SEVEN)
    found = kernels(trainer)
    relabels = config.hindsight.strategy != "none"
    assert found[0] == ("draw_relabelled" if relabels else "draw_batch")
    assert found[-1] == "write_back"
    assert not {"advance_counters", "update_priorities", "sample_batch"} & {*found}
    assert trajectory(trainer, 12) == trajectory(make(HostDevice(), config, SIX), 12)


@settings(max_examples=8, deadline=None)
@given(
    batch=st.integers(1, 64),
    n_step=st.integers(1, 5),
    seed=st.integers(0, 99),
    vaccine=st.booleans(),
    stratified=st.booleans(),
)
def test_any_batch_has_the_bits_of_stage_6(batch, n_step, seed, vaccine, stratified) -> None:
    config = short(
        learn__batch_size=batch,
        replay__n_step=n_step,
        replay__stratified=stratified,
        learn__vaccine=vaccine,
        seed=seed,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DqnPrograms, "merges", merges)
        found = trajectory(make(HostDevice(), config, SEVEN), 4)
    assert found == trajectory(make(HostDevice(), config, SIX), 4)


def test_the_forms_of_a_large_batch_have_them_too(merged, monkeypatch) -> None:
    wanted = trajectory(make(HostDevice(), chain(), SIX), 12)
    monkeypatch.setattr(sample_batch, "ALONE", 16)
    for form in writing.Form:
        monkeypatch.setattr(writing, "form_of", lambda n, leaf_count, form=form: form)
        trainer = make(HostDevice(), chain(), SEVEN)
        first, *_, last = (
            op for _, op, _ in trainer.learn_program.all_ops() if isinstance(op, Launch)
        )
        assert (first.args["each"], last.args["form"]) == (sample_batch.TOGETHER, form)
        assert trajectory(trainer, 12) == wanted


def test_a_state_goes_on_at_stage_6_and_back(merged) -> None:
    """What the two kernels keep from step to step is no part of a run's state."""
    config = chain()
    straight = fill(make(HostDevice(), config, SIX))
    at, parts = fill(make(HostDevice(), config, SEVEN)), (SIX, SEVEN, SIX)
    for stages in parts:
        for trainer in (straight, at):
            for _ in range(3):  # an odd number: the barriers' bits differ from a fresh one's
                trainer.learn()
                trainer.collect()
        state, progress = at.state(), at.progress
        at.close()
        at = make(HostDevice(), config, stages)
        at.restore(state, progress)
    # `end_of` reads the last step's record, which a restored trainer has none of.
    for one in (straight, at):
        one.learn()
    assert end_of(at) == end_of(straight)
    straight.close()
    at.close()


def test_a_relabelling_that_does_not_go_with_its_config() -> None:
    config = bit_flip()
    environment, _ = build_environment(config)
    shapes, given = shapes_of(config), relabelling(config, environment)
    assert given is not None
    assert fused_replay.obstacle(shapes, given) == ""
    with pytest.raises(ValueError, match=r"strategy = 'future' and .*: none was given; pass what"):
        fused_replay.draw(shapes)
    with pytest.raises(ValueError, match=r"strategy = 'none' and .*: one was given; pass what"):
        fused_replay.draw(shapes_of(chain()), given)


@pytest.mark.parametrize(
    ("n", "leaf_count", "form", "blocks"),
    [
        (0, 1, writing.Form.TOUCHED, 1),
        (1, 1, writing.Form.WHOLE, 1),
        (256, 2**20, writing.Form.TOUCHED, 256),
        (1023, 2**20, writing.Form.TOUCHED, 528),
        (1024, 2**20, writing.Form.WHOLE, 528),
        (65_536, 33, writing.Form.WHOLE, 256),
        (65_536, 2**20, writing.Form.WHOLE, 528),
        (2048, 10**7, writing.Form.TOUCHED, 528),
        (2049, 10**7, writing.Form.APART, 528),
        (65_536, 10**7, writing.Form.APART, 528),
    ],
)
def test_form_and_blocks_of_a_write_back(n, leaf_count, form, blocks) -> None:
    assert writing.form_of(n, leaf_count) is form
    assert writing.blocks_of(n, leaf_count) == blocks


def test_a_fault_in_either_kernel_is_seen(monkeypatch) -> None:
    """The comparison above would find thresholds or leaves that are a little off."""
    wanted = trajectory(make(HostDevice(), chain(), SIX), 12)
    for at, name, value in ((0, "strata", 31), (1, "alpha", 0.601)):

        def broken(self, program, at=at, name=name, value=value):
            found = list(merges(self, program))
            if found:
                op, *rest = found[at].fragment.ops
                op = replace(op, args={**op.args, name: value})
                fragment = replace(found[at].fragment, ops=(op, *rest))
                found[at] = replace(found[at], fragment=fragment)
            return tuple(found)

        monkeypatch.setattr(DqnPrograms, "merges", broken)
        assert trajectory(make(HostDevice(), chain(), SEVEN), 12) != wanted
