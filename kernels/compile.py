"""Kernels from source to cubin: NVRTC with no GPU present, behind a cache on disk.

Cubins are loaded and not PTX, because NVRTC may be newer than the driver, which would then refuse
its PTX. A cubin runs on the architecture it was built for and on later minors of the same major.
The CUDA packages are imported where they are used: the catalogue imports this folder on machines
that have none.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onegraph.kernels.catalogue import KernelSpec

#: What every kernel is compiled for in CI: from Turing to Blackwell.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

#: The folder that ``#include "common/layout.cuh"`` is relative to, in your own kernels too.
INCLUDE = Path(__file__).parent

#: What NVRTC is asked for instead: with what the next architecture does not have. There is no later
#: minor of 9.0 that a cubin would have to run on, and its tensor cores can't be had otherwise.
_TARGETS = {"sm_90": "sm_90a"}

_STANDARD = "c++17"
_MAGIC = b"onegraph-cubin-1"
_unwritable: set[tuple[Path, str]] = set()


class CompileError(RuntimeError):
    """NVRTC refused a kernel.

    Attributes:
        kernel: its name.
        arch: the architecture it was compiled for.
        log: what NVRTC said.
    """

    def __init__(self, kernel: str, arch: str, log: str) -> None:
        super().__init__(f"kernel {kernel} does not compile for {arch}:\n{log}")
        self.kernel, self.arch, self.log = kernel, arch, log


def architecture(major: int, minor: int) -> str:
    """The architecture to compile for on a GPU of compute capability `major`.`minor`.

    Raises:
        ValueError: nothing in `ARCHITECTURES` runs on it.
    """
    known = sorted(int(a.removeprefix("sm_")) for a in ARCHITECTURES)
    fits = [a for a in known if a // 10 == major and a % 10 <= minor]
    if not fits:
        raise ValueError(
            f"compute capability {major}.{minor} is not supported; kernels are built for"
            f" {', '.join(ARCHITECTURES)} and later minors of these"
        )
    return f"sm_{fits[-1]}"


def cache_dir() -> Path:
    """``ONEGRAPH_CACHE``, else ``$XDG_CACHE_HOME/onegraph``, else ``~/.cache/onegraph``."""
    if own := os.environ.get("ONEGRAPH_CACHE"):
        return Path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "onegraph"
    return Path.home() / ".cache" / "onegraph"


def compile_kernel(spec: KernelSpec, arch: str) -> bytes:
    """The cubin of `spec` for `arch`, from the cache or from NVRTC.

    A kernel outside the package may include headers (``.cuh``) of its own folder too.

    Raises:
        CompileError: with NVRTC's log.
        SignatureError: the source does not hold the declared kernel.
    """
    from onegraph.kernels.signature import require_signature

    source = require_signature(spec)
    return compile_source(source, spec.name, arch, fma=spec.fma, beside=_beside(spec))


def compile_group(spec: KernelSpec, members: int, arch: str) -> bytes:
    """The cubin of the kernel that does `members` launches of `spec` at once, as `compile_kernel`.

    Raises:
        ValueError: launches of `spec` can't be one (`launch_group.obstacle`), or not so many.
        CompileError, SignatureError: as `compile_kernel`.
    """
    from onegraph.kernels.launch_group import group_name, group_source
    from onegraph.kernels.signature import require_signature

    source = group_source(spec, require_signature(spec), members)
    name = group_name(spec, members)
    return compile_source(source, name, arch, fma=spec.fma, beside=_beside(spec))


def _beside(spec: KernelSpec) -> Path | None:
    """The folder of a kernel outside the package, which may hold headers of its own."""
    folder = spec.source.parent
    return None if folder.is_relative_to(INCLUDE) else folder


def compile_source(
    source: str, name: str, arch: str, *, fma: bool, beside: Path | None = None
) -> bytes:
    """The cubin of CUDA C++ `source` (see `compile_kernel`); headers may lie `beside` it too."""
    include = (INCLUDE,) if beside is None else (INCLUDE, beside)
    entry = cache_dir() / f"{name}-{arch}-{_key(source, name, arch, include, fma=fma)}.cubin"
    if (cached := _read(entry)) is not None:
        return cached
    cubin = _nvrtc(source, name, arch, include, fma=fma)
    content = _MAGIC + hashlib.sha256(cubin).digest() + cubin
    store(entry, content, "kernels are compiled anew in each run")
    return cubin


def _nvrtc(source: str, name: str, arch: str, include: tuple[Path, ...], *, fma: bool) -> bytes:
    from cuda.core import Program, ProgramOptions

    # cuda.core exports its exception under no public name.
    from cuda.core._utils.cuda_utils import CUDAError

    options = ProgramOptions(
        name=f"{name}.cu",
        arch=_TARGETS.get(arch, arch),
        std=_STANDARD,
        include_path=[str(folder) for folder in include],
        fma=fma,
    )
    try:
        return bytes(Program(source, "c++", options).compile("cubin").code)
    except CUDAError as error:
        raise CompileError(name, arch, str(error)) from error


# -------------------------------------------------------------------- the cache


@cache
def _nvrtc_version() -> tuple[int, int]:
    from cuda.bindings import nvrtc

    result, major, minor = nvrtc.nvrtcVersion()
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"nvrtcVersion answered {result.name}")
    return int(major), int(minor)


@cache
def _headers_digest(folder: Path) -> str:
    """Every header of the folder counts, included or not: there are few, and it can't be wrong."""
    return _digest_of(folder, "*.cuh")


@cache
def sources_digest() -> str:
    """Of every kernel's source and header in the package, and of the compiler's version."""
    return hashlib.sha256(
        f"{_digest_of(INCLUDE, '*.cu')} {_headers_digest(INCLUDE)} {_nvrtc_version()}".encode()
    ).hexdigest()


def _digest_of(folder: Path, pattern: str) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.rglob(pattern)):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _key(source: str, name: str, arch: str, include: tuple[Path, ...], *, fma: bool) -> str:
    headers = [_headers_digest(folder) for folder in include]
    parts = [source, name, _TARGETS.get(arch, arch), fma, _STANDARD, headers, _nvrtc_version()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _read(entry: Path) -> bytes | None:
    """The cubin in `entry`; ``None`` if it is absent, unreadable, cut short or damaged."""
    try:
        content = entry.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + 32
    payload = content[head:]
    if content[:head] != _MAGIC + hashlib.sha256(payload).digest():
        return None
    return payload


def store(entry: Path, content: bytes, without: str) -> None:
    """Put `content` under `entry` of the cache in one step, so that a reader never sees half of it.

    A folder that can't be written is warned of once for each `without`: what that means.
    """
    scratch = ""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=entry.parent, prefix=".tmp-")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(scratch).replace(entry)
    except OSError as error:
        if scratch:
            Path(scratch).unlink(missing_ok=True)
        if (entry.parent, without) not in _unwritable:
            _unwritable.add((entry.parent, without))
            warnings.warn(
                f"{without}: cache {entry.parent} can't be written"
                f" ({error}); set ONEGRAPH_CACHE to a writable folder",
                RuntimeWarning,
                stacklevel=2,
            )
