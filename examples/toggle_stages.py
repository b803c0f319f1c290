"""The same training at several sets of stages: equal parameters, ever fewer device calls.

The ledger counts what a step asks of the device, on the host as on a GPU.
Run it: ``python examples/toggle_stages.py [auto|cuda|host]``.
"""

import hashlib
import sys
import warnings

from rich.console import Console
from rich.table import Table

from onegraph.kernels.device import open_device
from onegraph.stages.flags import parse_stages
from onegraph.stages.registry import format_set
from onegraph.trainer.config import load_config
from onegraph.trainer.trainer import Trainer

# Up to 6 the stages keep every bit; 7 agrees to rounding, and 8 is about whole rounds.
SETS = ("none", "1", "2", "0,1,2,4,5", "6")

COLUMNS = {
    "kernels": ("launch", "matmul"),
    "graph launches": ("graph_launch",),
    "copies": ("htod", "dtoh", "dtod"),
    "waits": ("sync",),
    "allocations": ("alloc",),
    "host ops": ("host",),
}

SMALL = {
    "env.lanes": 4,
    "replay.capacity": 400,
    "learn.batch_size": 32,
    "loop.start_steps": 160,
}

# Stage 0 reads back through the deprecated call, as the loop did before.
warnings.filterwarnings("ignore", "DeviceArray.to_host", DeprecationWarning)


def run(stages, device):
    """Twelve steps; the last one's calls by kind, and a digest of the parameters after it."""
    trainer = Trainer(load_config("chain", SMALL), device, stages)
    while trainer.rows < SMALL["loop.start_steps"]:
        trainer.collect()
    for _ in range(12):
        counts = trainer.learn().by_kind()
        trainer.collect()
    digest = hashlib.sha256(trainer.parameters().tobytes()).hexdigest()[:12]
    trainer.close()
    return counts, digest


table = Table("stages", *COLUMNS, "parameters after", title="Device calls of one learning step")
digests, last = set(), {}
for text in SETS:
    with open_device(sys.argv[1] if len(sys.argv) > 1 else "host") as device:
        last, digest = run(parse_stages(text), device)
    cells = [str(sum(last[kind] for kind in kinds)) for kinds in COLUMNS.values()]
    table.add_row(format_set(parse_stages(text)) or "none", *cells, digest)
    digests.add(digest)
Console(width=120).print(table)

if len(digests) != 1:
    sys.exit(f"the parameters differ: {sorted(digests)}")
if {kind: n for kind, n in last.items() if n} != {"graph_launch": 1}:
    sys.exit(f"the last set should leave one graph launch, it has {dict(last)}")
print("equal parameters at each set; at stage 6 a step is one graph launch")
