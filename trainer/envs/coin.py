"""A coin: one state, and a reward of 0 or 1 by chance that ends the episode.

The proof of the distributional heads: they have to tell the two outcomes apart, where action values
see their mean alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.stages.program import Buffer, Launch, Op, Ref
from onegraph.trainer.envs.base import TRAINING_LANES, LaneNames, common_buffers
from onegraph.trainer.network import padded_width

#: The returns of either action, each with a chance of one half.
OUTCOMES = (0.0, 1.0)


@dataclass(frozen=True)
class CoinEnvironment:
    """E lanes that toss."""

    lanes: int
    seed: int
    names: LaneNames = TRAINING_LANES

    @property
    def observation_width(self) -> int:
        return 1

    @property
    def actions(self) -> int:
        """Two, which do the same."""
        return 2

    @property
    def goal(self) -> None:
        """Its one state holds no goal."""
        return

    def buffers(self) -> tuple[Buffer, ...]:
        """Lanes; their state is the number of their episode."""
        episodes = Buffer(
            f"{self.names.prefix}_lane_episode", (self.lanes,), "i64", persistent=True
        )
        return (*common_buffers(self.names, self.lanes, self.observation_width), episodes)

    def _op(self, *, reset: bool) -> Op:
        names = self.names
        return Launch(
            "env_coin",
            {
                "lane_episode": Ref(f"{names.prefix}_lane_episode"),
                "obs": Ref(names.obs),
                "obs_tm1": Ref(names.obs_tm1),
                "obs_t": Ref(names.obs_t),
                "reward": Ref(names.reward),
                "flags": Ref(names.flags),
                "episode": Ref(names.episode),
                "lanes": self.lanes,
                "padded": padded_width(self.observation_width),
                "seed": self.seed,
                "reset": int(reset),
            },
        )

    def step(self) -> Op:
        """Toss in every lane."""
        return self._op(reset=False)

    def reset(self) -> Op:
        """Start an episode in every lane."""
        return self._op(reset=True)
