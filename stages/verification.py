"""What a verification found, set by set.

`Verification.to_json` is what ``onegraph verify --json`` prints; `docs/verify.md` lists its fields.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from onegraph.stages.difference import Difference
from onegraph.stages.finding import Finding

SCHEMA = "onegraph.verify/1"


@dataclass(frozen=True)
class ProgramCalls:
    """A step of one program in steady state.

    Attributes:
        plain, timed: device calls by kind as the ledger counted them, of the last step of either
            form; `timed` is ``None`` where the stages time nothing.
        limits, timed_limits: what the budget allows at most, by kind, where it limits the whole
            step.
        nodes: of each captured graph.
    """

    plain: dict[str, int]
    timed: dict[str, int] | None
    limits: dict[str, int]
    timed_limits: dict[str, int]
    nodes: dict[str, int]


@dataclass(frozen=True)
class DriverCalls:
    """A step of all programs as CUPTI counted it.

    Attributes:
        names: driver calls by name.
        classes: the same by class (`onegraph.kernels.device.cupti_counts`).
        kernels_outside: kernels that ran outside graphs.
        kernels_inside: kernels by the id of the graph that they ran in.
    """

    names: dict[str, int]
    classes: dict[str, int]
    kernels_outside: int
    kernels_inside: dict[int, int]


@dataclass(frozen=True)
class SetResult:
    """One set of stages.

    Attributes:
        stages: numbers, 0 left out.
        exact: whether it promises the bits of stage 0; else it agrees to rounding.
        choices: SHA-256 over the choices of every step; empty if the set did not run.
        parameters: SHA-256 of the parameters at the end.
        from_first, from_previous: against stage 0, and against the set before.
        cupti, cupti_timed: the last plain and the last timed step; ``None`` where not counted, and
            where nothing is timed.
    """

    stages: tuple[int, ...]
    label: str
    names: tuple[str, ...]
    exact: bool
    choices: str
    parameters: str
    from_first: Difference | None
    from_previous: Difference | None
    programs: dict[str, ProgramCalls]
    cupti: DriverCalls | None
    cupti_timed: DriverCalls | None
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


@dataclass(frozen=True)
class Verification:
    """All sets.

    Attributes:
        cupti: whether CUPTI counted, and in a sentence why not.
    """

    subject: str
    device: str
    device_name: str
    steps: int
    cupti_counted: bool
    cupti_note: str
    sets: tuple[SetResult, ...]

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.sets)

    @property
    def findings(self) -> tuple[tuple[str, Finding], ...]:
        """Every finding, with its set's label."""
        return tuple((one.label, finding) for one in self.sets for finding in one.findings)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists, as `docs/verify.md` describes them.

        A number that JSON can't hold (NaN, an infinity) becomes ``None``.
        """
        values: dict[str, Any] = _plain({"schema": SCHEMA, "ok": self.ok, **asdict(self)})
        for one, plain in zip(self.sets, values["sets"], strict=True):
            plain["ok"] = one.ok
        return values


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
