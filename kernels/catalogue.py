"""The catalogue: each kernel's parameters and launch shape, declared once and read by both devices.

A kernel is a pair of files with one name: ``x.cu`` holds one ``extern "C" __global__`` function
``x``, and ``x.py`` holds its NumPy twin ``x``, decorated with :func:`kernel`. The decorator's
declaration is what `HostDevice` and `CudaDevice` check arguments against, and a test holds the
``.cu`` signature to it.

A kernel need not stand in this package: a pair anywhere is a kernel from the import of its ``.py``
file on, and `load_kernels` imports the pairs of a folder (`docs/writing-a-stage.md`).
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Literal

import numpy as np

Access = Literal["in", "out", "inout", "scalar"]
Per = Literal["thread", "warp", "block", "cluster", "one"]

#: Elements of an array that a launch touches, from its scalar arguments.
Elements = Callable[[Mapping[str, int | float]], int]

#: The parameter by which a kernel gets the handle of the condition that it sets.
CONDITION = "condition"

#: C spelling of each dtype, which is what a ``.cu`` signature must say.
C_TYPES: Mapping[str, str] = {
    "f32": "float",
    "f64": "double",
    "i32": "int",
    "i64": "long long",
    "u32": "unsigned int",
    "u64": "unsigned long long",
    "u8": "unsigned char",
}

DTYPES: Mapping[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "u8": np.dtype(np.uint8),
}


class KernelArgumentError(TypeError):
    """An argument does not fit the kernel's declared signature."""


@dataclass(frozen=True)
class Param:
    """One kernel parameter: a pointer to `dtype` elements, or a scalar of `dtype`."""

    name: str
    dtype: str
    access: Access

    @property
    def is_pointer(self) -> bool:
        return self.access != "scalar"

    @property
    def c_declaration(self) -> str:
        ctype = C_TYPES[self.dtype]
        if not self.is_pointer:
            return f"{ctype} {self.name}"
        return f"const {ctype}* {self.name}" if self.access == "in" else f"{ctype}* {self.name}"


