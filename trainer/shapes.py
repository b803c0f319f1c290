"""The sizes and constants that every op of the trainer's programs is made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onegraph.kernels.common.layout import SCHEDULE_PARAMS, ScheduleKind, ScheduleParam
from onegraph.kernels.replay.tree import node_count
from onegraph.trainer.config import Config
from onegraph.trainer.network import QNetwork


@dataclass(frozen=True)
class Shapes:
    """Sizes of a run: B batch, E lanes, T slots, N = T x E rows, S and Sp state widths."""

    config: Config
    network: QNetwork
    capacity: int

    @property
    def batch(self) -> int:
        return self.config.learn.batch_size

    @property
    def draws(self) -> int:
        """Rows drawn a step: the batch, and the vaccine batch behind it if there is one."""
        return self.batch * (2 if self.config.learn.vaccine else 1)

    @property
    def strata(self) -> int:
        """Parts of the priority mass that a batch has a row of each from; 0: it is drawn freely."""
        return self.batch if self.config.replay.stratified else 0

    @property
    def lanes(self) -> int:
        return self.config.env.lanes

    @property
    def slots(self) -> int:
        return self.capacity // self.lanes

    @property
    def width(self) -> int:
        return self.network.observation_width

    @property
    def padded(self) -> int:
        return self.network.inputs

    @property
    def nodes(self) -> int:
        """Inner nodes of the sum tree; the last is the root."""
        return node_count(self.capacity)

    @property
    def ring(self) -> int:
        """Steps of statistics kept between two epoch ends."""
        return self.config.loop.epoch_steps

    @property
    def target_every(self) -> int:
        """Learn steps between two copies to the target network; 0: it moves by tau in each."""
        learn = self.config.learn
        return learn.target_every if learn.target == "hard" else 0

    def schedule_params(self) -> NDArray[np.float64]:
        """What the schedules are computed from: ``schedule_params`` [20], float64.

        Tau, beta and the learning rate count learn steps; epsilon counts vector steps, so its
        length in env steps is divided by the lanes.
        """
        learn, replay = self.config.learn, self.config.replay
        out = np.zeros(SCHEDULE_PARAMS)

        def put(at: ScheduleParam, kind: str, start: float, end: float, steps: float) -> None:
            out[at : at + 4] = ScheduleKind[kind.upper()], start, end, steps

        put(ScheduleParam.TAU, learn.tau.kind, learn.tau.start, learn.tau.end, learn.tau.steps)
        put(ScheduleParam.BETA, "linear", replay.beta_start, replay.beta_end, replay.beta_steps)
        epsilon = learn.epsilon
        put(
            ScheduleParam.EPSILON,
            epsilon.kind,
            epsilon.start,
            epsilon.end,
            epsilon.steps / self.lanes,
        )
        lr = learn.lr
        put(ScheduleParam.LEARNING_RATE, lr.kind, lr.start, lr.end, lr.steps)
        out[ScheduleParam.WARM_UP_STEPS] = lr.warm_up_steps
        out[ScheduleParam.ADAM_BETA1] = learn.adam_beta1
        out[ScheduleParam.ADAM_BETA2] = learn.adam_beta2
        return out
