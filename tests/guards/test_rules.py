"""Every rule's own examples: what it says it flags is flagged, and what it leaves is left."""

import tomllib

import pytest
from guard_runs import write

from onegraph.guards.check import check
from onegraph.guards.config import build
from onegraph.guards.rules import RULES, UnknownCodeError, expand, selected

CASES = [
    pytest.param(rule, example, wanted, id=f"{rule.code}-{word}-{number}")
    for rule in RULES.values()
    for word, wanted, examples in (
        ("flagged", True, rule.flagged),
        ("unflagged", False, rule.unflagged),
    )
    for number, example in enumerate(examples)
]

DEFAULTS = [
    *("GRD101", "GRD102", "GRD103", "GRD104", "GRD105", "GRD106", "GRD201", "GRD202", "GRD301"),
    *("GRD302", "GRD401", "GRD402", "GRD501", "GRD601", "GRD602", "GRD900", "GRD901", "GRD902"),
    *("GRD903", "GRD904"),
]


@pytest.mark.parametrize(("rule", "example", "wanted"), CASES)
def test_an_example_is_what_it_says(tmp_path, rule, example, wanted):
    root = write(tmp_path, {**example.files, example.path: example.source})
    table = {**tomllib.loads(example.config), "extend-select": [rule.code]}
    report = check([root], build(root, table, "example"))
    of_rule = [f for f in report.findings if f.code == rule.code]
    assert bool(of_rule) == wanted, [(f.code, f.line, f.message) for f in report.findings]


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.code)
def test_a_rule_is_whole(rule):
    assert rule.flagged
    assert rule.unflagged
    assert rule.why
    assert rule.contexts or rule.look is None


def test_what_is_on_by_default():
    assert sorted(selected((), (), ())) == DEFAULTS


def test_codes_are_selected_by_prefix():
    assert expand(["GRD20"]) == {"GRD201", "GRD202", "GRD203"}
    assert selected(["GRD2"], ["GRD107"], ["GRD203"]) == {"GRD201", "GRD202", "GRD107", "GRD900"}
    with pytest.raises(UnknownCodeError, match="'GRD777'"):
        expand(["GRD777"])
