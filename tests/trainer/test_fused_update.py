"""The end of a learning step by one kernel: in any config's step, held to stage 6."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from trainer.setups import chain, end_of, fill, full, full_market, make, small, steps
from trainer.test_fused import kernels, shapes_of

from onegraph.kernels.common.layout import Diagnostic
from onegraph.kernels.device import HostDevice
from onegraph.kernels.fused.update_step import STATIC_BYTES, slot_bytes
from onegraph.stages.difference import RELATIVE_BOUND, TRAVELLED_BOUND, distance
from onegraph.stages.program import Launch, Memset, Op, ProgramError, Ref
from onegraph.stages.registry import up_to
from onegraph.trainer.config import Config
from onegraph.trainer.fused_update import (
    REPLACED,
    covered,
    merge,
    obstacle,
    rewriting,
    update,
    with_update,
)
from onegraph.trainer.learner import Learner
from onegraph.trainer.part_figures import PartFigures, part_figures
from onegraph.trainer.program import DqnPrograms
from onegraph.trainer.publication import published_statistics
from onegraph.trainer.trainer import Trainer

SIX, SEVEN = up_to(6), up_to(7)
SHARED = HostDevice.largest_shared

#: Ends of a step: what each part of the learner makes of it.
CONFIGS = {
    "dqn": chain(),
    "hard target": chain(learn__target="hard", learn__target_every=3),
    "wide": chain(network__hidden=[40, 40, 40]),
    "budget": small(learn__budget__on=True, learn__max_grad_norm=0.05),
    "vaccine": small(learn__vaccine=True, learn__batch_size=5),
    "value networks": small(aux__iql=True, aux__modulate=True),
    "denoise": small(aux__denoise=True),
    "quantiles": small(network__head="iqn"),
    "c51": small(network__head="c51"),
    "noisy": small(network__noisy=True),
    "spectral": small(network__spectral_cap=0.6),
    "full": full(),
    "full without shares": full(
        learn__budget__q=0.7,
        learn__budget__iql_high=0.15,
        learn__budget__iql_low=0.15,
        learn__budget__denoise=0.0,
        learn__budget__attention=0.0,
        learn__budget__selectivity=0.0,
    ),
}


def merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage 7 takes the update's merge, and no other."""

    def merges(self: DqnPrograms, program: str):
        return (merge(self.shapes, SHARED),) if program == "learn" else ()

    monkeypatch.setattr(DqnPrograms, "merges", merges)


def pair(monkeypatch: pytest.MonkeyPatch, config: Config) -> tuple[Trainer, Trainer]:
    """Two trainers whose replays are full: at stage 6, and with the update in one."""
    merged(monkeypatch)
    return fill(make(HostDevice(), config, SIX)), fill(make(HostDevice(), config, SEVEN))


def said(trainer: Trainer) -> dict[str, float]:
    """What the parts say of the last step, flat."""
    flat: dict[str, float] = {}
    for name, value in vars(part_figures(trainer) or PartFigures()).items():
        flat |= {f"{name} {k}": v for k, v in value.items()} if isinstance(value, dict) else {}
        flat |= {name: value} if isinstance(value, float) else {}
    return flat


