"""What a user gets from an install: the four layers, and nothing else, under one import package."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("guards", "kernels", "stages", "trainer")
BUILD_INPUTS = ("pyproject.toml", "setup.py", "LICENSE", "README.md")
DATA_SUFFIXES = {".css", ".csv", ".cu", ".cuh", ".gz", ".md", ".toml", ".typed"}


def run_python(*arguments, cwd):
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_from_another_directory(tmp_path, layer):
    result = run_python("-c", f"import onegraph.{layer} as m; print(m.__file__)", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).resolve() == ROOT / layer / "__init__.py"


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_generic_is_importable(tmp_path, layer):
    result = run_python("-c", f"import {layer}", cwd=tmp_path)
    assert f"No module named '{layer}'" in result.stderr


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(tmp_path):
    source = tmp_path / "source"
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, source / layer, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILD_INPUTS:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    # A subpackage and data that no line of the packaging names.
    later = source / "kernels" / "later" / "deep"
    later.mkdir(parents=True)
    (later.parent / "__init__.py").touch()
    (later / "__init__.py").touch()
    (later / "sum.cu").write_text("// kernel")

    built = run_python(
        *("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", str(tmp_path), "."),
        cwd=source,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("onegraph-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        archive.extractall(tmp_path / "installed")

    expected = {
        f"onegraph/{file.relative_to(source).as_posix()}"
        for layer in LAYERS
        for file in (source / layer).rglob("*")
        if file.is_file() and (file.suffix == ".py" or file.suffix in DATA_SUFFIXES)
    }
    assert {"onegraph/kernels/later/deep/sum.cu", "onegraph/trainer/configs/demo.toml"} <= expected
    assert names == expected

    # -S: without site-packages, so that the editable install cannot answer instead.
    imported = run_python(
        *("-S", "-P", "-c"),
        "import sys; sys.path.insert(0, 'installed');"
        "import onegraph.guards as g, onegraph.kernels.later.deep; print(g.__file__)",
        cwd=tmp_path,
    )
    assert imported.returncode == 0, imported.stderr
    assert (tmp_path / "installed") in Path(tmp_path / imported.stdout.strip()).parents
