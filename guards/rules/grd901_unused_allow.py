"""GRD901: an allow comment that allows nothing."""

from onegraph.guards.rules.rule import Rule, examples

RULE = Rule(
    code="GRD901",
    name="unused-allow",
    summary="an allow comment on a statement that has no such finding",
    why="""It would hide the next finding there. A comment that is meant for `no_roundtrips()` at
run time alone names `runtime` among its codes.""",
    fix="removes the code, or the comment when no code is left; safe.",
    flagged=examples("x = 1  # guards: allow[GRD102] -- was a read-back once\n"),
    unflagged=examples(
        """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(loss: torch.Tensor):
    return loss.item()  # guards: allow[GRD102] -- the scheduler needs it on the host
""",
        "x = 1  # guards: allow[GRD102, runtime] -- called under no_roundtrips()\n",
        "x = '# guards: allow[GRD102] -- in a string'\n",
    ),
    contexts=frozenset(),
)
