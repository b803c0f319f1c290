"""What a policy needs to be known of its environment, small enough for a checkpoint's metadata.

With these facts a checkpoint is all that an export reads: no data file, and no environment.
"""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, model_validator

from onegraph.trainer.network import Observed


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FeatureScaling(_Facts):
    """How raw features become the first columns of an observation.

    ``clip((x - mean) / std)``, and 0 where `std` is 0, in float64; float32 is what the network
    reads.

    Attributes:
        names: F names, in the order of the columns.
        mean: F means over the training window.
        std: F standard deviations; 0 marks a feature that was constant there.
        clip: bound of the result's magnitude.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    clip: float

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not len(self.names) == len(self.mean) == len(self.std):
            raise ValueError(
                f"{len(self.names)} names, {len(self.mean)} means and {len(self.std)} deviations;"
                " there is one of each for a feature"
            )
        if min(self.std, default=0.0) < 0.0 or not self.clip > 0.0:
            raise ValueError("a standard deviation below 0, or a clip that is not above 0")
        return self


class PolicyFacts(_Facts):
    """An environment as its policy sees it.

    Attributes:
        observation_width: S.
        action_names: A names, by action.
        positions: A target positions, for a market.
        scaling: of the raw features, which the first F columns of an observation are made from;
            ``None``: the observation is taken as it is.
        position_features: what the S - F columns behind the features are, in words.
        one_hot: whether an observation is a number in [0, S) whose one-hot vector the network
            reads.
    """

    observation_width: int
    action_names: tuple[str, ...]
    positions: tuple[float, ...] | None = None
    scaling: FeatureScaling | None = None
    position_features: tuple[str, ...] = ()
    one_hot: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.observation_width < 1 or not self.action_names:
            raise ValueError("an observation or a set of actions that is empty")
        if self.positions is not None and len(self.positions) != self.actions:
            raise ValueError(f"{len(self.positions)} positions for {self.actions} actions")
        features = len(self.scaling.names) if self.scaling else 0
        own = features + len(self.position_features)
        if own and own != self.observation_width:
            raise ValueError(
                f"{features} features and {len(self.position_features)} more columns make no"
                f" observation of {self.observation_width}"
            )
        if self.one_hot and own:
            raise ValueError("a one-hot observation has no features")
        return self

    @property
    def actions(self) -> int:
        """A."""
        return len(self.action_names)


@runtime_checkable
class SuppliesFacts(Protocol):
    """An environment that knows more of its observations and actions than how many there are."""

    def policy_facts(self) -> PolicyFacts | None:
        """The facts; ``None`` where it was built without what they need."""
        ...


def facts_of(environment: Observed) -> PolicyFacts | None:
    """The environment's own facts, or those of plain observations and numbered actions."""
    if isinstance(environment, SuppliesFacts):
        return environment.policy_facts()
    return PolicyFacts(
        observation_width=environment.observation_width,
        action_names=tuple(str(action) for action in range(environment.actions)),
    )
