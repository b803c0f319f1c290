"""Each example runs from another folder, checks its own answer, and notices a wrong one."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PAGE = EXAMPLES / "README.md"

#: What each prints when all is well, and a mistake that it has to notice: (right, wrong).
ALONE = {
    "train_on_your_csv": (
        r"900 bars of mine, 2015-01-01 to 2018-06-13.*buy and hold",
        ("days=900", "days=899"),
    ),
    "toggle_stages": (
        r"│ 0-6 +│ 0 +│ 1 +│ 0 +│ 0 +│ 0 +│ 0 +│.*equal parameters at each set",
        (
            "trainer.learn().by_kind()\n",
            "trainer.learn().by_kind()\n        stages or trainer.learn()\n",
        ),
    ),
    "guard_your_loop": (
        r"GRD102 .*hot: loop\.Training\.step -> statistics_of\.Running\.add.*fixed loop: 0",
        ("self.total += loss.detach()", "self.total += loss.item()"),
    ),
    "export_and_serve": (
        r"inputs: features float64 \[N, 10\].*649 bars served, [1-9]\d* changes",
        ("held / (held + 10)", "held / (held + 1)"),
    ),
    "load_in_torch": (
        r"Linear\(in_features=16, out_features=2.*largest difference of an action value",
        ("a.mean(0, keepdim=True)", "a.sum(0, keepdim=True)"),
    ),
}

NEEDS = {"export_and_serve": ("onnx", "onnxruntime"), "load_in_torch": ("torch",)}


def run(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-W", "error", str(path)],
        cwd=folder,
        env={**os.environ, "COLUMNS": "140", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=False,
    )


def needed(name: str) -> None:
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_an_example_is_right(name: str, tmp_path: Path) -> None:
    needed(name)
    done = run(EXAMPLES / f"{name}.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(ALONE[name][0], done.stdout, re.DOTALL), done.stdout
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


@pytest.mark.soak
@pytest.mark.parametrize("name", ALONE)
def test_an_example_notices_a_mistake(name: str, tmp_path: Path) -> None:
    needed(name)
    right, wrong = ALONE[name][1]
    source = (EXAMPLES / f"{name}.py").read_text()
    assert source.count(right) == 1
    path = tmp_path / f"{name}.py"
    path.write_text(source.replace(right, wrong))
    done = run(path, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(("name", "package"), [(n, p[-1]) for n, p in NEEDS.items()])
def test_a_package_that_is_missing_is_named(name: str, package: str, tmp_path: Path) -> None:
    source = (EXAMPLES / f"{name}.py").read_text()
    path = tmp_path / "without.py"
    docstring = ast.get_docstring(ast.parse(source), clean=False)
    body = source.split(f'"""{docstring}"""', 1)[1]
    path.write_text(f"import sys\nsys.modules[{package!r}] = None\n{body}")
    done = run(path, tmp_path)
    assert done.returncode == 1
    assert re.search(rf"this example needs (?:py)?{package} .*pip install", done.stderr.lower())


@pytest.mark.parametrize("name", ALONE)
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 90


def test_the_page_has_a_line_for_each() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| [")]
    named = {re.findall(r"\]\(([^)]+\.py)\)", line)[0] for line in lines}
    assert named == {path.name for path in EXAMPLES.glob("*.py")}
    for link in re.findall(r"\]\(([^)]+)\)", PAGE.read_text()):
        assert (EXAMPLES / link).exists(), link


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
@pytest.mark.parametrize("dueling", [True, False])
def test_the_preset_dqn_in_torch(dueling: bool, tmp_path: Path) -> None:
    import numpy as np
    import torch
    from trainer.setups import fill, make, market, steps

    from onegraph.kernels.device import HostDevice
    from onegraph.trainer.policy.policy import policy_of
    from onegraph.trainer.policy.weights import write_weights

    spec = importlib.util.spec_from_file_location("load", EXAMPLES / "load_in_torch.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    trainer = steps(fill(make(HostDevice(), market(network__dueling=dueling))), 5)
    write_weights(policy_of(trainer), tmp_path / "w")
    x = np.random.default_rng(0).normal(size=(50, trainer.network.observation_width))
    with torch.no_grad():
        q = example.load(tmp_path / "w")(torch.from_numpy(x.astype(np.float32))).numpy()
    np.testing.assert_allclose(q, trainer.q_values(x.astype(np.float32)), rtol=0, atol=1e-5)
