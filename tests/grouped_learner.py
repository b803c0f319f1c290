"""A learner whose launches of one level are grouped, whatever the trainer does by itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pytest

from onegraph.stages.launch_groups import grouped
from onegraph.stages.program import Op
from onegraph.trainer import learner
from onegraph.trainer.blocks import grouping

#: Every part of the full learner, and small.
FULL: dict[str, object] = {
    "preset": "full",
    "network__hidden": [8],
    "network__iqn__quantiles": 3,
    "learn__batch_size": 9,
    "loop__start_steps": 36,
}


def group_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on trainers emit all passes of a phase by level, with launch groups."""
    together = grouping._together

    def by_level(passes: Sequence[Sequence[Op]]) -> tuple[Op, ...]:
        return grouping.grouped_products(list(chain(*passes)))

    monkeypatch.setattr(
        grouping, "_together", lambda level, takes: grouped(list(together(level, takes)))
    )
    monkeypatch.setattr(learner, "branched", by_level)
    monkeypatch.setattr(learner, "side_by_side", by_level)
