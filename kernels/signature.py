"""Whether a kernel's ``.cu`` file takes what its declaration says.

The declaration is what both devices check arguments against; a ``.cu`` function that takes anything
else would read its arguments at the wrong places, on the GPU, without an error.
"""

from __future__ import annotations

import re

from onegraph.kernels.catalogue import KernelSpec

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)'
)


class SignatureError(ValueError):
    """A ``.cu`` file does not hold the kernel that its twin declares."""


def strip_comments(source: str) -> str:
    """CUDA C++ `source` with a blank in the place of each comment."""
    return _COMMENT.sub(" ", source)


def signature(source: str) -> tuple[str, list[str]]:
    """The name and the parameters of the one kernel in `source`, spelled as `c_declaration` is.

    Raises:
        SignatureError: `source` holds no ``extern "C" __global__ void`` function, or several.
    """
    found = _KERNEL.findall(strip_comments(source))
    if len(found) != 1:
        raise SignatureError(
            f'{len(found)} kernels in one file; write one extern "C" __global__ void function'
        )
    name, params = found[0]
    spelled = []
    for param in params.split(","):
        text = re.sub(r"\b__restrict__\b", " ", param)
        text = re.sub(r"\s*\*\s*", "* ", text)
        spelled.append(" ".join(text.split()))
    return name, spelled


def require_signature(spec: KernelSpec) -> str:
    """The text of ``spec.source``, which holds the kernel that `spec` declares.

    Raises:
        SignatureError: the file is absent, or its function is another; with both spellings.
    """
    try:
        source = spec.source.read_text(encoding="utf-8")
    except OSError as error:
        raise SignatureError(
            f"kernel {spec.name} has no CUDA source ({error}); write {spec.source.name} beside its"
            " twin, or run on the host device"
        ) from error
    declared = spec.name, [param.c_declaration for param in spec.params]
    try:
        written = signature(source)
    except SignatureError as error:
        raise SignatureError(f"{spec.source}: {error}") from None
    if written != declared:
        raise SignatureError(
            f"{spec.source} holds {_spelled(written)}, and its twin declares {_spelled(declared)};"
            " make them agree"
        )
    return source


def _spelled(kernel: tuple[str, list[str]]) -> str:
    return f"{kernel[0]}({', '.join(kernel[1])})"
