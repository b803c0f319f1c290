"""What a check found wrong, said so that the place can be found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Check = Literal[
    "run",
    "equivalence",
    "repeatability",
    "program-budget",
    "ledger-budget",
    "ledger-program",
    "outside-program",
    "cupti-budget",
    "cupti-ledger",
    "cupti-kernels",
]

#: What each check holds against what.
CHECKS: Mapping[Check, str] = {
    "run": "the set can be built and stepped",
    "equivalence": "choices and parameters are those of stage 0, as nearly as the set promises",
    "repeatability": "a set that agrees to rounding gives the same bits in two runs",
    "program-budget": "the program as written, against the stages' budgets",
    "ledger-budget": "the calls that the ledger counted, against the stages' budgets",
    "ledger-program": "the calls that the ledger counted, against the program as written",
    "outside-program": "a step makes no device call outside its programs",
    "cupti-budget": "the driver calls that CUPTI counted, against the stages' budgets",
    "cupti-ledger": "the driver calls that CUPTI counted, against the ledger",
    "cupti-kernels": "the kernels that CUPTI saw run, against the program as written",
}


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
        stage: who promised what does not hold, or the stages that came on with this set.
        phase, op: where; several are separated by commas, empty if it has no place.
        kind: the kind of device call, or the class of driver calls.
        count: how many there were in a step.
        step, steps: the first step that showed it (-1: no step at all), and how many did.
    """

    check: Check
    message: str
    program: str = ""
    stage: str = ""
    phase: str = ""
    op: str = ""
    kind: str = ""
    count: int = 0
    step: int = -1
    steps: int = 0

    def __str__(self) -> str:
        place = [
            f"{what} {value}"
            for what, value in (
                ("stage", self.stage),
                ("program", self.program),
                ("phase", self.phase),
                ("op", self.op),
            )
            if value
        ]
        when = f" (step {self.step}, and {self.steps - 1} more)" if self.steps > 1 else ""
        return f"{self.check}: {', '.join(place)}{': ' if place else ''}{self.message}{when}"


class Findings:
    """Collects findings; one that comes again in a later step is counted, not repeated."""

    def __init__(self) -> None:
        self._found: dict[Finding, Finding] = {}

    def add(self, finding: Finding) -> None:
        key = replace(finding, step=-1, steps=0)
        first = self._found.setdefault(key, finding)
        if finding.step >= 0:
            self._found[key] = replace(first, steps=first.steps + 1)

    def all(self) -> tuple[Finding, ...]:
        """In the order in which they were first seen."""
        return tuple(self._found.values())
