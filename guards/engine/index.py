"""The index: what each file declares and imports, from `ast`, kept by content.

A declaration is a plain tuple, so that `marshal` can keep thousands of them: reading 100,000 lines'
worth back takes a tenth of a second. Calls are not kept: they are looked at in hot files alone,
which are parsed anyhow.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import marshal
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypedDict

from onegraph.guards.engine.allows import find_allows
from onegraph.guards.engine.reading import ReadError, decode, parse

#: Of the layout below and of the Python that parsed it.
VERSION = (6, sys.version_info[:3])

#: One of these stands in any function that itself captures, or launches a kernel that it loaded.
#: Only the rules that look at cold code ask; the index leaves no file out.
CAPTURES = re.compile(
    r"cuda\.graph\(|\bgraph\(|begin_capture|capture_begin|BeginCapture|begin_building|CUDAGraph"
    r"|ScopedCapture|get_kernel|get_function|jax\.jit|\bpmap\(|RawKernel|\blaunch\("
)

#: What a match of `CAPTURES` holds. A text without any is told sooner by these.
_CAPTURE_WORDS = (
    "graph(",
    "begin_capture",
    "capture_begin",
    "BeginCapture",
    "begin_building",
    "CUDAGraph",
    "ScopedCapture",
    "get_kernel",
    "get_function",
    "jax.jit",
    "pmap(",
    "RawKernel",
    "launch(",
)


def may_capture(text: str) -> bool:
    """Whether `CAPTURES` matches somewhere in `text`."""
    return any(word in text for word in _CAPTURE_WORDS) and CAPTURES.search(text) is not None


class Declared(TypedDict):
    """What a file declares; ordinals count functions and classes in the order of the source.

    functions: ``(qualname, first line, last line, parent function, class, decorators)``, -1 for
        none.
    classes: ``(qualname, line, parent function, bases)``.
    imports: ``(line, column, local name, module, attribute, level, function)``.
    assigned: names that the module's own level assigns.
    """

    functions: list[tuple[str, int, int, int, int, tuple[str, ...]]]
    classes: list[tuple[str, int, int, tuple[str, ...]]]
    imports: list[tuple[int, int, str, str, str, int, int]]
    assigned: list[str]
    allows: list[tuple[int, int, int, tuple[str, ...], str]]
    captures: bool
    error: str


def blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statement lists inside `statement`, in the order of the source."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        block: list[Any] = getattr(statement, name, None) or []
        if name in ("handlers", "cases"):
            yield from (item.body for item in block)
        elif block:
            yield block


def declare(tree: ast.Module, text: str) -> Declared:
    """What `tree` declares, from its statements alone."""
    declared = Declared(
        functions=[],
        classes=[],
        imports=[],
        assigned=[],
        allows=find_allows(text),
        captures=may_capture(text),
        error="",
    )
    functions, classes = declared["functions"], declared["classes"]
    imports, assigned = declared["imports"], declared["assigned"]

    def walk(body: list[ast.stmt], prefix: str, function: int, owner: int) -> None:
        for statement in body:
            kind = type(statement)
            if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
                name = prefix + statement.name  # type: ignore[attr-defined]
                marks = tuple(map(_spelled, statement.decorator_list))  # type: ignore[attr-defined]
                end = statement.end_lineno or statement.lineno
                functions.append((name, statement.lineno, end, function, owner, marks))
                ordinal = len(functions) - 1
                walk(statement.body, f"{name}.", ordinal, -1)  # type: ignore[attr-defined]
            elif kind is ast.ClassDef:
                name = prefix + statement.name  # type: ignore[attr-defined]
                bases = tuple(map(_spelled, statement.bases))  # type: ignore[attr-defined]
                classes.append((name, statement.lineno, function, bases))
                ordinal = len(classes) - 1
                walk(statement.body, f"{name}.", function, ordinal)  # type: ignore[attr-defined]
            elif kind is ast.Import:
                for alias in statement.names:  # type: ignore[attr-defined]
                    local = alias.asname or alias.name.split(".")[0]
                    whole = "as" if alias.asname else ""
                    imports.append(
                        (alias.lineno, alias.col_offset, local, alias.name, whole, -1, function)
                    )
            elif kind is ast.ImportFrom:
                module, level = statement.module or "", statement.level  # type: ignore[attr-defined]
                for alias in statement.names:  # type: ignore[attr-defined]
                    imports.append(
                        (
                            statement.lineno, statement.col_offset, alias.asname or alias.name,
                            module, alias.name, level, function,
                        )
                    )  # fmt: skip
            elif kind in _NESTING:
                for inner in blocks(statement):
                    walk(inner, prefix, function, owner)
            elif function < 0 and owner < 0:
                targets: Iterable[ast.expr] = ()
                if isinstance(statement, ast.Assign):
                    targets = statement.targets
                elif isinstance(statement, ast.AnnAssign):
                    targets = (statement.target,)
                for target in targets:
                    assigned.extend(n.id for n in ast.walk(target) if isinstance(n, ast.Name))

    walk(tree.body, "", -1, -1)
    if "import_module" in text or "__import__" in text:
        imports.extend(_imports_by_call(tree))
    return declared


def _spelled(node: ast.expr) -> str:
    """A decorator or base as a dotted name, its arguments left out."""
    if isinstance(node, ast.Call):
        return _spelled(node.func)
    if isinstance(node, ast.Subscript):
        return _spelled(node.value)
    if isinstance(node, ast.Attribute):
        return f"{_spelled(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


_NESTING = frozenset(
    {
        ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar,
        ast.Match,
    }
)  # fmt: skip


def _imports_by_call(tree: ast.Module) -> Iterator[tuple[int, int, str, str, str, int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function, target = node.func, node.args[0].value
            name = function.attr if isinstance(function, ast.Attribute) else None
            name = function.id if isinstance(function, ast.Name) else name
            if name in ("import_module", "__import__") and isinstance(target, str):
                yield node.lineno, node.col_offset, "", target, "", -1, -1


def unreadable(problem: str) -> Declared:
    """The entry of a file that can't be read."""
    return Declared(
        functions=[], classes=[], imports=[], assigned=[], allows=[], captures=False, error=problem
    )


class Cache:
    """Declarations by the hash of the file's content, in one file for a tree.

    A cache that can't be read is an empty one, and one that can't be written is left out: neither
    changes a result.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._old: dict[bytes, Declared] = {}
        self._new: dict[bytes, Declared] = {}
        self.misses = 0
        if path is not None:
            with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
                stored: Any = marshal.loads(path.read_bytes())  # noqa: S302 - our own file
                if stored[0] == VERSION:
                    self._old = stored[1]

    def declared(self, data: bytes) -> Declared:
        """The declarations of a file with these bytes."""
        key = hashlib.blake2b(data, digest_size=16).digest()
        found = self._old.get(key) or self._new.get(key)
        if found is None:
            self.misses += 1
            try:
                text = decode(data).text
                found = declare(parse(text), text)
            except ReadError as error:
                found = unreadable(str(error))
        self._new[key] = found
        return found

    def save(self) -> None:
        """Keep what this run used, and nothing older."""
        if self.path is None or (not self.misses and len(self._old) == len(self._new)):
            return
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            (self.path.parent / ".gitignore").write_text("*\n")
            partial.write_bytes(marshal.dumps((VERSION, self._new)))
            partial.replace(self.path)