@dataclass(frozen=True)
class KernelSpec:
    """What a kernel takes and how it is laid out over the device.

    Attributes:
        name: the function's name in both files of the pair.
        params: in the order of the C signature.
        block: threads per block.
        per: what one unit of work occupies: a thread, a warp, a whole block, a cluster of blocks,
            or ``one`` (a single block does all of it).
        work: names of scalar parameters whose product is the number of units.
        fma: whether the compiler may contract a multiply and an add. Off where the host computes
            the same numbers and bits must match.
        source: the ``.cu`` file.
        twin: the NumPy function, called with arrays (flat, writable where declared) and scalars.
        cluster: the scalar parameter that says how many blocks form a cluster, whose shared memory
            they reach into (compute capability 9.0 and up); empty: none do.
        shared: the scalar parameter that says how many bytes of dynamic shared memory a block has;
            empty: none.
        resident: all blocks run at once, because they wait for one another. A device launches no
            more of them than it holds.
        per_place: units that one place takes in turn, and so has on their way at once.
        early: the kernel may start while the one before it in the stream runs, because each of its
            blocks waits by itself where it needs that one's results (``wait_for_grid``).
        sparse_reads, sparse_writes: of the arrays that a launch touches in part (rows of a ring,
            paths of a tree), how many elements its result needs, by parameter; it touches the
            others whole. Nothing runs by it: it is what a step's least traffic is counted from.
    """

    name: str
    params: tuple[Param, ...]
    block: int
    per: Per
    work: tuple[str, ...]
    fma: bool
    source: Path
    twin: Callable[..., None]
    cluster: str = ""
    shared: str = ""
    resident: bool = False
    early: bool = False
    per_place: int = 1
    sparse_reads: Mapping[str, Elements] = field(default_factory=dict, compare=False)
    sparse_writes: Mapping[str, Elements] = field(default_factory=dict, compare=False)

    def blocks(self, scalars: Mapping[str, int | float]) -> int:
        """Blocks that give every `per_place` units of work a place, before any cap (at least 1)."""
        if self.per == "one":
            return 1
        units = 1
        for name in self.work:
            units *= int(scalars[name])
        if self.per == "cluster":
            return max(1, units) * self._whole(scalars)
        places = {"thread": self.block, "warp": self.block // 32, "block": 1}[self.per]
        return max(1, -(-units // (places * self.per_place)))

    def _whole(self, scalars: Mapping[str, int | float]) -> int:
        """Blocks that can only be launched together; a cluster of none is one block."""
        return max(1, int(scalars[self.cluster])) if self.cluster else 1

    def capped(self, blocks: int, most: int, scalars: Mapping[str, int | float]) -> int:
        """`blocks`, or as many whole clusters of them as `most` has room for, and one at least."""
        whole = self._whole(scalars)
        return max(whole, min(blocks, most) // whole * whole)


def _parse(name: str, declaration: str) -> Param:
    words = declaration.split()
    if len(words) == 1 and words[0] in DTYPES:
        return Param(name, words[0], "scalar")
    if len(words) == 2 and words[0] in ("in", "out", "inout") and words[1] in DTYPES:
        return Param(name, words[1], words[0])  # type: ignore[arg-type]
    raise ValueError(
        f"parameter {name!r}: {declaration!r} is not 'in|out|inout DTYPE' or 'DTYPE' with DTYPE"
        f" one of {', '.join(DTYPES)}"
    )


_registry: dict[str, KernelSpec] = {}


def _register(spec: KernelSpec) -> None:
    known = _registry.get(spec.name)
    if known is not None and known.source != spec.source:
        raise ValueError(
            f"kernel {spec.name!r} is declared in {known.source} and in {spec.source}; kernels are"
            " found by name, so give one of them another"
        )
    _registry[spec.name] = spec


def _elements(
    kernel: str,
    declared: Mapping[str, int | str | Elements],
    params: tuple[Param, ...],
    access: str,
) -> dict[str, Elements]:
    """The counts of ``sparse_reads`` or ``sparse_writes``, each as a function.

    Raises:
        ValueError: one of an array that the kernel does not touch so, or of unknown scalars.
    """
    found: dict[str, Elements] = {}
    scalars = {p.name for p in params if not p.is_pointer}
    arrays = {p.name for p in params if p.access in (access, "inout")}
    for name, count in declared.items():
        if name not in arrays:
            raise ValueError(
                f"kernel {kernel!r}: a sparse count of {name!r}, which is no {access} array of it;"
                f" it has {', '.join(sorted(arrays)) or 'none'}"
            )
        if isinstance(count, str):
            if unknown := [w for w in count.split("*") if w not in scalars]:
                raise ValueError(
                    f"kernel {kernel!r}: the sparse count of {name!r} names {unknown[0]!r}, which"
                    " is no scalar parameter"
                )
            found[name] = partial(_product, tuple(count.split("*")))
        else:
            found[name] = partial(_constant, count) if isinstance(count, int) else count
    return found


def _product(names: tuple[str, ...], scalars: Mapping[str, int | float]) -> int:
    return math.prod(int(scalars[name]) for name in names)


def _constant(count: int, scalars: Mapping[str, int | float]) -> int:
    del scalars
    return count


def kernel(
    *,
    per: Per = "thread",
    work: str = "",
    block: int = 256,
    fma: bool = False,
    cluster_of: str = "",
    shared_of: str = "",
    resident: bool = False,
    early: bool = False,
    per_place: int = 1,
    sparse_reads: Mapping[str, int | str | Elements] | None = None,
    sparse_writes: Mapping[str, int | str | Elements] | None = None,
    **params: str,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare the decorated NumPy twin, and the ``.cu`` file beside it, as one kernel.

    Args:
        per: what a unit of work occupies (see `KernelSpec`).
        work: the scalar parameters whose product counts the units, as in ``"rows*cols"``.
        block: threads per block; a multiple of 32, at most 1024.
        fma: let the compiler contract multiply and add.
        cluster_of: the scalar parameter that is the number of blocks of a cluster;
            ``per="cluster"`` needs it.
        shared_of: the scalar parameter that is the bytes of dynamic shared memory of a block.
        resident: the kernel's blocks wait for one another.
        early: the kernel waits by itself for the one before it.
        per_place: units that one thread, warp or block takes.
        sparse_reads: elements of the arrays that it reads in part (see `KernelSpec`): a product of
            scalar parameters, as in ``"n*width"``, a number (0: what it held before is of no
            account), or a function of the scalar arguments.
        sparse_writes: the same of the arrays that it writes in part.
        params: in C order, ``name="in f32"``, ``name="inout i64"``, ``name="i32"`` (a scalar).
    """

    def declare(twin: Callable[..., None]) -> Callable[..., None]:
        name = twin.__name__
        parsed = tuple(_parse(p, d) for p, d in params.items())
        scalars = {p.name for p in parsed if not p.is_pointer}
        units = tuple(w for w in work.split("*") if w)
        if missing := [w for w in units if w not in scalars]:
            raise ValueError(f"kernel {name!r}: work {missing} is no scalar parameter")
        if per != "one" and not units:
            raise ValueError(f"kernel {name!r}: per={per!r} needs work=")
        if per_place < 1 or (per_place > 1 and per in ("cluster", "one")):
            raise ValueError(
                f"kernel {name!r}: per_place={per_place}; a thread, warp or block takes one unit or"
                " more, clusters and per='one' know no other number"
            )
        if (per == "cluster") != bool(cluster_of):
            raise ValueError(f"kernel {name!r}: per='cluster' and cluster_of= go together")
        for use, of in (("cluster_of", cluster_of), ("shared_of", shared_of)):
            if of and of not in scalars:
                raise ValueError(f"kernel {name!r}: {use}={of!r} is no scalar parameter")
        source = Path(twin.__code__.co_filename).absolute().with_suffix(".cu")
        _register(
            KernelSpec(
                name, parsed, block, per, units, fma, source, twin, cluster_of, shared_of,
                resident, early, per_place,
                _elements(name, sparse_reads or {}, parsed, "in"),
                _elements(name, sparse_writes or {}, parsed, "out"),
            )
        )  # fmt: skip
        return twin

    return declare


class KernelFolderError(ValueError):
    """A folder whose kernels can't be loaded; the message names the file and the remedy."""


def load_kernels(folder: Path | str) -> tuple[KernelSpec, ...]:
    """Declare the kernels of a folder, wherever it is: each ``x.cu`` with its ``x.py`` beside it.

    For kernels outside any package that can be imported. A twin can't import its neighbours; other
    files of the folder are left alone. To load a folder again does no harm.

    Raises:
        KernelFolderError: no such folder, no ``.cu`` file in it, or one without a twin that
            declares it.
        ValueError: a kernel of that name is declared elsewhere.
        Exception: whatever a twin raises as it is imported.
    """
    folder = Path(folder).absolute()
    sources = sorted(folder.glob("*.cu"))
    if not sources:
        what = "holds no .cu file" if folder.is_dir() else "is no folder"
        raise KernelFolderError(f"{folder} {what}; name the folder in which your kernels lie")
    for source in sources:
        twin = source.with_suffix(".py")
        if not twin.is_file():
            raise KernelFolderError(
                f"{source} has no twin; write {twin.name} beside it, which declares the kernel"
            )
        _import_file(twin)
        if source.stem not in _registry or _registry[source.stem].source != source:
            raise KernelFolderError(
                f"{twin} declares no kernel {source.stem!r}; the decorated function, the .py and"
                " the .cu file have one name"
            )
    return tuple(_registry[source.stem] for source in sources)


def _import_file(path: Path) -> None:
    # Under its path: no name that can be imported is taken, and two folders can't collide.
    name = str(path)
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


@cache
def catalogue() -> Mapping[str, KernelSpec]:
    """Every kernel of the package by name, and yours imported so far; imports each twin once."""
    package = importlib.import_module("onegraph.kernels")
    for info in pkgutil.walk_packages(package.__path__, "onegraph.kernels."):
        if ".device" not in info.name:
            importlib.import_module(info.name)
    return dict(sorted(_registry.items()))


def find(name: str) -> KernelSpec:
    """The kernel called `name`; ``KeyError`` with the nearest names when there is none."""
    if (spec := _registry.get(name)) is not None:
        return spec
    known = catalogue()
    if name not in known:
        raise KeyError(f"no kernel {name!r}; the catalogue has {', '.join(known)}")
    return known[name]
