"""Find the files of a tree and read them, whatever their encoding, line ends and age of syntax."""

from __future__ import annotations

import ast
import fnmatch
import io
import os
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from onegraph.guards.engine.newer_syntax import UnreadableError, parse_newer

#: Folders that hold no source of the project.
SKIPPED = frozenset(
    {
        ".git", ".hg", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".svn", ".tox",
        ".types", ".venv", "__pycache__", "build", "dist", "node_modules", "venv",
    }
)  # fmt: skip

_BRACKETS = re.compile(r"[()\[\]{}]")
_DEEP, _LONG = 100, 100_000

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


@dataclass(frozen=True)
class Text:
    """A file as text.

    Attributes:
        encoding: as it was declared, for writing it back.
        bom: whether it began with a UTF-8 byte order mark.
    """

    text: str
    encoding: str
    bom: bool = False

    def encoded(self, text: str) -> bytes:
        """`text` as the file's bytes."""
        return (b"\xef\xbb\xbf" if self.bom else b"") + text.encode(self.encoding)


class ReadError(ValueError):
    """A file that can't be read; the message says why."""


def lines_of(text: str) -> list[str]:
    """Lines as Python counts them, with their ends; form feeds do not end a line."""
    found = _LINE.findall(text)
    return found[:-1] if found and not found[-1] else found


def python_files(
    paths: Iterable[Path], root: Path, exclude: Sequence[str]
) -> Iterator[tuple[Path, str]]:
    """Each Python file below `paths` once, in a stable order, with a problem or an empty string.

    A symlink that leads back to a folder above it is followed once.
    """
    seen: set[tuple[int, int]] = set()
    for path in paths:
        if path.is_dir():
            yield from _below(path, root, exclude, seen)
        elif path.exists():
            if _new(path, seen):
                yield path, ""
        else:
            yield path, "no such file or folder"


def _new(path: Path, seen: set[tuple[int, int]]) -> bool:
    status = path.stat()
    key = status.st_dev, status.st_ino
    if key in seen:
        return False
    seen.add(key)
    return True


def _below(
    folder: Path, root: Path, exclude: Sequence[str], seen: set[tuple[int, int]]
) -> Iterator[tuple[Path, str]]:
    if not _new(folder, seen) or (folder / "pyvenv.cfg").exists():
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield folder, f"can't be read: {error.strerror}"
        return
    for entry in entries:
        path = folder / entry.name
        if entry.name in SKIPPED or (exclude and matches(relative(path, root), exclude)):
            continue
        try:
            if entry.is_dir():
                yield from _below(path, root, exclude, seen)
            elif entry.name.endswith((".py", ".pyw")) and entry.is_file() and _new(path, seen):
                yield path, ""
            elif entry.is_symlink() and entry.name.endswith(".py") and not path.exists():
                yield path, "a symlink to a file that is not there"
        except OSError as error:  # a symlink that leads to itself
            if entry.name.endswith(".py"):
                yield path, f"can't be read: {error.strerror}"


def relative(path: Path, root: Path) -> str:
    """`path` from `root` if it lies below it, with forward slashes."""
    for place in (Path.cwd() / path, os.path.realpath(path)):
        try:
            return Path(place).relative_to(root).as_posix()
        except ValueError:
            continue
    return path.as_posix()


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether `path` or a folder above it matches a glob."""
    parts = path.split("/")
    prefixes = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    return any(fnmatch.fnmatchcase(prefix, pattern) for pattern in patterns for prefix in prefixes)


def decode(data: bytes) -> Text:
    """The text of a Python file by its own declaration of its encoding.

    Raises:
        ReadError: the declaration is unknown, or the bytes are not of that encoding.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        try:
            data.decode()
        except UnicodeDecodeError as wrong:
            raise ReadError(f"byte {wrong.start} is not utf-8; declare its encoding") from error
        raise ReadError(str(error)) from error
    bom = encoding == "utf-8-sig"
    try:
        return Text(data.decode(encoding), "utf-8" if bom else encoding, bom)
    except UnicodeDecodeError as error:
        raise ReadError(f"byte {error.start} is not {encoding}; declare its encoding") from error


def _is_deep(text: str) -> bool:
    """Whether it is nested so deeply that libcst's parser, which is native, could overflow."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    return deepest > _DEEP or any(len(line) > _LONG for line in text.splitlines())


def parse(text: str) -> ast.Module:
    """The tree of `text`; positions are the file's also where its syntax is newer than Python's.

    Raises:
        ReadError: no parser can read it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # another's invalid escape is not ours to report
            return ast.parse(text)
    except SyntaxError as error:
        if _is_deep(text):
            raise ReadError(f"line {error.lineno}: {error.msg}") from error
        try:
            return parse_newer(text)
        except UnreadableError:
            raise ReadError(f"line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes; nested too deep
        raise ReadError(str(error) or "nested too deeply for the parser") from error
