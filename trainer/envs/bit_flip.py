"""Bit flipping: a state that has to be turned into a goal, one bit a step.

The proof of hindsight replay: with 15 bits chance almost never reaches a goal, so that a learner
without hindsight sees one reward only (Andrychowicz et al. 2017, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from onegraph.stages.program import Buffer, Launch, Op, Ref
from onegraph.trainer.envs.base import TRAINING_LANES, Goal, LaneNames, common_buffers
from onegraph.trainer.network import padded_width


@dataclass(frozen=True)
class BitFlipEnvironment:
    """E lanes with observations [bits | goal bits].

    Attributes:
        bits: of the state, of the goal, and the number of actions.
        max_steps: truncates an episode; 0 never does.
    """

    bits: int
    max_steps: int
    lanes: int
    seed: int
    names: LaneNames = TRAINING_LANES

    @property
    def observation_width(self) -> int:
        return 2 * self.bits

    @property
    def actions(self) -> int:
        return self.bits

    @property
    def goal(self) -> Goal:
        return Goal(achieved=0, desired=self.bits, width=self.bits)

    def for_evaluation(self, lanes: int, prefix: str) -> BitFlipEnvironment:
        """Other lanes, whose states and goals are drawn under a key that no training seed is."""
        return replace(self, lanes=lanes, seed=self.seed ^ (1 << 63), names=LaneNames(prefix))

    def buffers(self) -> tuple[Buffer, ...]:
        """Lanes; their state is their observation."""
        p, e = self.names.prefix, self.lanes
        return (
            *common_buffers(self.names, e, self.observation_width),
            Buffer(f"{p}_lane_steps", (e,), "i32", persistent=True),
            Buffer(f"{p}_lane_episode", (e,), "i64", persistent=True),
        )

    def _op(self, *, reset: bool) -> Op:
        p, names = self.names.prefix, self.names
        return Launch(
            "env_bit_flip",
            {
                "action": Ref(names.action),
                "lane_steps": Ref(f"{p}_lane_steps"),
                "lane_episode": Ref(f"{p}_lane_episode"),
                "obs": Ref(names.obs),
                "obs_tm1": Ref(names.obs_tm1),
                "obs_t": Ref(names.obs_t),
                "reward": Ref(names.reward),
                "flags": Ref(names.flags),
                "episode": Ref(names.episode),
                "lanes": self.lanes,
                "bits": self.bits,
                "padded": padded_width(self.observation_width),
                "max_steps": self.max_steps,
                "seed": self.seed,
                "reset": int(reset),
            },
        )

    def step(self) -> Op:
        """Step every lane."""
        return self._op(reset=False)

    def reset(self) -> Op:
        """Start an episode in every lane."""
        return self._op(reset=True)
