"""Allow comments, the baseline, per-file ignores and the config."""

from datetime import date

import pytest
from guard_runs import found, run

from onegraph.guards.baseline import BaselineError, load_baseline, write_baseline
from onegraph.guards.check import check
from onegraph.guards.config import ConfigError, build, load_config
from onegraph.guards.engine.allows import allowed_on, find_allows

HOT = """\
import torch
from onegraph.guards import hot_path

@hot_path
def step(loss: torch.Tensor):
"""


@pytest.mark.parametrize(
    "statement",
    [
        "    x = loss.item()  # guards: allow[GRD102] -- the scheduler needs it\n",
        "    x = f(  # guards: allow[GRD102] -- on the first line\n        loss.item(),\n    )\n",
        "    x = f(\n        loss.item(),\n    )  # guards: allow[GRD102] -- on the last line\n",
        "    x = loss.item()  # guards: allow[GRD101,GRD102] -- two  # noqa: X\n",
        "    if loss > 0:  # guards: allow[GRD103] -- once\n        pass\n",
    ],
)
def test_a_comment_on_any_line_of_the_statement_allows(tmp_path, statement):
    report = run(tmp_path, {"a.py": HOT + statement}, 'ignore = ["GRD901"]')
    assert found(report) == []
    assert report.allowed == 1


def test_a_comment_in_the_body_does_not_allow_the_head(tmp_path):
    body = "    if loss > 0:\n        pass  # guards: allow[GRD103] -- elsewhere\n"
    report = run(tmp_path, {"a.py": HOT + body})
    assert found(report) == [("GRD103", "a.py", 6), ("GRD901", "a.py", 7)]


def test_a_comment_of_another_code_or_without_a_reason_does_not_allow(tmp_path):
    body = (
        "    x = loss.item()  # guards: allow[GRD101] -- another\n"
        "    y = loss.item()  # guards: allow[GRD102]\n"
    )
    assert found(run(tmp_path, {"a.py": HOT + body})) == [
        ("GRD102", "a.py", 6),
        ("GRD901", "a.py", 6),
        ("GRD102", "a.py", 7),
        ("GRD902", "a.py", 7),
    ]


def test_what_is_not_selected_is_not_called_unused(tmp_path):
    source = "x = 1  # guards: allow[GRD107] -- opt in, and off here\n"
    assert found(run(tmp_path, {"a.py": source})) == []
    assert found(run(tmp_path, {"a.py": source}, 'extend-select = ["GRD107"]')) == [
        ("GRD901", "a.py", 1)
    ]


def test_a_comment_is_found_where_the_tokenizer_gives_up():
    text = "# guards: allow[GRD101] -- why\nx = (\n"
    assert find_allows(text) == [(1, 0, 30, ("GRD101",), "why")]


def test_the_run_time_half_reads_the_same_comment():
    assert allowed_on("x.item()  # guards: allow[GRD102, runtime] -- why") == {"GRD102", "runtime"}
    assert allowed_on("x.item()  # guards: allow[GRD102]") == frozenset()
    assert allowed_on("x.item()") == frozenset()


def test_per_file_ignores_and_excludes(tmp_path):
    files = dict.fromkeys(("a.py", "old/b.py", "gen/c.py"), HOT + "    loss.item()\n")
    config = 'exclude = ["gen"]\n[per-file-ignores]\n"old/**" = ["GRD1"]\n'
    assert found(run(tmp_path, files, config)) == [("GRD102", "a.py", 6)]


def test_low_confidence_is_shown_on_request(tmp_path):
    source = "from onegraph.guards import hot_path\n@hot_path\ndef f(x):\n    x.item()\n"
    assert found(run(tmp_path, {"a.py": source})) == []
    assert found(run(tmp_path, {"a.py": source}, 'min-confidence = "possible"')) == [
        ("GRD102", "a.py", 4)
    ]


# -------------------------------------------------------------------- baseline


def baselined(tmp_path, expires="2030-06-30"):
    source = tmp_path / "src"
    report = run(source, {"a.py": HOT + "    loss.item()\n"})
    path = tmp_path / "baseline.json"
    count = write_baseline(
        path, report.findings, owner="replay team", reason="migration", expires=expires
    )
    assert count == 1
    return source, build(source.resolve(), {"baseline": str(path)}, "test"), path


