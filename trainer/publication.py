"""What a learning step publishes from stage `gpu-counters` on, and the target update beside it."""

from __future__ import annotations

from onegraph.kernels.common.layout import DIAGNOSTICS
from onegraph.kernels.learner.maintain import blocks_for
from onegraph.kernels.learner.publish import RECORD
from onegraph.stages.program import Buffer, Fragment, Launch, Ref
from onegraph.trainer.shapes import Shapes


def published_statistics(shapes: Shapes) -> Fragment:
    """The target update, the statistics and their publication, in one launch."""
    size, ring = shapes.network.size, shapes.ring
    return Fragment(
        (
            Launch(
                "maintain",
                {
                    "target": Ref("theta_target"),
                    "param": Ref("theta"),
                    "loss": Ref("loss"),
                    "td": Ref("td"),
                    "q_taken": Ref("q_taken"),
                    "clip": Ref("clip"),
                    "counters": Ref("counters"),
                    "schedule": Ref("schedule"),
                    "diagnostics": Ref("diagnostics"),
                    "skip": Ref("skip"),
                    "record": Ref("record"),
                    "history": Ref("history"),
                    "size": size,
                    "every": shapes.target_every,
                    "n": shapes.batch,
                    "ring": ring,
                    "blocks": blocks_for(size),
                },
            ),
        ),
        (
            Buffer("record", (RECORD,), "f64", "pinned"),
            Buffer("history", (ring, RECORD), "f64", persistent=True),
            Buffer("diagnostics", (DIAGNOSTICS,), "i64", persistent=True),
        ),
    )
