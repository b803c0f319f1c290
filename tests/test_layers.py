"""The layering of the four folders, read from the source: who may import whom."""

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("guards", "kernels", "stages", "trainer")  # each may import those before it
DEVICE_PACKAGES = {"cuda", "cupti", "nvmath"}
FRAMEWORKS = {"torch", "jax"}
LEGACY = "onegraph.trainer.legacy"
LEGACY_FACTORY = PurePosixPath("trainer/program.py")
ROOMLESS_NAMES = {"utils.py", "helpers.py"}


def imported_modules(path: PurePosixPath, source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute dotted name) for every import, wherever in the file it stands.

    `from a import b` yields both a and a.b, since b may be a module. A relative import is resolved
    against the file's place; `import_module("a.b")` and `__import__("a.b")` count too.
    """
    package = ("onegraph", *path.parent.parts)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            yield node.lineno, module
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else None
            name = function.id if isinstance(function, ast.Name) else name
            target = node.args[0]
            if (
                name in {"import_module", "__import__"}
                and isinstance(target, ast.Constant)
                and isinstance(target.value, str)
            ):
                yield node.lineno, target.value


def violations(path: PurePosixPath, source: str) -> list[str]:
    """Every breach of the layering in one file.

    Args:
        path: the file's path from the root of the repository.
        source: its text.

    Returns:
        One line a breach, `path:line: what`, in the order of the lines.
    """
    layer = path.parts[0]
    found = set()
    if path.name in ROOMLESS_NAMES:
        found.add((1, f"a file named {path.name}: name it after what it holds"))
    touches_device = path.is_relative_to("kernels/device") or path == PurePosixPath(
        "kernels/compile.py"
    )
    may_import_legacy = path == LEGACY_FACTORY or path.is_relative_to("trainer/legacy")

    for line, module in imported_modules(path, source):
        parts = module.split(".")
        top = parts[0]
        if top == "onegraph" and len(parts) > 1 and parts[1] in LAYERS:
            if LAYERS.index(parts[1]) > LAYERS.index(layer):
                found.add((line, f"{layer} imports onegraph.{parts[1]}, a layer above it"))
        elif top == "onegraph" and len(parts) > 1:
            found.add((line, f"onegraph.{parts[1]} is no layer"))
        if top in LAYERS:
            found.add((line, f"imports {top} as a top-level package: write onegraph.{top}"))
        if top in DEVICE_PACKAGES and not touches_device:
            found.add((line, f"imports {top} outside kernels/device and kernels/compile.py"))
        if top in FRAMEWORKS:
            found.add((line, f"imports {top}"))
        if top == "numpy" and layer == "guards":
            found.add((line, "guards imports numpy"))
        if (module == LEGACY or module.startswith(LEGACY + ".")) and not may_import_legacy:
            found.add((line, f"imports trainer.legacy outside {LEGACY_FACTORY}"))
    return [f"{path}:{line}: {what}" for line, what in sorted(found)]


def python_files() -> list[PurePosixPath]:
    return [
        PurePosixPath(file.relative_to(ROOT).as_posix())
        for layer in LAYERS
        for file in sorted((ROOT / layer).rglob("*.py"))
    ]


def test_the_four_folders_keep_to_their_layers():
    files = python_files()
    assert {file.parts[0] for file in files} == set(LAYERS)
    assert [
        line
        for file in files
        for line in violations(file, (ROOT / file).read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("guards/a.py", "import onegraph.kernels", "guards imports onegraph.kernels, a layer"),
        ("guards/a.py", "import numpy as np", "guards imports numpy"),
        ("guards/a.py", "def f():\n    import cuda.core", "imports cuda outside"),
        ("kernels/a.py", "from onegraph.stages import flags", "kernels imports onegraph.stages"),
        ("kernels/a.py", "from onegraph import trainer", "kernels imports onegraph.trainer"),
        ("kernels/device/a.py", "from ...stages import b", "kernels imports onegraph.stages"),
        ("kernels/a.py", "from .. import stages", "kernels imports onegraph.stages"),
        ("kernels/__init__.py", "from ..trainer import b", "kernels imports onegraph.trainer"),
        ("kernels/a.py", "import cuda.bindings.driver", "imports cuda outside kernels/device"),
        ("kernels/devices.py", "import cuda", "imports cuda outside kernels/device"),
        ("stages/a.py", "from nvmath.bindings import cublasLt", "imports nvmath outside"),
        ("stages/a.py", "from cupti import cupti", "imports cupti outside"),
        ("stages/a.py", "import onegraph.trainer.config", "stages imports onegraph.trainer"),
        (
            "stages/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..trainer import config",
            "stages imports onegraph.trainer",
        ),
        (
            "stages/a.py",
            "import importlib\nimportlib.import_module('onegraph.trainer')",
            "stages imports onegraph.trainer",
        ),
        ("trainer/loop.py", "from .legacy import replay", "imports trainer.legacy outside"),
        ("trainer/loop.py", "from . import legacy", "imports trainer.legacy outside"),
        ("trainer/env/a.py", "from ..legacy.replay import R", "imports trainer.legacy outside"),
        ("trainer/loop.py", "import onegraph.trainer.legacy", "imports trainer.legacy outside"),
        ("trainer/loop.py", "import torch.nn", "imports torch"),
        ("trainer/loop.py", "from jax import numpy", "imports jax"),
        ("trainer/loop.py", "__import__('torch')", "imports torch"),
        ("trainer/loop.py", "import kernels", "imports kernels as a top-level package"),
        ("trainer/loop.py", "from onegraph.tests import x", "onegraph.tests is no layer"),
        ("trainer/utils.py", "", "a file named utils.py"),
        ("kernels/device/helpers.py", "", "a file named helpers.py"),
    ],
)
def test_a_planted_breach_is_found(path, source, expected):
    (found,) = violations(PurePosixPath(path), source)
    line = source.count("\n") + 1
    assert found.startswith(f"{path}:{line}: {expected}")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("guards/a.py", "import ast\nfrom . import markers\nfrom .rules import readback"),
        ("kernels/a.py", "import numpy as np\nfrom onegraph.guards import hot_path"),
        ("kernels/device/cuda.py", "from cuda.core import Device\nimport nvmath.bindings"),
        ("kernels/compile.py", "from cuda.core import Program"),
        ("kernels/device/__init__.py", "from .cuda import CudaDevice\nfrom .. import compile"),
        ("stages/a.py", "from onegraph.kernels.device import Device\nfrom ..guards import x"),
        ("trainer/program.py", "from .legacy import build\nimport onegraph.stages"),
        ("trainer/legacy/a.py", "from . import replay\nfrom onegraph.trainer.legacy import b"),
        ("trainer/legacy_notes.py", "from .loop import legacy"),
        ("trainer/a.py", "from .cuda_report import x\nimport torchlike\nfrom . import kernels"),
    ],
)
def test_what_the_layers_allow_passes(path, source):
    assert violations(PurePosixPath(path), source) == []


def test_breaches_come_in_the_order_of_their_lines():
    source = "import torch\nimport numpy\nimport jax"
    assert violations(PurePosixPath("trainer/a.py"), source) == [
        "trainer/a.py:1: imports torch",
        "trainer/a.py:3: imports jax",
    ]
