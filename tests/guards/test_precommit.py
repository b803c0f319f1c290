"""`.pre-commit-hooks.yaml` from another repository: a bad commit is refused, a good one not."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BAD = """\
import torch
from onegraph.guards import hot_path


@hot_path
def step(model, batch):
    return model(batch).item()
"""
GOOD = BAD.replace(".item()", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("pre_commit") is None, reason="pre-commit is not installed"
    ),
]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A git repository with one file, and a copy of this checkout that is a git repository too."""
    for name in [n for n in os.environ if n.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "store"))
    # The hook runs `python` of the environment that is active.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    hooks = tmp_path / "onegraph"
    hooks.mkdir()
    (hooks / ".pre-commit-hooks.yaml").write_text((ROOT / ".pre-commit-hooks.yaml").read_text())
    repository = tmp_path / "elsewhere"
    repository.mkdir()
    for folder in (hooks, repository):
        git(folder, "init", "--quiet", "--initial-branch=main")
        git(folder, "config", "user.email", "a@example.org")
        git(folder, "config", "user.name", "A")
    git(hooks, "add", ".")
    git(hooks, "commit", "--quiet", "--message", "The hooks")
    (repository / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {hooks}\n    rev: {git(hooks, 'rev-parse', 'HEAD').stdout.strip()}\n"
        "    hooks:\n      - id: onegraph-guard-system\n"
    )
    installed = subprocess.run(
        [sys.executable, "-m", "pre_commit", "install"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return repository


def git(folder, *arguments, ok=True):
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert not ok or done.returncode == 0, done.stdout + done.stderr
    return done


def commit(repository, source):
    (repository / "loop.py").write_text(source)
    git(repository, "add", ".")
    return git(repository, "commit", "--message", "A step", ok=False)


def test_a_bad_commit_is_refused_and_a_good_one_accepted(elsewhere):
    refused = commit(elsewhere, BAD)
    said = refused.stdout + refused.stderr
    assert refused.returncode != 0
    assert "loop.py:7:12: GRD102 model(batch).item() reads back from the device" in said
    assert "hot: loop.step" in said
    assert git(elsewhere, "log", "--oneline", ok=False).stdout == ""
    print(said)

    accepted = commit(elsewhere, GOOD)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert len(git(elsewhere, "log", "--oneline").stdout.splitlines()) == 1
