"""A step reads no scratch that it has not written: shown by filling the scratch with nonsense.

The workspace zeroes what it allocates, so neither the host device's poison nor compute-sanitizer's
initcheck could see such a read.
"""

from __future__ import annotations

import numpy as np
from capture_scenarios import Trajectory, config, step, trainer_on

from onegraph.kernels.catalogue import DTYPES
from onegraph.kernels.device import Device
from onegraph.kernels.replay import tree
from onegraph.stages.program import Buffer
from onegraph.trainer.learner import GRADIENTS
from onegraph.trainer.trainer import Trainer

#: What is carried from step to step without being part of a checkpoint, and why.
CARRIED = {
    "replay_nodes": "the sum tree's inner nodes, made from the leaves again on restoring",
    "replay_owner": "-1 between the steps: each update leaves it so",
    "schedule_params": "constants of the run",
    "record": "what the host reads between the steps",
    "h_counters": "the host's copy of the counters",
    "h_schedule": "the host's copy of the schedule",
    "h_params": "constants of the run",
    "h_skip": "the host's copy of the flag",
}


def scratch(trainer: Trainer) -> list[Buffer]:
    """The buffers that every step must write before it reads them."""
    found = {b.name: b for p in (trainer.learn_program, trainer.collect_program) for b in p.buffers}
    return [
        b
        for b in found.values()
        if not (b.persistent or b.transient or b.initial or b.name in CARRIED)
    ]


def nonsense(buffer: Buffer) -> np.ndarray:
    dtype = DTYPES[buffer.dtype]
    value = np.nan if dtype.kind == "f" else np.frombuffer(b"\xa5" * 8, dtype)[0]
    return np.full(buffer.shape, value, dtype)


def poison_scratch(trainer: Trainer) -> int:
    """Overwrite the scratch; gives how many buffers."""
    buffers = scratch(trainer)
    for buffer in buffers:
        values = nonsense(buffer)
        if buffer.name == "grad":  # the alignment gaps between its blocks stay zero: no one writes
            values[:] = 0
            for tensor in trainer.network.layout:
                tensor.values(values)[...] = np.nan
        elif buffer.name in GRADIENTS:  # so do the tensors that their losses do not reach
            before = trainer.workspace.read(buffer.name)
            values[before == 0] = 0
        trainer.workspace.write(buffer.name, values)
    return len(buffers)


def poison_empty_rows(trainer: Trainer) -> None:
    """Overwrite the replay's rows that hold no transition yet."""
    for name in ("state", "next_state", "reward"):
        values = trainer.workspace.read(f"replay_{name}")
        values[trainer.rows :] = np.nan
        trainer.workspace.write(f"replay_{name}", values)
    leaves = trainer.workspace.read("replay_leaves")
    assert not leaves[trainer.rows :].any()
    nodes = trainer.workspace.read("replay_nodes")
    again = np.empty_like(nodes)
    tree.rebuild(leaves, again)
    assert np.array_equal(nodes, again)


def run_poisoned(
    device: Device, stages: frozenset[int], count: int, *, poison: bool = True, **changes: object
) -> Trajectory:
    """A trainer's trajectory, with its scratch overwritten before each learning step."""
    trainer = trainer_on(device, stages, config(**changes))
    seen = []
    for _ in range(count):
        if poison:
            poison_empty_rows(trainer)
            assert poison_scratch(trainer) > 10
        seen.append(step(trainer))
    trainer.close()
    return seen
