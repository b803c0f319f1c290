"""A policy as onnxruntime serves it, beside the trainer that it comes from."""

from __future__ import annotations

import numpy as np
import pytest

from onegraph.trainer.policy.onnx_graph import build_model
from onegraph.trainer.policy.policy import Policy


class Served:
    """A session over a policy's graph; `run` gives its outputs by name."""

    def __init__(self, policy: Policy | bytes) -> None:
        pytest.importorskip("onnx")
        onnxruntime = pytest.importorskip("onnxruntime")
        content = policy if isinstance(policy, bytes) else build_model(policy).SerializeToString()
        self.session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.inputs = [i.name for i in self.session.get_inputs()]

    def run(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(self.outputs, self.session.run(None, inputs), strict=True))


def tolerance(q: np.ndarray) -> float:
    """Of action values that were added up in float32 in another order."""
    return 1e-5 * (1.0 + float(np.abs(q).max()))


def unequal_actions(
    served: dict[str, np.ndarray], q: np.ndarray, within: float | None = None
) -> int:
    """How many rows choose otherwise; each must be a tie by what two values may be off."""
    within = tolerance(q) if within is None else within
    best = q.argmax(axis=1)
    rows = np.flatnonzero(served["action"] != best)
    chosen = q[rows, served["action"][rows]]
    assert (q[rows, best[rows]] - chosen <= 2 * within).all()
    return len(rows)
