"""What a step may still do: limits on device calls, checked on programs and on ledgers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onegraph.stages.program import StepProgram


@dataclass(frozen=True)
class Limit:
    """At most `most` (and at least `least`) calls of `kind` in a step.

    `tag` restricts the limit to phases so tagged, together. `stage` is who promises it.
    """

    kind: str
    most: int
    least: int = 0
    tag: str = ""
    stage: str = ""


@dataclass(frozen=True)
class Violation:
    """A limit that a step broke; ``phases`` says where the calls were made."""

    limit: Limit
    count: int
    phases: Mapping[str, int]

    def __str__(self) -> str:
        where = ", ".join(f"{phase} {n}" for phase, n in self.phases.items()) or "nowhere"
        wanted = (
            f"at most {self.limit.most} allowed"
            if self.count > self.limit.most
            else f"at least {self.limit.least} required"
        )
        scope = f" in {self.limit.tag} phases" if self.limit.tag else ""
        return (
            f"stage {self.limit.stage}: {self.count} {self.limit.kind} calls{scope}, {wanted}"
            f" (by phase: {where})"
        )


class BudgetError(AssertionError):
    """A step did more than its stages allow."""

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(map(str, self.violations)))


@dataclass(frozen=True)
class Budget:
    """The limits of a set of stages, which all hold, plus allowances on top of them."""

    limits: tuple[Limit, ...] = ()
    allowances: tuple[Limit, ...] = ()

    def violations(
        self, counts: Mapping[tuple[str, str], int], program: StepProgram, *, timed: bool = False
    ) -> tuple[Violation, ...]:
        """The limits that `counts` (``[(phase, kind)]`` of one step of `program`) break."""
        tags = {phase.name: phase.tags for phase in program.phases}
        extra: Counter[str] = Counter()
        for allowance in self.allowances if timed else ():
            extra[allowance.kind] += allowance.most
        found = []
        for limit in self.limits:
            phases = {
                phase: n
                for (phase, kind), n in counts.items()
                if kind == limit.kind and n and (not limit.tag or limit.tag in tags.get(phase, ()))
            }
            count = sum(phases.values())
            if not limit.least <= count <= limit.most + extra[limit.kind]:
                found.append(Violation(limit, count, phases))
        return tuple(found)

    def check(
        self, counts: Mapping[tuple[str, str], int], program: StepProgram, *, timed: bool = False
    ) -> None:
        """Raise `BudgetError` if `counts` break a limit."""
        if found := self.violations(counts, program, timed=timed):
            raise BudgetError(found)
