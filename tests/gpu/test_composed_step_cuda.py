"""The ways of stage 7 that any network has, on a GPU: each against stage 6, and against itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from trainer.setups import bit_flip, chain, end_of, fill, full, make, small

from onegraph.kernels.device import Device
from onegraph.stages.difference import RELATIVE_BOUND, TRAVELLED_BOUND, distance
from onegraph.stages.registry import ALL, up_to
from onegraph.trainer.config import Config, override_config
from onegraph.trainer.hindsight import relabelling
from onegraph.trainer.regrouping import regroupings

pytestmark = pytest.mark.gpu

SIX = up_to(6)
STEPS = 20

#: Draws and actions that rounding does not reach: the comparison is of the same batches. Adam
#: divides by the root of the second moment, which for a gradient that cancels to nothing is
#: rounding; eps is put above that.
STEADY: dict[str, object] = {
    "replay__alpha": 0.0,
    "learn__epsilon__start": 1.0,
    "learn__epsilon__end": 1.0,
    "learn__lr__start": 1e-3,
    "learn__adam_eps": 1e-5,
}

LARGE: dict[str, object] = STEADY | {
    "learn__batch_size": 512,
    "replay__capacity": 1024,
    "loop__start_steps": 512,
}

CONFIGS: dict[str, Config] = {
    "one hidden layer": chain(**LARGE, network__hidden=[256]),
    "two hidden layers": chain(**LARGE, network__hidden=[512, 512]),
    "three hidden layers": chain(**LARGE, network__hidden=[256, 128, 64]),
    "full": full(**STEADY),
    "hindsight": bit_flip(**STEADY, hindsight__strategy="future"),
    "vaccine": small(**STEADY, learn__vaccine=True, learn__batch_size=5),
    "c51": small(**STEADY, network__head="c51"),
    "prioritized": small(**STEADY | {"replay__alpha": 0.6}),
}


@dataclass(frozen=True)
class Run:
    """What a run began with, drew, and ended with."""

    start: NDArray[np.float32]
    drawn: list[bytes]
    state: dict[str, NDArray[Any]]
    end: dict[str, bytes]


def run(device: Device, config: Config, name: str = "none") -> Run:
    """`STEPS` learning steps at stage 6, or in one of the ways of stage 7."""
    config = override_config(config, {"fusion": name}, "the test")
    trainer = fill(make(device, config, SIX if name == "none" else ALL - {8}))
    assert name in ("none", trainer.fusion and trainer.fusion.name)
    start, drawn = trainer.parameters(), []
    for _ in range(STEPS):
        trainer.learn()
        drawn.append(trainer.indices().tobytes())
        trainer.collect()
    found = Run(start, drawn, trainer.state(), end_of(trainer))
    trainer.close()
    return found


def ways(device: Device, config: Config) -> list[str]:
    """The ways for a step of `config`."""
    trainer = make(device, config, SIX)
    given = relabelling(config, trainer.environment)
    found = regroupings(trainer.shapes, device, given)
    trainer.close()
    return [form.name for form in found]


@pytest.mark.parametrize("which", CONFIGS)
def test_each_way_agrees_with_stage_6_and_with_itself(cuda: Device, which: str) -> None:
    config = CONFIGS[which]
    six = run(cuda, config)
    known = ways(cuda, config)
    assert {"wide", "whole", "ends", "ends-wide", "ends-grouped"} == {*known}
    for name in known:
        seven, again = (run(cuda, config, name) for _ in range(2))
        assert seven.drawn == again.drawn == six.drawn, name
        assert [n for n in seven.end if seven.end[n] != again.end[n]] == [], name
        for array in ("theta", "theta_target"):
            wanted, found = six.state[array], seven.state[array]
            _, relative, travelled = distance(found, wanted, six.start)
            assert relative <= RELATIVE_BOUND, (name, array)
            assert travelled <= TRAVELLED_BOUND, (name, array)
        for array in ("counters", "schedule", "diagnostics", "skip", "replay_generation"):
            np.testing.assert_array_equal(
                seven.state[array], six.state[array], err_msg=f"{array} of {name}"
            )


@pytest.mark.parametrize("name", ["ends", "ends-grouped"])
def test_the_devices_loop_takes_the_same_steps(cuda: Device, name: str) -> None:
    """Kernels whose blocks wait for one another, in the turn of a while-node."""
    config = override_config(full(), {"fusion": name}, "the test")
    ends = []
    for stages in (ALL - {8}, ALL):
        trainer = fill(make(cuda, config, stages))
        if 8 in stages:
            trainer.take_rounds(STEPS)
        while trainer.progress.learns < STEPS:
            trainer.collect()
            trainer.learn()
        ends.append(trainer.parameters().tobytes())
        trainer.close()
    assert ends[1] == ends[0]


# ---------------------------------------------------------------- precision

#: Of the way travelled. On a host that rounds factors as the tensor cores do, the runs below went
#: apart by 7.2e-7 where float32's sums were taken in the opposite order, by 8.4e-7 with three TF32
#: products in the place of one, by 5.7e-4 with two of the three, and by 4.0e-3 with one. So this is
#: a hundred times the noise of float32, and finds a product too few.
PRECISION_BOUND = 1e-4


def at(precision: str) -> Config:
    return chain(**LARGE, network__hidden=[512, 512], network__precision=precision)


@pytest.mark.parametrize("name", ["none", "wide", "ends", "ends-wide", "ends-grouped"])
def test_three_tf32_products_are_as_good_as_one_of_float32(cuda: Device, name: str) -> None:
    six = run(cuda, at("float32"))
    far = {}
    for precision in ("tf32x3", "tf32"):
        found, again = (run(cuda, at(precision), name) for _ in range(2))
        assert found.end == again.end
        assert found.drawn == six.drawn
        far[precision] = distance(found.state["theta"], six.state["theta"], six.start)[2]
    print(name, far)
    assert far["tf32x3"] <= PRECISION_BOUND < far["tf32"]
