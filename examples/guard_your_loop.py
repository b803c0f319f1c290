"""The guard on a loop of PyTorch: it finds what waits for the GPU, and by which calls it got there.

The loop is text here: it is read, never run, so neither PyTorch nor a GPU is needed.
Run it: ``python examples/guard_your_loop.py``. On the command line: ``onegraph guard check PATH``.
"""

import sys
import tempfile
from pathlib import Path

from onegraph.guards.check import check
from onegraph.guards.config import load_config

LOOP = """\
import torch

from onegraph.guards import hot_path
from statistics_of import Running


class Training:
    def __init__(self, model, optimiser):
        self.model, self.optimiser = model, optimiser
        self.running = Running()

    @hot_path
    def step(self, batch: torch.Tensor) -> None:
        loss = self.model(batch).square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.running.add(loss)
"""

# In another file than the step: .item() waits for the GPU in each step, and so does the `if`.
SLOW = """\
import torch


class Running:
    def __init__(self) -> None:
        self.total, self.worst = 0.0, torch.zeros((), device="cuda")

    def add(self, loss: torch.Tensor) -> None:
        self.total += loss.item()
        if loss > self.worst:
            self.worst = loss
"""

# The same numbers, kept where they are made; who wants them reads them once an epoch.
FIXED = """\
import torch


class Running:
    def __init__(self) -> None:
        self.total = torch.zeros((), device="cuda")
        self.worst = torch.zeros((), device="cuda")

    def add(self, loss: torch.Tensor) -> None:
        self.total += loss.detach()
        self.worst = torch.maximum(self.worst, loss.detach())
"""


def findings(statistics):
    """What the guard says of the loop with these statistics."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "pyproject.toml").write_text("[tool.onegraph.guards]\n")
        (root / "loop.py").write_text(LOOP)
        (root / "statistics_of.py").write_text(statistics)
        return check([root], load_config(root)).findings


slow, fixed = findings(SLOW), findings(FIXED)
for finding in slow:
    print(f"{finding.path}:{finding.line}: {finding.code} {finding.message}")
    print(f"  hot: {finding.chain_text}")
print(f"the fixed loop: {len(fixed)} findings")

if {(f.code, f.line) for f in slow} != {("GRD102", 9), ("GRD103", 10)} or fixed:
    sys.exit("the guard did not find just the two planted round trips")
