"""The guard on a large tree that is installed: index cold and warm, whole check, start; and others.

The tree is the first of torch, jax and NumPy that is installed, or the folder that GUARDS_TREE
names. The budgets are of `GUARDS.md`: index 0.1 s per 10,000 lines cold and 0.3 s per 100,000 lines
warm; 1.5 s per 10,000 hot lines; a start of under 150 ms over bare Python.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onegraph.guards.check import check
from onegraph.guards.config import Config
from onegraph.guards.engine.tree import read_tree


def tree() -> Path:
    if "GUARDS_TREE" in os.environ:
        return Path(os.environ["GUARDS_TREE"])
    for name in ("torch", "jax", "numpy"):
        if (spec := importlib.util.find_spec(name)) is not None and spec.origin:
            return Path(spec.origin).parent
    raise LookupError("none of torch, jax and NumPy is installed; name a folder in GUARDS_TREE")


@pytest.fixture(scope="module")
def folder():
    return tree()


@pytest.fixture(scope="module")
def lines(folder):
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.py"))


@pytest.fixture(autouse=True)
def no_collections():
    """As the command runs."""
    gc.disable()
    yield
    gc.enable()


def measured(benchmark, group, lines, run):
    """Time `run`, and note the tree's size."""
    benchmark.group = group
    benchmark.extra_info["lines"] = lines
    return benchmark.pedantic(run, rounds=3, iterations=1)


def test_index_cold(benchmark, folder, lines):
    found = measured(benchmark, "index", lines, lambda: read_tree([folder], Config(folder)))
    assert found.project.modules


def test_index_warm(benchmark, folder, lines, tmp_path):
    config = Config(folder, cache=tmp_path / "index")
    read_tree([folder], config)
    found = measured(benchmark, "index", lines, lambda: read_tree([folder], config))
    assert found.project.modules


def test_whole_check(benchmark, folder, lines, tmp_path):
    config = Config(folder, cache=tmp_path / "index")
    check([folder], config)
    report = measured(benchmark, "whole check", lines, lambda: check([folder], config))
    assert report.files


def test_check_with_every_step_function_hot(benchmark, folder, lines, tmp_path):
    config = Config(folder, cache=tmp_path / "index", hot=("*.step", "*.forward", "*.update"))
    report = measured(benchmark, "whole check", lines, lambda: check([folder], config))
    benchmark.extra_info["hot functions"] = report.hot
    benchmark.extra_info["findings"] = len(report.findings)
    assert report.hot >= len({f.function for f in report.findings})


def command(*arguments: str, cwd: Path | None = None) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode in (0, 1), done.stderr


def test_ruff_on_the_same_tree(benchmark, folder, lines):
    arguments = (sys.executable, "-m", "ruff", "check", "--no-cache", "--isolated", str(folder))
    measured(benchmark, "whole check", lines, lambda: command(*arguments))


@pytest.mark.skipif(importlib.util.find_spec("fixit") is None, reason="Fixit is not installed")
def test_fixit_on_the_same_tree(benchmark, folder, lines):
    benchmark.group = "whole check"
    benchmark.extra_info["lines"] = lines
    arguments = (sys.executable, "-m", "fixit", "--quiet", "lint", str(folder))
    benchmark.pedantic(lambda: command(*arguments), rounds=1, iterations=1)


def test_bare_python_starts(benchmark):
    benchmark.group = "start"
    benchmark.pedantic(lambda: command(sys.executable, "-P", "-c", "pass"), rounds=5)


def test_the_guard_starts_and_checks_one_file(benchmark, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    benchmark.group = "start"
    arguments = (sys.executable, "-P", "-m", "onegraph.guards", "check", "a.py")
    # There: from a project's folder it reads that project as well.
    benchmark.pedantic(lambda: command(*arguments, cwd=tmp_path), rounds=5)


def test_a_cache_does_not_change_the_findings(folder, tmp_path):
    config = Config(folder, hot=("*.step",))
    cached = replace(config, cache=tmp_path / "index")
    first, second, third = (check([folder], c) for c in (config, cached, cached))
    assert first.findings == second.findings == third.findings
