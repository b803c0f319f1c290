"""``onegraph guard`` as a command."""

import subprocess
import sys

import pytest
from guard_runs import write

from onegraph.guards.cli import main
from onegraph.guards.rules import RULES

HOT = "import torch\nfrom onegraph.guards import hot_path\n@hot_path\ndef step():\n"
BAD = {"a.py": HOT + "    torch.cuda.synchronize()\n", "pyproject.toml": ""}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, BAD)


def test_exit_codes(project, capsys):
    assert main(["check"]) == 1
    assert "a.py:5:5: GRD101" in capsys.readouterr().out
    assert main(["check", "--exit-zero"]) == 0
    assert main(["check", "--ignore", "GRD101"]) == 0
    assert main(["check", "--select", "GRD2,GRD3"]) == 0
    assert main(["check", "--select", "GRD777"]) == 2
    assert "no rule is called 'GRD777'" in capsys.readouterr().err
    assert main(["check", "--no-such-flag"]) == 2
    assert main([]) == 2
    assert main(["check", "gone.py"]) == 1
    assert "GRD900" in capsys.readouterr().out


def test_a_wrong_config_exits_with_2(project, capsys):
    (project / "pyproject.toml").write_text("[tool.onegraph.guards]\nhto = []\n")
    assert main(["check"]) == 2
    assert capsys.readouterr().err.startswith("onegraph guard: error: ")


def test_one_file_is_reported_and_the_rest_of_the_project_is_followed(project, capsys):
    write(project, {"b.py": "import torch\ndef go(): torch.cuda.synchronize()\n"})
    write(project, {"c.py": HOT + "    from b import go\n    go()\n"})
    assert main(["check", "b.py", "--output-format", "concise"]) == 1
    out = capsys.readouterr().out
    assert "[c.step -> b.go]" in out
    assert "a.py" not in out


def test_fixes(project, capsys):
    source = '@cold_path("once")\ndef save(x): return x.to_host()\n'
    write(project, {"a.py": source})
    assert main(["check", "--diff"]) == 1
    assert "+def save(x): return x.to_host_checkpoint()" in capsys.readouterr().out
    assert (project / "a.py").read_text() == source
    assert main(["check", "--fix"]) == 0
    assert "to_host_checkpoint()" in (project / "a.py").read_text()
    assert main(["check", "--diff"]) == 0


def test_a_report_to_a_file(project):
    assert main(["check", "--output-format", "json", "--output-file", "out.json"]) == 1
    assert '"GRD101"' in (project / "out.json").read_text()


def test_a_baseline_from_the_command_line(project, capsys):
    flags = ["check", "--baseline", "base.json"]
    assert main([*flags, "--write-baseline"]) == 2
    who = ["--owner", "me", "--reason", "migration", "--expires", "2999-01-01"]
    assert main([*flags, "--write-baseline", *who]) == 0
    assert main(flags) == 0
    assert "1 in the baseline" in capsys.readouterr().out
    assert main(["check", "--write-baseline", *who]) == 2


def test_the_cache_gives_the_same_findings(project, capsys):
    assert main(["check"]) == 1
    first = capsys.readouterr().out
    assert (project / ".guards_cache" / "index").exists()
    assert main(["check"]) == 1
    assert capsys.readouterr().out == first
    (project / ".guards_cache" / "index").write_bytes(b"damaged")
    assert main(["check"]) == 1
    assert capsys.readouterr().out == first
    assert main(["check", "--no-cache"]) == 1


def test_a_glob_that_names_nothing_is_said(project, capsys):
    assert main(["check", "--hot", "a.stpe"]) == 1
    assert "hot: 'a.stpe' names no function" in capsys.readouterr().err
    assert main(["check", "--hot", "a.step"]) == 1
    assert capsys.readouterr().err == ""


def test_rule_pages(capsys):
    assert main(["rule", "GRD102"]) == 0
    out = capsys.readouterr().out
    assert "# GRD102 readback" in out
    assert "safe in code that is declared cold" in out
    assert main(["rule", "all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(RULES)
    assert main(["rule", "GRD777"]) == 2


def test_the_codemod(project, capsys):
    write(project, {"a.py": "def save(x): return x.to_host()\n"})
    assert main(["codemod", "to-host-checkpoint", "a.py", "--diff"]) == 0
    assert "+def save(x): return x.to_host_checkpoint()" in capsys.readouterr().out
    assert main(["codemod", "to-host-checkpoint", "a.py"]) == 0
    assert "1 renamed in 1 files" in capsys.readouterr().out
    assert (project / "a.py").read_text() == "def save(x): return x.to_host_checkpoint()\n"


def loaded_by(code):
    script = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


HEAVY = {"numpy", "cuda", "typer", "rich", "pydantic", "libcst", "onegraph.kernels"}


def test_a_check_imports_nothing_heavy(project):
    run = f"sys.argv = ['onegraph', 'guard', 'check', {str(project)!r}]"
    code = f"{run}\nfrom onegraph.trainer.cli import main\nassert main() == 1"
    loaded = loaded_by(code)
    assert "onegraph.guards.rules" in loaded
    assert not HEAVY & loaded


def test_the_program_lists_it_and_hands_everything_on(project, capsys):
    from onegraph.trainer.cli.app import run

    assert run(["--help"]) == 0
    assert "Keep host round trips out of hot code" in capsys.readouterr().out
    assert run(["guard", "check", "--output-format", "concise"]) == 1
    assert "GRD101" in capsys.readouterr().out
    assert run(["guard", "rule", "--help"]) == 0
    assert "onegraph guard rule" in capsys.readouterr().out


def test_the_module_runs_too(project):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "onegraph.guards", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "GRD101" in done.stdout
