"""Every kernel compiles for every architecture with no GPU, and the cache never lies.

The compilations use the cache like everything else: an entry's key covers the source, all headers,
the options and NVRTC's version, so that a hit says what a compilation would, and a clean checkout
compiles all of them.
"""

from __future__ import annotations

import os

import pytest

from onegraph.kernels import catalogue as catalogue_module
from onegraph.kernels import compile as compiler
from onegraph.kernels.catalogue import catalogue, find
from onegraph.kernels.compile import ARCHITECTURES, CompileError, compile_kernel, compile_source
from onegraph.kernels.signature import SignatureError

pytest.importorskip("cuda.core")

SOURCE = '#include "common/layout.cuh"\nextern "C" __global__ void f(int* out) { *out = FAN_OUT; }'


#: One of them in `make quick`, where no kernel is in the cache yet.
EACH_ARCHITECTURE = [
    arch if arch == "sm_90" else pytest.param(arch, marks=pytest.mark.slow)
    for arch in ARCHITECTURES
]


@pytest.mark.parametrize("arch", EACH_ARCHITECTURE)
@pytest.mark.parametrize("name", list(catalogue()))
def test_compiles(name, arch):
    cubin = compile_kernel(find(name), arch)
    assert cubin.startswith(b"\x7fELF")
    assert f".text.{name}".encode() in cubin


@pytest.mark.parametrize(
    ("capability", "arch"),
    [
        ((7, 5), "sm_75"),
        ((8, 0), "sm_80"),
        ((8, 7), "sm_86"),  # Orin runs what was built for an earlier minor
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90"),
        ((10, 3), "sm_100"),
        ((12, 1), "sm_120"),
    ],
)
def test_architecture_of_a_gpu(capability, arch):
    assert compiler.architecture(*capability) == arch


@pytest.mark.parametrize("capability", [(7, 0), (6, 1), (11, 0), (13, 0)])
def test_architecture_without_kernels(capability):
    with pytest.raises(ValueError, match=r"{}\.{} is not supported".format(*capability)):
        compiler.architecture(*capability)


def test_error_carries_the_log():
    source = 'extern "C" __global__ void f(int n) { n = absent; }'
    with pytest.raises(CompileError, match="kernel f does not compile for sm_90") as caught:
        compile_source(source, "f", "sm_90", fma=True)
    error = caught.value
    assert (error.kernel, error.arch) == ("f", "sm_90")
    assert 'f.cu(1): error: identifier "absent" is undefined' in error.log


# -------------------------------------------------------------------- the cache


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """A cache of its own, and the list of what NVRTC was asked for."""
    monkeypatch.setenv("ONEGRAPH_CACHE", str(tmp_path / "cache"))
    asked: list[str] = []
    real = compiler._nvrtc

    def nvrtc(source, name, arch, include, *, fma):
        asked.append(arch)
        return real(source, name, arch, include, fma=fma)

    monkeypatch.setattr(compiler, "_nvrtc", nvrtc)
    return asked


def _compile(arch="sm_90", source=SOURCE, *, fma=True):
    return compile_source(source, "f", arch, fma=fma)


def test_second_time_is_free(compiled):
    assert _compile() == _compile()
    assert compiled == ["sm_90"]


def test_source_options_and_architecture_are_part_of_the_key(compiled):
    _compile()
    _compile("sm_80")
    _compile(fma=False)
    _compile(source=SOURCE + "\n")
    assert len(compiled) == 4


def test_header_is_part_of_the_key(compiled, monkeypatch, tmp_path):
    header = tmp_path / "kernels" / "common" / "layout.cuh"
    header.parent.mkdir(parents=True)
    monkeypatch.setattr(compiler, "INCLUDE", tmp_path / "kernels")
    cubins = []
    for fan_out in (32, 64):
        header.write_text(f"#define FAN_OUT {fan_out}\n")
        compiler._headers_digest.cache_clear()
        cubins.append(_compile())
    compiler._headers_digest.cache_clear()
    assert len(compiled) == 2
    assert cubins[0] != cubins[1]


