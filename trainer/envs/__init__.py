"""Environments: who they are, and the op that steps all lanes of one on the device."""

from onegraph.trainer.envs.base import Environment, Goal, reset_program
from onegraph.trainer.envs.bit_flip import BitFlipEnvironment
from onegraph.trainer.envs.coin import CoinEnvironment
from onegraph.trainer.envs.market import MarketEnvironment
from onegraph.trainer.envs.tabular import TabularEnvironment, chain, cliff, truncation_probe

__all__ = [
    "BitFlipEnvironment",
    "CoinEnvironment",
    "Environment",
    "Goal",
    "MarketEnvironment",
    "TabularEnvironment",
    "chain",
    "cliff",
    "reset_program",
    "truncation_probe",
]
