"""GRD900: a file that can't be read."""

from onegraph.guards.rules.rule import Rule, examples

RULE = Rule(
    code="GRD900",
    name="unreadable",
    summary="a file that no parser can read, or a path that is not there",
    why="""Nothing in it was looked at. The message says what is wrong; leave a file out with
`exclude`.""",
    flagged=examples("def broken(:\n", "x = '\n"),
    unflagged=examples("x = 1\n", ""),
    contexts=frozenset(),
)
