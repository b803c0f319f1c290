"""The phases of a learning step, and what each has to wait for."""

from __future__ import annotations

from collections.abc import Mapping

#: In order. Those that the preset has no work for stay empty.
PHASES = (
    "per_sample",
    "counters",
    "spectral",
    "forward",
    "ddqn",
    "aux",
    "post_aux",
    "adam_grad",
    "adam",
    "maintenance",
    "iql_modulate",
    "per_priority",
)

#: Of phases that do not wait for the one before, those that they do wait for. The auxiliary passes
#: take the batch and the draws of the step, and nothing from the passes over it: they run beside
#: those where the phases are graphs of one parent (`onegraph.stages.s6_parent_graph`).
AFTER: Mapping[str, tuple[str, ...]] = {
    "aux": ("spectral",),
    "post_aux": ("ddqn", "aux"),
}
