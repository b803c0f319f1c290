"""The columns that a step's device calls are summed in, wherever they are shown beside others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from onegraph.stages.program import StepProgram

#: The columns, and the ledger kinds that each sums.
CALL_COLUMNS = {
    "launches": ("launch", "matmul"),
    "graph launches": ("graph_launch",),
    "HtoD": ("htod",),
    "DtoH": ("dtoh",),
    "DtoD": ("dtod",),
    "memsets": ("memset", "memset_sync"),
    "allocs, frees": ("alloc", "free"),
    "syncs": ("sync",),
    "host ops": ("host",),
}


def call_rows(counts: Mapping[str, int]) -> list[int]:
    """A step's calls by ledger kind, in the columns of `CALL_COLUMNS`."""
    return [sum(counts.get(kind, 0) for kind in kinds) for kinds in CALL_COLUMNS.values()]


def calls_by_kind(program: StepProgram) -> Counter[str]:
    """Device calls of a steady step, as the program states them, its phases together."""
    total: Counter[str] = Counter()
    for (_, kind), n in program.calls().items():
        total[kind] += n
    return total
