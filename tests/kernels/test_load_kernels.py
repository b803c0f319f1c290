"""Kernels of a folder that is no package: declared by its path, and refused by name."""

import sys

import numpy as np
import pytest

from onegraph.kernels import catalogue
from onegraph.kernels.catalogue import KernelFolderError, find, load_kernels
from onegraph.kernels.device import HostDevice

TWIN = '''"""Adds one."""

from __future__ import annotations

from dataclasses import dataclass

from onegraph.kernels.catalogue import kernel


@dataclass
class Beside:
    """Looks its module up by name as it is made."""

    n: int


@kernel(work="n", x="inout i32", n="i32")
def NAME(*, x, n):
    x[:n] += Beside(1).n
'''


@pytest.fixture(autouse=True)
def _catalogue_as_it_was(monkeypatch):
    catalogue.catalogue()  # the package's, which are declared but once
    monkeypatch.setattr(catalogue, "_registry", dict(catalogue._registry))


def pair(folder, name="plus_one", twin=TWIN):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.cu").write_text(f'extern "C" __global__ void {name}(int* x, int n) {{}}')
    (folder / f"{name}.py").write_text(twin.replace("NAME", name))


def test_the_pairs_of_a_folder_become_kernels(tmp_path):
    for name in ("plus_two", "plus_one"):
        pair(tmp_path, name)
    (tmp_path / "notes.py").write_text("raise RuntimeError('no kernel, so nobody imports it')")
    (tmp_path / "shared.cuh").write_text("")
    before = list(sys.path)
    loaded = load_kernels(tmp_path)
    assert [spec.name for spec in loaded] == ["plus_one", "plus_two"]
    assert find("plus_one").source == tmp_path / "plus_one.cu"
    assert sys.path == before
    assert not {"plus_one", "plus_two"} & set(sys.modules)
    with HostDevice() as device:
        x = device.allocate((4,), "i32", "x")
        device.memset(x)
        device.run("plus_one", x=x, n=3)
        target = np.zeros(4, np.int32)
        device.copy_dtoh(target, x)
        device.free(x)
    assert target.tolist() == [1, 1, 1, 0]


def test_a_folder_can_be_loaded_twice_and_by_a_relative_path(tmp_path, monkeypatch):
    pair(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    (first,), (second,) = load_kernels(tmp_path / "mine"), load_kernels("mine")
    assert (first.name, first.source) == (second.name, second.source)


def test_a_name_that_another_folder_has_is_refused(tmp_path):
    for folder in ("a", "b"):
        pair(tmp_path / folder)
    load_kernels(tmp_path / "a")
    with pytest.raises(ValueError, match=r"'plus_one' is declared in .*a/plus_one.cu and in .*b/"):
        load_kernels(tmp_path / "b")
    assert find("plus_one").source == tmp_path / "a" / "plus_one.cu"


def test_a_name_of_the_package_is_refused(tmp_path):
    pair(tmp_path, "adam_step")
    with pytest.raises(ValueError, match="give one of them another"):
        load_kernels(tmp_path)


def no_twin(folder):
    pair(folder)
    (folder / "plus_one.py").unlink()


def another_name(folder):
    pair(folder)
    (folder / "plus_one.py").write_text(TWIN.replace("NAME", "plus_1"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, r"mine is no folder; name the folder in which your kernels lie"),
        (lambda folder: folder.mkdir(), "mine holds no .cu file; name the folder"),
        (lambda folder: folder.write_text(""), "mine is no folder"),
        (no_twin, "plus_one.cu has no twin; write plus_one.py beside it"),
        (another_name, "plus_one.py declares no kernel 'plus_one'; the decorated function"),
    ],
)
def test_what_cannot_be_loaded_is_named(tmp_path, make, said):
    make(tmp_path / "mine")
    with pytest.raises(KernelFolderError, match=said):
        load_kernels(tmp_path / "mine")


def test_a_twin_that_fails_is_not_left_half_imported(tmp_path):
    pair(tmp_path, twin="raise ImportError('no such thing')")
    with pytest.raises(ImportError, match="no such thing"):
        load_kernels(tmp_path)
    assert str(tmp_path / "plus_one.py") not in sys.modules
