"""The formats: each from one run over a small project."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from guard_runs import run

from onegraph.guards.outputs import FORMATS, written

FILES = {
    "loop.py": """\
        from onegraph.guards import hot_path
        from replay import sample

        @hot_path
        def step(total):
            return sample(total)
        """,
    "replay.py": """\
        def sample(total):
            return 'é', total.to_host(), "50%, a:b"
        """,
}


@pytest.fixture
def report(tmp_path):
    return run(tmp_path, FILES)


def test_full(report):
    assert written(report, "full").splitlines() == [
        "replay.py:2:17: GRD102 [unsafe fix] to_host() reads back from the device (likely)",
        "  2 |     return 'é', total.to_host(), \"50%, a:b\"",
        "    |                 ^^^^^^^^^^^^^^^",
        "  hot: loop.step -> replay.sample",
        "",
        "1 finding in 2 files (2 hot functions)",
    ]


def test_concise(report):
    assert written(report, "concise").splitlines()[0] == (
        "replay.py:2:17: GRD102 [unsafe fix] to_host() reads back from the device (likely)"
        " [loop.step -> replay.sample]"
    )


def test_github(report):
    assert written(report, "github") == (
        "::error file=replay.py,line=2,col=17,endLine=2,endColumn=32,title=GRD102::"
        "to_host() reads back from the device (hot: loop.step -> replay.sample)"
    )


def test_json(report):
    (row,) = json.loads(written(report, "json"))
    assert row["code"] == "GRD102"
    assert row["fix"] == "unsafe"
    assert [step["name"] for step in row["chain"]] == ["loop.step", "replay.sample"]
    assert row["chain"][0] == {"name": "loop.step", "path": "loop.py", "line": 5}
    assert (row["line"], row["column"], row["end_column"]) == (2, 17, 32)


def test_gitlab(report):
    (row,) = json.loads(written(report, "gitlab"))
    assert row["location"] == {"path": "replay.py", "lines": {"begin": 2, "end": 2}}
    assert row["severity"] == "minor"
    assert len(row["fingerprint"]) == 16


def test_sarif_has_what_its_schema_asks_for_and_the_chain_as_a_code_flow(report):
    document = json.loads(written(report, "sarif"))
    assert document["version"] == "2.1.0"
    (run_,) = document["runs"]
    driver = run_["tool"]["driver"]
    assert driver["name"] == "onegraph guard"
    (result,) = run_["results"]
    assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "GRD102"
    assert result["level"] == "warning"
    place = result["locations"][0]["physicalLocation"]
    assert place["region"] == {
        "startLine": 2, "startColumn": 17, "endLine": 2, "endColumn": 32,
    }  # fmt: skip
    steps = result["codeFlows"][0]["threadFlows"][0]["locations"]
    assert [s["location"]["message"]["text"] for s in steps] == [
        "loop.step",
        "replay.sample",
        "to_host() reads back from the device",
    ]


@pytest.mark.skipif(
    "SARIF_SCHEMA" not in os.environ or not importlib.util.find_spec("jsonschema"),
    reason="needs jsonschema, and SARIF_SCHEMA naming the file of the 2.1.0 schema",
)
def test_sarif_validates_against_its_schema(report):
    import jsonschema

    schema = json.loads(Path(os.environ["SARIF_SCHEMA"]).read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    validator.validate(json.loads(written(report, "sarif")))


@pytest.mark.parametrize("name", FORMATS)
def test_a_clean_run_has_a_form_too(tmp_path, name):
    text = written(run(tmp_path, {"a.py": "x = 1\n"}), name)
    if name in ("json", "gitlab"):
        assert json.loads(text) == []
    elif name == "sarif":
        assert json.loads(text)["runs"][0]["results"] == []
    else:
        assert "GRD" not in text
