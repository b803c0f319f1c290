"""GRD903: an allow comment with a code that there is not."""

from onegraph.guards.rules.rule import Rule, examples

RULE = Rule(
    code="GRD903",
    name="unknown-code",
    summary="an allow comment with a code that no rule has",
    why="A mistyped code allows nothing, and looks as if it did.",
    flagged=examples("x = 1  # guards: allow[GRD999] -- no such rule\n"),
    unflagged=examples("x = 1  # guards: allow[runtime] -- called under no_roundtrips()\n"),
    contexts=frozenset(),
)
