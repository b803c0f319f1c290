"""The ledger: counts every device call by kind, scope, phase and step, on either device.

It is always on. A count is one dictionary update, so that a claim about what a step does can be
checked on any run and not only on an instrumented one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

Scope = Literal["setup", "learn", "collect", "round", "epoch", "io"]

#: Every kind of call that is counted. ``captured`` is work recorded into a graph rather than done.
KINDS = (
    "launch",
    "matmul",
    "graph_launch",
    "htod",
    "dtoh",
    "dtod",
    "memset",
    "memset_sync",
    "alloc",
    "free",
    "sync",
    "event_record",
    "event_set",
    "host",
    "captured",
    "capture",
    "instantiate",
    "module_load",
)


@dataclass(frozen=True)
class StepCounts:
    """The calls of one step: ``counts[(phase, kind)]``."""

    scope: Scope
    step: int
    counts: Mapping[tuple[str, str], int]

    def by_kind(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for (_, kind), n in self.counts.items():
            total[kind] += n
        return total


@dataclass
class Ledger:
    """Counts of device calls.

    Attributes:
        history: how many of the latest steps of each scope keep their own counts.
        totals: ``(scope, phase, kind)`` over the whole run.
        op: label of the op being executed, for error messages.
        watch: called with the kind of each call before it is made, and may refuse it by raising
            (`onegraph.kernels.device.no_roundtrips`).
    """

    history: int = 256
    scope: Scope = "setup"
    step: int = -1
    phase: str = ""
    op: str = ""
    watch: Callable[[str], None] | None = None
    totals: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _current: dict[tuple[str, str], int] = field(default_factory=dict)
    _steps: dict[str, deque[StepCounts]] = field(default_factory=dict)

    def count(self, kind: str) -> None:
        """One call of `kind` in the present scope and phase."""
        if self.watch is not None:
            self.watch(kind)
        key = (self.phase, kind)
        self._current[key] = self._current.get(key, 0) + 1

    def begin(self, scope: Scope, step: int) -> None:
        """Everything counted from here on belongs to `step` of `scope`."""
        self._close()
        self.scope, self.step, self.phase = scope, step, ""

    def end(self) -> StepCounts:
        """Close the step; what follows counts as setup until the next `begin`."""
        counts = self._close()
        self.scope, self.step, self.phase, self.op = "setup", -1, "", ""
        return counts

    def _close(self) -> StepCounts:
        record = StepCounts(self.scope, self.step, self._current)
        for (phase, kind), n in self._current.items():
            self.totals[self.scope, phase, kind] += n
        if self.step >= 0:
            self._steps.setdefault(self.scope, deque(maxlen=self.history)).append(record)
        self._current = {}
        return record

    @contextmanager
    def within(self, scope: Scope) -> Iterator[None]:
        """Count a stretch outside any step (epoch summaries, checkpoints) under `scope`."""
        before = self.scope, self.step, self.phase
        self.begin(scope, -1)
        try:
            yield
        finally:
            self._close()
            self.scope, self.step, self.phase = before

    def steps(self, scope: Scope) -> tuple[StepCounts, ...]:
        """The latest steps of `scope`, oldest first."""
        return tuple(self._steps.get(scope, ()))


@dataclass
class OpLedger(Ledger):
    """A ledger that also knows the op behind each call, for whoever has to name it.

    Attributes:
        calls: ``(scope, phase, op, kind)`` since it was last cleared; op is the runner's label.
    """

    calls: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)

    def count(self, kind: str) -> None:
        super().count(kind)
        self.calls[self.scope, self.phase, self.op, kind] += 1
