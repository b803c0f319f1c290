"""Stage 7 on the host device, and what its programs are at any shape."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer.fused_contract import STEADY, FusedContract, FusedProofContract, kernels
from trainer.setups import chain, fill, full, make, market, small, trajectory

from onegraph.kernels.device import HostDevice
from onegraph.stages.difference import RELATIVE_BOUND
from onegraph.stages.program import Launch
from onegraph.stages.registry import up_to
from onegraph.stages.verify import verify
from onegraph.trainer import fusing
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.fusing import FusedStep, candidates, fused_steps, obstacle
from onegraph.trainer.network import QNetwork
from onegraph.trainer.regrouping import regroupings
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.subject import TrainerSubject

SIX, SEVEN = up_to(6), up_to(7)

# Stage 0 reads back through the deprecated call; that it warns has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")


@pytest.fixture
def open_device():
    return HostDevice


class TestFused(FusedContract):
    pass


@pytest.mark.soak
class TestFusedProof(FusedProofContract):
    pass


def shapes_of(config) -> Shapes:
    environment, _ = build_environment(config)
    return Shapes(config, QNetwork.of(config, environment), config.replay.capacity)


# ---------------------------------------------------------------- which shapes


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (chain(), "two hidden layers and nothing else before the head, not for 1 hidden layer"),
        (chain(network__hidden=[8, 8, 8]), "not for 3 hidden layers"),
        (small(network__hidden=[8, 8], network__gate=True), "not for 2 hidden layers and a gate"),
        (
            small(network__hidden=[8, 8], network__residual_blocks=1),
            "not for 2 hidden layers and 1 residual blocks",
        ),
        (chain(network__hidden=[6, 8]), "multiples of 4, not 8 inputs and hidden layers of 6 and"),
        (small(network__hidden=[8, 8], network__head="c51"), "no code for a head of atoms"),
        (small(network__hidden=[8, 8], network__noisy=True), "no code for noise on its weights"),
        (small(network__hidden=[8, 8], learn__vaccine=True), "no code for a vaccine batch"),
        (small(network__hidden=[8, 8], learn__budget__on=True), "no code for a gradient budget"),
        (full(), "no code for a head of quantiles"),
        (chain(network__hidden=[2048, 2048]), "and has 232,448"),
    ],
)
def test_what_there_are_no_kernels_for(config, why: str) -> None:
    shapes = shapes_of(config)
    assert why in obstacle(shapes, HostDevice())
    assert fused_steps(shapes, HostDevice()) == ()
    assert candidates(shapes, HostDevice()) == regroupings(shapes, HostDevice())


def test_the_ways_of_a_small_network() -> None:
    shapes = shapes_of(chain(network__hidden=[16, 8]))
    assert obstacle(shapes, HostDevice()) == ""
    fused = fused_steps(shapes, HostDevice())
    assert [step.name for step in fused] == [
        *("rows3-cluster8", "rows5-cluster8", "rows8-cluster8"),
        *("rows3-cluster4", "rows5-cluster4", "rows8-cluster4"),
    ]
    ways = candidates(shapes, HostDevice())
    assert ways == (*fused, *regroupings(shapes, HostDevice()))
    assert len({step.name for step in ways}) == len(ways)


def test_a_device_limits_the_ways() -> None:
    shapes = shapes_of(chain(network__hidden=[16, 8]))

    def names(cluster: int, shared: int) -> list[str]:
        device = SimpleNamespace(name="X", largest_cluster=cluster, largest_shared=shared)
        return [step.name for step in fused_steps(shapes, device)]

    assert names(4, 227 * 1024) == ["rows3-cluster4", "rows5-cluster4", "rows8-cluster4"]
    least = min(FusedStep(shapes, 3, 8).shared_bytes, FusedStep(shapes, 3, 4).shared_bytes)
    assert names(8, least) == []  # the kernel has some of its own beside
    assert names(8, least + 32) != []
    device = SimpleNamespace(name="Ampere", largest_cluster=1, largest_shared=99 * 1024)
    assert "Ampere forms no clusters of blocks" in obstacle(shapes, device)


# ---------------------------------------------------------------- any shape


@settings(max_examples=12, deadline=None)
@given(
    hidden=st.tuples(st.integers(1, 10), st.integers(1, 10)),
    batch=st.integers(1, 40),
    dueling=st.booleans(),
    double=st.booleans(),
    loss=st.sampled_from(["huber", "mse"]),
    n_step=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_any_shape_learns_as_at_stage_6(hidden, batch, dueling, double, loss, n_step, seed) -> None:
    config = chain(
        **STEADY
        | {
            "fusion": "auto",
            "network__hidden": [4 * width for width in hidden],
            "learn__batch_size": batch,
            "network__dueling": dueling,
            "network__double": double,
            "learn__loss": loss,
            "replay__n_step": n_step,
            "seed": seed,
        }
    )
    ends = []
    for stages in (SIX, SEVEN):
        trainer = fill(make(HostDevice(), config, stages))
        for _ in range(4):
            trainer.learn()
        ends.append((trainer.indices(), trainer.parameters()))
        assert ("td_pass" in kernels(trainer.learn_program)) is (7 in stages)
        trainer.close()
    (wanted, q), (found, p) = ends
    np.testing.assert_array_equal(found, wanted)
    assert np.linalg.norm(p - q) <= RELATIVE_BOUND * np.linalg.norm(q)


def test_a_large_batch_keeps_the_kernels_of_its_priorities(monkeypatch) -> None:
    monkeypatch.setattr(fusing.update_priorities, "AT_ONCE", 16)
    config = chain(network__hidden=[16, 8], fusion="auto")
    trainer = make(HostDevice(), config, "all")
    assert kernels(trainer.learn_program) > {"draw_rows", "td_pass", "apply_step"}
    seven = trajectory(trainer)
    six = trajectory(make(HostDevice(), config, SIX))
    assert seven.indices == six.indices


# ---------------------------------------------------------------- verification


def subject(**changes: object) -> TrainerSubject:
    # Gradients are clipped in some steps and not in others.
    fields = {"network__hidden": [16, 8], "learn__batch_size": 16, "fusion": "auto"}
    return TrainerSubject(chain(**fields | changes))


def test_verification_holds_stage_7_to_rounding() -> None:
    result = verify(subject(), HostDevice, (SIX, SEVEN, SEVEN - {3}), steps=8)
    assert result.ok, result.findings
    assert [one.exact for one in result.sets] == [True, True, False, False]
    assert result.sets[2].choices == result.sets[0].choices
    assert result.sets[2].programs["learn"].plain == {"graph_launch": 1}
    assert result.sets[2].programs["learn"].timed == {"event_set": 3, "graph_launch": 1}
    assert result.sets[2].programs["learn"].nodes == {"learn": 3}


def _scaled(kernel: str, name: str, by: float):
    """A fault of one part in a hundred in what a fused kernel is given."""

    def fault(monkeypatch) -> None:
        honest = FusedStep.merges

        def broken(self):
            def change(op):
                if isinstance(op, Launch) and op.kernel == kernel:
                    return replace(op, args={**op.args, name: op.args[name] * by})
                return op

            return tuple(
                replace(
                    merge,
                    fragment=replace(
                        merge.fragment, ops=tuple(change(op) for op in merge.fragment.ops)
                    ),
                )
                for merge in honest(self)
            )

        monkeypatch.setattr(FusedStep, "merges", broken)

    return fault


@pytest.mark.parametrize(
    ("kernel", "name", "by"),
    [
        ("draw_rows", "gamma", 1.01),
        ("td_pass", "delta", 0.99),
        ("apply_step", "beta1", 1.01),
        ("apply_step", "beta2", 0.99),
        ("apply_step", "alpha", 1.01),
    ],
)
def test_a_fault_of_one_per_cent_is_caught(monkeypatch, kernel, name, by) -> None:
    _scaled(kernel, name, by)(monkeypatch)
    changes = {"learn__loss": "huber", "learn__huber_delta": 0.05}
    result = verify(subject(**changes), HostDevice, (SEVEN,), steps=12)
    assert {f.check for f in result.sets[-1].findings} == {"equivalence"}
    assert result.sets[-1].findings[0].stage.endswith("fused-phases")


def test_market_runs_at_stage_7_by_default() -> None:
    """The shipped demo has two hidden layers."""
    trainer = make(HostDevice(), market(network__hidden=[64, 64], fusion="auto"), "all")
    assert trainer.fusion is not None
    assert str(trainer.fusion) == "rows3-cluster8 (the first; the host device measures nothing)"
    trainer.close()
