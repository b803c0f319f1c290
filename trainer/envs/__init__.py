"""Environments: who they are, and the op that steps all lanes of one on the device."""

from onegraph.trainer.envs.base import Environment, reset_program
from onegraph.trainer.envs.market import MarketEnvironment
from onegraph.trainer.envs.tabular import TabularEnvironment, chain, cliff, truncation_probe

__all__ = [
    "Environment",
    "MarketEnvironment",
    "TabularEnvironment",
    "chain",
    "cliff",
    "reset_program",
    "truncation_probe",
]
