"""Launches of which the second reads by row what the first wrote, as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from trainer.setups import full, make, trajectory
from trainer.test_regrouping import dag_of, ways

from onegraph.kernels.device import HostDevice
from onegraph.stages.program import Launch, LaunchGroup, Memset, Op, Ref
from onegraph.stages.registry import ALL
from onegraph.trainer.config import Config
from onegraph.trainer.joined_launches import joined

# Stage 0 reads back through the deprecated call; that it warns has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:DeviceArray.to_host:DeprecationWarning")

ADD = Launch(
    "scaled_add",
    {"a": Ref("x"), "b": Ref("y"), "scale": Ref("s", 1, 1), "out": Ref("t"), "n": 12, "scaled": 1},
)
_OF_THE_NORM: dict[str, Ref | int | float] = {
    "scale": Ref("w", 0, 4),
    "shift": Ref("w", 4, 4),
    "out": Ref("o"),
    "mean": Ref("m"),
    "rstd": Ref("r"),
    "rows": 3,
    "cols": 4,
    "eps": 1e-5,
}
NORM = Launch("layer_norm", {"x": Ref("t"), **_OF_THE_NORM})
_SUM = {"a": Ref("x"), "b": Ref("y"), "depth": Ref("s", 1, 1), "total": Ref("t")}
BOTH = Launch("add_norm", {**_SUM, **_OF_THE_NORM, "scaled": 1})
GRAD = Launch(
    "layer_norm_grad",
    {
        "x": Ref("t"),
        "mean": Ref("m"),
        "rstd": Ref("r"),
        "scale": Ref("w", 0, 4),
        "grad_out": Ref("g"),
        "residual": Ref("h"),
        "depth": Ref("g"),
        "grad_in": Ref("i"),
        "grad_branch": Ref("i"),
        "grad_scale": Ref("v"),
        "grad_shift": Ref("u"),
        "rows": 3,
        "cols": 4,
        "tiles": 2,
        "with_residual": 1,
        "after_relu": 0,
        "with_branch": 0,
    },
)
SCALED = Launch(
    "scaled_add_grad", {"grad_out": Ref("i"), "scale": Ref("s"), "grad_b": Ref("b"), "n": 12}
)


MIX = Launch(
    "iqn_mix_grad",
    {
        "features": Ref("t"),
        "phi": Ref("p"),
        "grad_z": Ref("z"),
        "depth": Ref("t"),
        "grad_phi": Ref("q"),
        "grad_features": Ref("i"),
        "grad_branch": Ref("n"),
        "rows": 3,
        "quantiles": 2,
        "hidden": 4,
        "add": 1,
        "with_branch": 0,
    },
)


def changed(op: Launch, **args: Any) -> Launch:
    return replace(op, args={**op.args, **args})


def test_a_sum_and_the_norm_of_it_are_one() -> None:
    assert joined([ADD, NORM]) == (BOTH,)
    module = [replace(op, module="graphed") for op in (ADD, NORM)]
    assert joined(module) == (replace(BOTH, module="graphed"),)


@pytest.mark.parametrize("grad", [GRAD, MIX], ids=["norm", "quantiles"])
def test_a_gradient_and_the_branch_before_it_are_one(grad: Launch) -> None:
    want = changed(grad, depth=Ref("s"), grad_branch=Ref("b"), with_branch=1)
    assert joined([grad, SCALED]) == (want,)
    # A second branch of the same gradient has a launch of its own.
    other = changed(SCALED, grad_b=Ref("c"))
    assert joined([grad, SCALED, other]) == (want, other)


def test_what_has_nothing_to_do_with_them_may_stand_between() -> None:
    between: list[Op] = [Memset(Ref("z")), changed(ADD, out=Ref("q"))]
    assert joined([ADD, *between, NORM]) == (BOTH, *between)


@pytest.mark.parametrize(
    "between",
    [
        Memset(Ref("o")),  # overwritten by the norm
        Memset(Ref("w")),  # read by it
        Memset(Ref("t")),
        changed(SCALED, grad_out=Ref("m")),  # reads what the norm writes
    ],
)
def test_what_the_second_waits_for_keeps_them_apart(between: Op) -> None:
    assert joined([ADD, between, NORM]) == (ADD, between, NORM)


@pytest.mark.parametrize(
    "pair",
    [
        (ADD, changed(NORM, x=Ref("q"))),
        (ADD, changed(NORM, x=Ref("t", 0, 12))),  # the same, but not seen to be
        (ADD, changed(NORM, rows=2)),
        (ADD, replace(NORM, module="graphed")),
        (ADD, ADD),
        (NORM, ADD),
        (GRAD, changed(SCALED, grad_out=Ref("g"))),
        (GRAD, changed(SCALED, n=8)),
        (changed(GRAD, with_branch=1), SCALED),
        (changed(MIX, hidden=3), SCALED),
    ],
)
def test_other_pairs_stay(pair: tuple[Launch, Launch]) -> None:
    assert joined(pair) == pair


@pytest.mark.parametrize("config", [full(network__residual_blocks=3), full(network__drop_path=0.0)])
def test_a_learner_with_residual_blocks_has_the_same_bits(config: Config) -> None:
    trainer = make(HostDevice(), ways(config, "ends-grouped"), ALL - {8})
    ops = dag_of(trainer.learn_program).ops
    names = {op.kernel for op in ops if isinstance(op, Launch | LaunchGroup)}
    assert "add_norm" in names
    wanted = trajectory(make(HostDevice(), ways(config, "ends"), ALL - {8}), 4)
    assert trajectory(trainer, 4) == wanted
