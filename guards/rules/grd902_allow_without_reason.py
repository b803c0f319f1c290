"""GRD902: an allow comment that does not say why."""

from onegraph.guards.rules.rule import Rule, examples

RULE = Rule(
    code="GRD902",
    name="allow-without-reason",
    summary="an allow comment without `-- reason`",
    why="The next reader must be able to tell whether it still holds. Without a reason it is void.",
    flagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(loss: torch.Tensor):
    return loss.item()  # guards: allow[GRD102]
"""
    ),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(loss: torch.Tensor):
    return loss.item()  # guards: allow[GRD102] -- the scheduler needs it on the host
"""
    ),
    contexts=frozenset(),
)
