"""Environments of gymnasium: stepped on the host, learned from on the device."""

from onegraph.trainer.envs.gym.environment import GymnasiumEnvironment, over_vector_environment
from onegraph.trainer.envs.gym.errors import GymnasiumError
from onegraph.trainer.envs.gym.make import registered_environment

__all__ = [
    "GymnasiumEnvironment",
    "GymnasiumError",
    "over_vector_environment",
    "registered_environment",
]
