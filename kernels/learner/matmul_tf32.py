"""Up to four products in a launch; see `onegraph.kernels.learner.matmul`."""

from __future__ import annotations

from typing import Any

from onegraph.kernels.catalogue import kernel
from onegraph.kernels.learner.matmul import PARAMS, multiply


@kernel(
    per="cluster",
    work="turns",
    block=256,
    fma=True,
    cluster_of="cluster",
    shared_of="shared_bytes",
    **PARAMS,
)
def matmul_tf32(*, turns: int, cluster: int, shared_bytes: int, **members: Any) -> None:
    """See the module's docstring."""
    multiply(members, turns, cluster, shared_bytes, tf32=True)
