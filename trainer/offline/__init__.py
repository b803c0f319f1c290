"""Learning from a fixed set of transitions, without stepping an environment."""

from onegraph.trainer.offline.environment import RecordedEnvironment
from onegraph.trainer.offline.errors import TransitionsError
from onegraph.trainer.offline.held_out import held_out_figures
from onegraph.trainer.offline.read import read_transitions
from onegraph.trainer.offline.ring import ring_state
from onegraph.trainer.offline.setup import OfflineData, offline_run
from onegraph.trainer.offline.transitions import Transitions, transitions_from

__all__ = [
    "OfflineData",
    "RecordedEnvironment",
    "Transitions",
    "TransitionsError",
    "held_out_figures",
    "offline_run",
    "read_transitions",
    "ring_state",
    "transitions_from",
]
