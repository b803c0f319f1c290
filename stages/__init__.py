"""The toolkit: a step as a program, and stages that rewrite it.

`program` says what a step is, ``s0_…`` to ``s7_…`` are the rewrites, one file each, `registry`
knows which go together, `flags` reads what the user asked for, and `runner` runs the result.
"""

from onegraph.stages.budget import Budget, BudgetError, Limit, Violation
from onegraph.stages.flags import StageChoice, choose_stages, parse_stages
from onegraph.stages.program import (
    Buffer,
    Fragment,
    GraphLaunch,
    Launch,
    LaunchGroup,
    Op,
    Parts,
    Phase,
    ProgramError,
    Ref,
    StepProgram,
)
from onegraph.stages.registry import (
    STAGES,
    StageSet,
    StageSetError,
    apply,
    budget,
    exact_sets,
    format_set,
    is_exact,
    valid_sets,
)
from onegraph.stages.runner import PhaseTimes, Runner
from onegraph.stages.stage import Stage
from onegraph.stages.workspace import Workspace

__all__ = [
    "STAGES",
    "Budget",
    "BudgetError",
    "Buffer",
    "Fragment",
    "GraphLaunch",
    "Launch",
    "LaunchGroup",
    "Limit",
    "Op",
    "Parts",
    "Phase",
    "PhaseTimes",
    "ProgramError",
    "Ref",
    "Runner",
    "Stage",
    "StageChoice",
    "StageSet",
    "StageSetError",
    "StepProgram",
    "Violation",
    "Workspace",
    "apply",
    "budget",
    "choose_stages",
    "exact_sets",
    "format_set",
    "is_exact",
    "parse_stages",
    "valid_sets",
]
