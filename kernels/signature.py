"""Whether a kernel's ``.cu`` file takes what its declaration says.

The declaration is what both devices check arguments against; a ``.cu`` function that takes anything
else would read its arguments at the wrong places, on the GPU, without an error.
"""

from __future__ import annotations

import re

from onegraph.kernels.catalogue import KernelSpec

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)'
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
    found = _only_kernel(strip_comments(source))
    name, params = found[2], found[3]
    spelled = []
    for param in params.split(","):
        text = re.sub(r"\b__restrict__\b", " ", param)
        text = re.sub(r"\s*\*\s*", "* ", text)
        spelled.append(" ".join(text.split()))
    return name, spelled


def _only_kernel(code: str) -> re.Match[str]:
    found = list(_KERNEL.finditer(code))
    if len(found) != 1:
        raise SignatureError(
            f'{len(found)} kernels in one file; write one extern "C" __global__ void function'
        )
    return found[0]


def split_kernel(source: str) -> tuple[str, str, str, str]:
    """`source` cut at its one kernel.

    Returns:
        What stands before it, its launch bounds or nothing, its parameters as they are written, and
        what follows their parenthesis: first its body.

    Raises:
        SignatureError: `source` holds no ``extern "C" __global__ void`` function, or several.
    """
    # Blanks for comments keep every other character in its place.
    blanked = _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), source)
    found = _only_kernel(blanked)
    begin, end = found.span(3)
    return source[: found.start()], (found[1] or "").strip(), source[begin:end], source[end + 1 :]


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