def test_a_baseline_holds_while_lines_shift_and_ends_with_its_date(tmp_path):
    source, config, _ = baselined(tmp_path)
    (source / "a.py").write_text("# a new first line\n" + HOT + "    loss.item()\n")
    report = check([source], config, today=date(2030, 6, 30))
    assert (found(report), report.baselined) == ([], 1)
    report = check([source], config, today=date(2030, 7, 1))
    assert [f.code for f in report.findings] == ["GRD904", "GRD102"]
    assert "replay team" in report.findings[0].message


def test_a_second_finding_on_a_like_line_is_not_in_the_baseline(tmp_path):
    source, config, _ = baselined(tmp_path)
    (source / "a.py").write_text(HOT + "    loss.item()\n    loss.item()\n")
    assert found(check([source], config, today=date(2030, 1, 1))) == [("GRD102", "a.py", 7)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "this is no baseline"),
        ("[]", "this is no baseline"),
        ('{"entries": [{"fingerprint": "a"}]}', "entry 0 has no code"),
        (
            '{"entries": [{"fingerprint": "a", "code": "GRD102", "path": "a.py", "owner": " ",'
            ' "reason": "r", "expires": "2030-01-01"}]}',
            "entry 0 has no owner",
        ),
        (
            '{"entries": [{"fingerprint": "a", "code": "GRD102", "path": "a.py", "owner": "o",'
            ' "reason": "r", "expires": "soon"}]}',
            "expires 'soon' is no date",
        ),
    ],
)
def test_a_broken_baseline_is_one_error(tmp_path, text, message):
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(BaselineError, match=message):
        load_baseline(path)


def test_a_missing_baseline_and_one_with_no_owner_are_errors(tmp_path):
    with pytest.raises(BaselineError, match="make one with --write-baseline"):
        load_baseline(tmp_path / "gone.json")
    with pytest.raises(BaselineError, match="--owner and --reason"):
        write_baseline(tmp_path / "b.json", [], owner="", reason="r", expires="2030-01-01")
    with pytest.raises(BaselineError, match="'later' is no date"):
        write_baseline(tmp_path / "b.json", [], owner="o", reason="r", expires="later")


# -------------------------------------------------------------------- config


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"hto": []}, "no key 'hto'"),
        ({"hot": "a.step"}, "hot: 'a.step' is no list"),
        ({"hot": [1]}, "hot: 1 is no string"),
        ({"apis": {"a.b": "syncs"}}, "'syncs' is none of sync"),
        ({"min-confidence": "sure"}, "'sure' is none of proven"),
        ({"retired": [{"allow": []}]}, "modules is missing"),
        ({"retired": [{"modules": ["a"], "allows": []}]}, "no key 'allows'"),
        ({"per-file-ignores": []}, "is no table"),
        ({"baseline": 3}, "3 is no path"),
    ],
)
def test_a_wrong_config_is_one_error_that_names_the_key(tmp_path, table, message):
    with pytest.raises(ConfigError, match=message):
        build(tmp_path, table, "pyproject.toml")


def test_a_config_file_that_is_no_toml_or_is_not_there(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool")
    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        load_config(tmp_path)
    with pytest.raises(ConfigError, match="there is no such file"):
        load_config(tmp_path, file=tmp_path / "gone.toml")


def test_setuptools_folders_give_the_import_names(tmp_path):
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").touch()
    (tmp_path / "core" / "a.py").write_text(
        "import torch\nfrom onegraph.guards import hot_path\nfrom pkg.core.b import go\n"
        "@hot_path\ndef step(): go()\n"
    )
    (tmp_path / "core" / "b.py").write_text("import torch\ndef go(): torch.cuda.synchronize()\n")
    (tmp_path / "pyproject.toml").write_text('[tool.setuptools.package-dir]\n"pkg.core" = "core"\n')
    report = check([tmp_path], load_config(tmp_path.resolve()))
    assert [f.chain_text for f in report.findings] == ["pkg.core.a.step -> pkg.core.b.go"]