OWN = """import numpy as np
from onegraph.kernels.catalogue import kernel

@kernel(work="n", x="inout f32", n="i32")
def own_{}(*, x, n):
    x[:n] += np.float32(1)
"""
OWN_CU = '#include "one.cuh"\nextern "C" __global__ void own_{}(float* x, int n) {{ x[0] += ONE; }}'


def own_kernel(folder, name):
    """A pair outside the package, imported as a user's module is."""
    (folder / "one.cuh").write_text("#define ONE 1.0f\n")
    (folder / f"own_{name}.cu").write_text(OWN_CU.format(name))
    path = folder / f"own_{name}.py"
    path.write_text(OWN.format(name))
    exec(compile(path.read_text(), str(path), "exec"), {})
    return find(f"own_{name}")


@pytest.fixture
def registry(monkeypatch):
    """What a test declares is gone after it."""
    monkeypatch.setattr(catalogue_module, "_registry", dict(catalogue_module._registry))


def test_a_pair_outside_the_package_compiles_with_the_headers_beside_it(
    compiled, registry, tmp_path
):
    spec = own_kernel(tmp_path, "a")
    assert spec.source == tmp_path / "own_a.cu"
    before = compile_kernel(spec, "sm_90")
    assert b".text.own_a" in before
    assert compile_kernel(spec, "sm_90") == before
    assert len(compiled) == 1
    (tmp_path / "one.cuh").write_text("#define ONE 2.0f\n")
    compiler._headers_digest.cache_clear()
    assert compile_kernel(spec, "sm_90") != before


def test_a_source_that_is_not_what_the_twin_declares(registry, tmp_path):
    spec = own_kernel(tmp_path, "b")
    spec.source.write_text(spec.source.read_text().replace("int n", "long long n"))
    with pytest.raises(
        SignatureError,
        match=r"own_b.cu holds own_b\(float\* x, long long n\), and its twin declares"
        r" own_b\(float\* x, int n\)",
    ):
        compile_kernel(spec, "sm_90")
    spec.source.write_text("int x;")
    with pytest.raises(SignatureError, match=r"own_b.cu: 0 kernels in one file"):
        compile_kernel(spec, "sm_90")
    spec.source.unlink()
    with pytest.raises(SignatureError, match=r"own_b has no CUDA source.*write own_b.cu beside"):
        compile_kernel(spec, "sm_90")


def test_two_kernels_of_one_name(registry, tmp_path):
    own_kernel(tmp_path, "c")
    own_kernel(tmp_path, "c")  # imported twice: the same kernel
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ValueError, match=r"'own_c' is declared in .*own_c.cu and in .*other"):
        own_kernel(other, "c")


def test_nvrtc_version_is_part_of_the_key(compiled, monkeypatch):
    _compile()
    monkeypatch.setattr(compiler, "_nvrtc_version", lambda: (99, 0))
    _compile()
    assert len(compiled) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:20],
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: b"x" * len(content),
    ],
    ids=["empty", "no header", "cut short", "longer", "one bit", "other file"],
)
def test_damaged_entry_is_compiled_again(compiled, damage):
    good = _compile()
    (entry,) = compiler.cache_dir().iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert _compile() == good
    assert _compile() == good
    assert len(compiled) == 2  # and the entry was mended


def test_unreadable_entry_is_compiled_again(compiled):
    good = _compile()
    (entry,) = compiler.cache_dir().iterdir()
    entry.unlink()
    entry.mkdir()
    with pytest.warns(RuntimeWarning, match="can't be written"):
        assert _compile() == good
    assert [path.name for path in compiler.cache_dir().iterdir()] == [entry.name]


def test_unwritable_cache_warns_once(compiled, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ONEGRAPH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(RuntimeWarning, match="set ONEGRAPH_CACHE"):
        first = _compile()
    assert _compile() == first  # a second warning would be an error
    assert len(compiled) == 2


def test_nothing_is_left_beside_the_entries(compiled):
    _compile()
    assert [path.suffix for path in compiler.cache_dir().iterdir()] == [".cubin"]


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({"ONEGRAPH_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/onegraph"),
        ({"HOME": "/c"}, "/c/.cache/onegraph"),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="HOME is where POSIX keeps it")
def test_cache_dir(monkeypatch, environment, want):
    for name in ("ONEGRAPH_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert compiler.cache_dir().as_posix() == want
