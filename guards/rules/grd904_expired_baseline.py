"""GRD904: a baseline entry whose time is over."""

from onegraph.guards.rules.rule import Example, Rule

_SOURCE = """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(loss: torch.Tensor):
    return loss.item()
"""


def _baseline(expires: str) -> dict[str, str]:
    return {
        "baseline.json": (
            '{"entries": [{"fingerprint": "ffff", "code": "GRD102", "path": "example.py",'
            ' "owner": "replay team", "reason": "before the migration",'
            f' "expires": "{expires}"}}]}}'
        )
    }


RULE = Rule(
    code="GRD904",
    name="expired-baseline",
    summary="a baseline entry whose date has passed",
    why="""A baseline puts findings off, it does not settle them. The finding itself is reported
again too; mend it, or agree on a new date with the entry's owner.""",
    flagged=(Example(_SOURCE, 'baseline = "baseline.json"', _baseline("2020-01-31")),),
    unflagged=(Example(_SOURCE, 'baseline = "baseline.json"', _baseline("2999-12-31")),),
    contexts=frozenset(),
)
