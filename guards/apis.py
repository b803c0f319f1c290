"""The table of device APIs: what a dotted name does to the host.

``data/apis.csv`` holds one row for each name: the framework, the name, its category and a note.
`tests/guards/check_apis.py` holds the table against installed packages. A project adds its own
device layer in ``[tool.onegraph.guards.apis]``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

#: What each category means; a config may use these words.
CATEGORIES: Mapping[str, str] = {
    "sync": "waits for the device",
    "poll": "asks the device whether it is done",
    "dtoh": "copies to the host, or reads a value there",
    "htod": "copies from the host",
    "dtod": "copies on the device",
    "bool": "returns a Python truth value computed on the device",
    "shape": "its result's shape depends on data, so the host waits for it",
    "alloc": "allocates device memory",
    "pinned_alloc": "allocates page-locked host memory",
    "free": "frees device memory",
    "launch": "launches a kernel",
    "memset": "fills device memory",
    "graph_launch": "launches a graph",
    "graph_node": "adds a node to a graph",
    "graph_rebuild": "instantiates, uploads or updates a graph",
    "capture_begin": "begins a capture",
    "capture_end": "ends a capture",
    "host_callback": "has the device call back into Python",
    "module_load": "compiles or loads kernels",
    "sink": "a logger that reads what it is given",
    "none": "nothing that the guards look for",
}

#: Packages whose import makes a file device code.
FRAMEWORKS = frozenset(
    {
        "cuda", "cupy", "cupyx", "flax", "jax", "numba", "nvmath", "pycuda", "tensordict",
        "tensorflow", "torch", "triton", "warp",
    }
)  # fmt: skip

#: Names by which a module was or is also known.
_ALIASES = (
    ("cuda.core.experimental.", "cuda.core."),
    ("cuda.cuda.", "cuda.bindings.driver."),
    ("cuda.cudart.", "cuda.bindings.runtime."),
    ("cuda.bindings.cydriver.", "cuda.bindings.driver."),
    ("jax.experimental.host_callback.", "jax.debug."),
    ("torch.cuda.amp.", "torch.amp."),
    ("torch.cuda.graphs.", "torch.cuda."),
    ("torch.cuda.streams.", "torch.cuda."),
    ("torch._tensor.", "torch."),
    ("tensorboardX.", "torch.utils.tensorboard."),
    ("torch.utils.tensorboard.writer.", "torch.utils.tensorboard."),
    ("cuda.core.GraphBuilder", "cuda.core.graph.GraphBuilder"),
    ("cuda.core.GraphDefinition", "cuda.core.graph.GraphDefinition"),
    ("cuda.core.Graph.", "cuda.core.graph.Graph."),
)


def canonical(dotted: str) -> str:
    """The one spelling of `dotted` that the table uses."""
    for alias, name in _ALIASES:
        if dotted.startswith(alias):
            dotted = name + dotted[len(alias) :]
    return dotted[:-3] if dotted.endswith(("_v2", "_v3")) else dotted


def framework_of(module: str) -> str:
    """The framework that importing `module` brings in, or nothing; a logger of torch's is none."""
    root = module.partition(".")[0]
    if root not in FRAMEWORKS or module.startswith("torch.utils.tensorboard"):
        return ""
    return root


@cache
def table() -> Mapping[str, str]:
    """Category by dotted name."""
    path = Path(__file__).parent / "data" / "apis.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {row["name"]: row["category"] for row in csv.DictReader(file)}