def alike(six: Trainer, seven: Trainer, start: np.ndarray) -> None:
    """The states of both are the same to rounding."""
    bounds = dict.fromkeys(("theta", "theta_target"), 1e-6)
    bounds |= dict.fromkeys(("adam_m", "adam_v"), RELATIVE_BOUND)
    for name, bound in bounds.items():
        wanted, found = six.state()[name], seven.state()[name]
        _, relative, travelled = distance(found, wanted, start)
        assert relative <= bound, (name, relative)
        if name == "theta":
            assert travelled <= TRAVELLED_BOUND
    for name in ("counters", "schedule", "diagnostics", "skip"):
        np.testing.assert_array_equal(seven.state()[name], six.state()[name], err_msg=name)
    for name in ("record", "history", "td"):
        wanted, found = (t.workspace.read(name) for t in (six, seven))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6, err_msg=name)
    assert said(seven) == pytest.approx(said(six), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("name", CONFIGS)
def test_it_agrees_with_stage_6_to_rounding(monkeypatch, name: str) -> None:
    six, seven = pair(monkeypatch, CONFIGS[name])
    assert "update_step" in kernels(seven.learn_program)
    assert not kernels(seven.learn_program) & REPLACED
    assert kernels(six.learn_program) & REPLACED
    start = six.parameters()
    removed = scaled = 0
    for _ in range(20):
        for trainer in (six, seven):
            trainer.learn()
        now = said(seven)
        removed += now.get("vaccine_removed", 0.0) < 0.0
        scaled += any(0.0 < v < 1.0 for k, v in now.items() if k.startswith("gradient_scales"))
        np.testing.assert_array_equal(seven.indices(), six.indices())
        for trainer in (six, seven):
            trainer.collect()
    assert (six.parameters() != start).any()
    alike(six, seven, start)
    config = CONFIGS[name]
    assert (removed > 0) is config.learn.vaccine
    assert (scaled > 0) is config.learn.budget.on
    six.close()
    seven.close()


@pytest.mark.parametrize("name", ["dqn", "full"])
def test_a_gradient_that_is_no_number_skips_the_step(monkeypatch, name: str) -> None:
    """A NaN in the target network makes TD errors, and the gradient, NaN; then it is gone again."""
    six, seven = pair(monkeypatch, CONFIGS[name])
    start = six.parameters()
    for trainer in (six, seven):
        for _ in range(5):
            trainer.learn()
        space = trainer.workspace
        target = space.read("theta_target")
        broken = target.copy()
        trainer.network.layout["hidden.0.bias"].values(broken)[:] = np.nan
        kept = {n: space.read(n) for n in ("theta", "adam_m", "adam_v")}
        ready = space.read("iqn_ready") if name == "full" else None
        space.write("theta_target", broken)
        for skipped in (1, 2):
            trainer.learn()
            for array, values in kept.items():
                np.testing.assert_array_equal(space.read(array), values, err_msg=array)
            np.testing.assert_array_equal(space.read("theta_target"), broken)
            if ready is not None:
                np.testing.assert_array_equal(space.read("iqn_ready"), ready)
            seen = trainer.history(1)
            assert seen["skipped"].tolist() == [skipped]
            assert seen["adam_step"].tolist() == [6]  # t of the first is not used up
        assert space.read("diagnostics")[Diagnostic.NONFINITE_TD] > 0
        space.write("theta_target", target)
        trainer.learn()
        seen = trainer.history(1)
        assert (seen["adam_step"][0], seen["skipped"][0]) == (6, 2)
    alike(six, seven, start)
    six.close()
    seven.close()


def test_two_runs_are_one_and_a_step_is_one_graph_launch(monkeypatch) -> None:
    merged(monkeypatch)
    ends = []
    for _ in range(2):
        trainer = steps(fill(make(HostDevice(), full(), SEVEN)), 5)
        allowed = trainer.budget(trainer.learn_program)
        for timed in (False, True):
            allowed.check(trainer.learn(timed=timed).counts, trainer.learn_program, timed=timed)
        assert list(trainer.timings().phases)[-2:] == ["update", "per_priority"]
        ends.append(end_of(trainer))
        trainer.close()
    assert ends[0] == ends[1]


def test_a_network_of_the_market(monkeypatch) -> None:
    six, seven = pair(monkeypatch, full_market())
    start = six.parameters()
    for trainer in (six, seven):
        for _ in range(3):
            trainer.learn()
    alike(six, seven, start)
    six.close()
    seven.close()


# ---------------------------------------------------------------- of ops


def launches(ops: tuple[Op, ...]) -> list[str]:
    return [op.kernel for op in ops if isinstance(op, Launch)]


def test_the_phases_that_it_covers() -> None:
    last = ("adam_grad", "adam", "maintenance", "iql_modulate")
    for name, config in CONFIGS.items():
        before = (
            ("post_aux",) if name.split()[0] in ("budget", "vaccine", "denoise", "full") else ()
        )
        assert covered(shapes_of(config)) == (*before, *last), name


def test_one_launch_for_all_of_a_plain_step() -> None:
    found = update(shapes_of(chain()), SHARED)
    assert launches(found.ops) == ["update_step"]
    assert len(found.ops) == 1
    args = found.ops[0].args
    assert {args[n] for n in ("with_aux", "with_vaccine", "readies", "modulates")} == {0}
    assert args["vaccinated"] == 0b1111111


def test_what_has_no_share_is_not_vaccinated_and_not_zeroed_for_it() -> None:
    shapes = shapes_of(CONFIGS["full without shares"])
    found = update(shapes, SHARED)
    assert found.ops[-1].args["vaccinated"] == 0b0111101  # neither selectivity nor attention
    zeroed = [op for op in found.ops if isinstance(op, Memset) and op.dst.buffer == "grad_vaccine"]
    assert len(zeroed) == sum(
        isinstance(op, Memset) and op.dst.buffer == "grad_vaccine"
        for op in update(shapes_of(full()), SHARED).ops
    )


def test_ops_around_it_stay() -> None:
    shapes = shapes_of(chain())
    work = Learner(shapes).work
    own = [*work["adam_grad"], *work["adam"], *published_statistics(shapes).ops]
    before, after = Memset(Ref("td")), Memset(Ref("loss"))
    found = rewriting(shapes, SHARED)([before, *own, after])
    assert found.ops[0] is before
    assert found.ops[2] is after
    assert launches(found.ops) == ["update_step"]


def test_what_is_no_update_is_refused() -> None:
    shapes = shapes_of(chain())
    work = Learner(shapes).work
    own = [*work["adam_grad"], *work["adam"], *published_statistics(shapes).ops]
    with pytest.raises(ProgramError, match="no op here is of a learning step's update"):
        with_update(shapes, SHARED, [Memset(Ref("td"))])
    with pytest.raises(ProgramError, match="memset td stands among the launches"):
        with_update(shapes, SHARED, [own[0], Memset(Ref("td")), *own[1:]])
    with pytest.raises(ProgramError, match="launch adam_step stands among the launches"):
        with_update(shapes, SHARED, [*own, own[1]])
    with pytest.raises(ProgramError, match="has a launch of maintain, and there is none here"):
        with_update(shapes, SHARED, own[:-1])
    with pytest.raises(ProgramError, match="has a launch of grad_norm or clip_factor, and there"):
        with_update(shapes, SHARED, own[1:])
    with pytest.raises(ProgramError, match="1,000 bytes of shared memory of a block are too few"):
        with_update(shapes, 1000, own)


def test_what_a_modulation_of_other_errors_is_called() -> None:
    shapes = shapes_of(CONFIGS["value networks"])
    ops = [*Learner(shapes).work["adam_grad"], *Learner(shapes).work["adam"]]
    ops += published_statistics(shapes).ops
    (rule,) = Learner(shapes).work["iql_modulate"]
    other = replace(rule, args={**rule.args, "td": Ref("loss")})
    with pytest.raises(ProgramError, match="go by different losses or TD errors"):
        with_update(shapes, SHARED, [*ops, other])


def test_a_range_that_is_no_groups_is_refused() -> None:
    shapes = shapes_of(CONFIGS["full without shares"])
    work = Learner(shapes).work
    ops = [*work["post_aux"], *work["adam_grad"], *work["adam"], *work["maintenance"]]
    ops += published_statistics(shapes).ops
    odd = [
        replace(op, dst=Ref("grad_vaccine", 1, 2))
        if isinstance(op, Memset) and op.dst.buffer == "grad_vaccine"
        else op
        for op in ops
    ]
    with pytest.raises(ProgramError, match=r"grad_vaccine\[1:3\] is not the range of one Adam"):
        with_update(shapes, SHARED, odd)


def test_what_the_device_must_have() -> None:
    def on(shared: int) -> SimpleNamespace:
        return SimpleNamespace(name="X", largest_shared=shared)

    for config, flags in (
        (chain(), {"with_aux": 0, "with_vaccine": 0}),
        (full(), {"with_aux": 1, "with_vaccine": 1}),
    ):
        shapes, least = shapes_of(config), STATIC_BYTES + slot_bytes(**flags)
        assert obstacle(shapes, on(least)) == ""
        why = obstacle(shapes, on(least - 1))
        assert f"holds {slot_bytes(**flags):,} bytes" in why
        assert f"the {least - 1:,} bytes of shared memory that it has on X are too few" in why
