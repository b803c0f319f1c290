"""A choice of stage 7's kernels that is measured, in this process or in one of its own."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from trainer.setups import chain

from onegraph.kernels.device import HostDevice, open_device
from onegraph.trainer import tuning
from onegraph.trainer.config import Config
from onegraph.trainer.envs.base import Environment
from onegraph.trainer.envs.build import build_environment
from onegraph.trainer.fusing import candidates
from onegraph.trainer.network import QNetwork
from onegraph.trainer.shapes import Shapes
from onegraph.trainer.tuning import FusionTimes, choose

#: Seconds within which a process says something, or the test has failed; a GPU may compile first.
PATIENCE = 300.0

#: What a process says while it measures.
MEASURES = "it measures"


class Later(HostDevice):
    """The host device, taken for one whose kernels have times to compare."""

    runs_later = True
    name = "Later"
    platform = "sm_0, driver 1"


def settings(**changes: object) -> Config:
    return chain(**{"network__hidden": [16, 8], "fusion": "auto"} | changes)


def sized(config: Config) -> tuple[Shapes, Environment]:
    environment, _ = build_environment(config)
    network = QNetwork.of(config, environment)
    return Shapes(config, network, config.replay.capacity), environment


#: Every way to do the step of `settings`: by the fused kernels, and the others.
NAMES = [step.name for step in candidates(sized(settings())[0], HostDevice())]


def times(**changes: float) -> FusionTimes:
    """None takes 9 microseconds, the kernels from 3 on; names are written with underscores."""
    found = {"none": 9.0} | {name: 3.0 + i for i, name in enumerate(NAMES)}
    return FusionTimes(found | {k.replace("_", "-"): v for k, v in changes.items()})


class Talker:
    """A process whose work says something now and then, and waits where it is to.

    Attributes:
        pid: its number.
    """

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        context = mp.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=work, args=(there, *arguments), daemon=True)
        self._process.start()
        there.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def hears(self) -> str:
        """What it says next."""
        assert self._pipe.poll(PATIENCE), "it is silent"
        said: str = self._pipe.recv()
        return said

    def let_go(self) -> None:
        """End its wait."""
        self._pipe.send("go")

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def chooses(there: Connection, fastest: str, batch: int) -> None:
    """Say what choosing says, wait in the measurement, and say the choice."""

    def measure(*_: object) -> FusionTimes:
        there.send(MEASURES)
        there.recv()
        return times(**{fastest: 1.0})

    choice = choose(
        *sized(settings(learn__batch_size=batch)), Later(), say=there.send, measure=measure
    )
    there.send(str(choice))


def chooses_on_cuda(there: Connection, folder: Path) -> None:
    """Wait once there is a GPU, then choose, with the times in `folder`; says the choice."""
    entry = tuning.cache_entry
    tuning.cache_entry = lambda *sizes: (folder / entry(*sizes)[0].name, entry(*sizes)[1])
    with open_device("cuda") as device:
        there.send(device.name)
        there.recv()
        there.send(str(choose(*sized(settings()), device)))
