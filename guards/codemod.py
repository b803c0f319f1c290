"""``to-host-checkpoint``: move the callers of `to_host` and `to_vec`, and report the rest.

It renames what stands in code that is not hot. It does not touch hot code, where a copy is wrong
under any name, nor what it can't tell to be a call of the deprecated function: each of those is a
line of the report.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onegraph.guards.config import Config
from onegraph.guards.engine.analysis import Analysis
from onegraph.guards.engine.hotness import Hotness
from onegraph.guards.engine.project import Module
from onegraph.guards.engine.tree import read_tree

if TYPE_CHECKING:
    import libcst as cst

OLD, VECTOR, NEW = "to_host", "to_vec", "to_host_checkpoint"


@dataclass
class CodemodResult:
    """What came of the codemod.

    Attributes:
        files: new bytes by path.
        changed: ``(path, line, what)`` of each rename.
        left: ``(path, line, why)`` of what it would not touch.
    """

    files: dict[Path, bytes] = field(default_factory=dict)
    changed: list[tuple[str, int, str]] = field(default_factory=list)
    left: list[tuple[str, int, str]] = field(default_factory=list)
    diff: str = ""

    def report(self) -> str:
        """For the person who ran it."""
        lines = [f"{path}:{line}: {what}" for path, line, what in sorted(self.changed)]
        lines += [f"{path}:{line}: left: {why}" for path, line, why in sorted(self.left)]
        lines.append(
            f"{len(self.changed)} renamed in {len(self.files)} files, {len(self.left)} left"
        )
        return "\n".join(lines)


def to_host_checkpoint(paths: Sequence[Path], config: Config) -> CodemodResult:
    """Rename the callers in every file below `paths`; writes nothing."""
    tree = read_tree(paths, config)
    analysis = Analysis(tree.project, config)
    hotness = Hotness(analysis)
    hotness.spread()
    result = CodemodResult()
    for path, problem in tree.problems:
        result.left.append((path, 1, problem))
    for module, text in tree.texts.items():
        if OLD not in text.text and VECTOR not in text.text:
            continue
        nodes = [f.node for f in hotness.hot if f.module is module]
        hot = [
            (node.lineno, node.end_lineno or node.lineno)
            for node in nodes
            if not isinstance(node, ast.Module)
        ]
        new = _rewrite(module, hot, result)
        if new != text.text:
            result.files[module.path] = text.encoded(new)
            result.diff += "".join(
                difflib.unified_diff(
                    text.text.splitlines(keepends=True),
                    new.splitlines(keepends=True),
                    module.shown,
                    module.shown,
                )
            )
    return result


def _rewrite(module: Module, hot: Sequence[tuple[int, int]], result: CodemodResult) -> str:
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider

    # A name that was imported is renamed with its import; `to_vec` has no such form.
    functions = {
        local: (f"{module.import_target(source, level)}", attribute)
        for _, _, local, source, attribute, level, _ in module.declared["imports"]
        if level >= 0 and attribute == OLD
    }
    wrapper = MetadataWrapper(cst.parse_module(module.text))
    positions = wrapper.resolve(PositionProvider)
    before = len(result.changed)

    class Rename(cst.CSTTransformer):
        def __init__(self) -> None:
            super().__init__()
            self.kept: set[str] = set()
            self.called: set[cst.CSTNode] = set()

        def line(self, node: cst.CSTNode) -> int:
            return positions[node].start.line

        def left(self, node: cst.CSTNode, why: str) -> None:
            result.left.append((module.shown, self.line(node), why))

        def visit_Call(self, node: cst.Call) -> None:
            self.called.add(node.func)

        def visit_Attribute(self, node: cst.Attribute) -> None:
            if node.attr.value in (OLD, VECTOR) and node not in self.called:
                self.left(node, f"{node.attr.value} is passed on and not called")

        def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
            if node.name.value in (OLD, VECTOR):
                self.left(node, f"this defines {node.name.value}")

        def visit_SimpleString(self, node: cst.SimpleString) -> None:
            if node.evaluated_value in (OLD, VECTOR):
                self.left(node, f"{node.evaluated_value} is named in a string")

        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
            name = _called_name(original_node.func)
            direct = isinstance(original_node.func, cst.Name)
            if direct and name not in functions:
                return updated_node
            if not direct and name not in (OLD, VECTOR):
                return updated_node
            line = self.line(original_node)
            if any(first <= line <= last for first, last in hot):
                self.left(original_node, f"{name}() stands in hot code; take it out of the step")
                self.kept.add(name)
                return updated_node
            if not direct and original_node.args:
                self.left(original_node, f"{name}() is given arguments, so it is another function")
                return updated_node
            result.changed.append((module.shown, line, f"{name}() -> {NEW}()"))
            if direct:
                return updated_node.with_changes(func=cst.Name(NEW))
            function = cst.ensure_type(updated_node.func, cst.Attribute)
            renamed = updated_node.with_changes(func=function.with_changes(attr=cst.Name(NEW)))
            if name == OLD:
                return renamed
            raveled = cst.Call(cst.Attribute(renamed, cst.Name("ravel")))
            return cst.Call(cst.Attribute(raveled, cst.Name("tolist")))

        def leave_ImportFrom(
            self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
        ) -> cst.ImportFrom:
            if isinstance(updated_node.names, cst.ImportStar):
                return updated_node
            return updated_node.with_changes(names=self._names(updated_node.names))

        def _names(self, names: Sequence[cst.ImportAlias]) -> list[cst.ImportAlias]:
            """The import with the new name, beside the old one where that is still called."""
            found: list[cst.ImportAlias] = []
            known = {n.evaluated_name for n in names}
            for alias in names:
                local = alias.evaluated_alias or alias.evaluated_name
                if alias.evaluated_name != OLD or local not in still_needed.renamed:
                    found.append(alias)
                    continue
                if local in still_needed.kept:
                    found.append(alias.with_changes(comma=cst.Comma(whitespace_after=space)))
                if NEW not in known:
                    found.append(cst.ImportAlias(cst.Name(NEW), comma=alias.comma))
            if found and isinstance(found[-1].comma, cst.Comma) and not _trailing(names):
                found[-1] = found[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return found

    space = cst.SimpleWhitespace(" ")
    still_needed = _uses(wrapper.module, functions, hot, positions)
    new = wrapper.module.visit(Rename())
    return new.code if len(result.changed) > before else module.text


def _trailing(names: Sequence[cst.ImportAlias]) -> bool:
    import libcst as cst

    return isinstance(names[-1].comma, cst.Comma)


def _called_name(function: cst.BaseExpression) -> str:
    import libcst as cst

    if isinstance(function, cst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, cst.Name) else ""


@dataclass
class _Uses:
    renamed: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)


def _uses(
    tree: cst.Module,
    functions: dict[str, tuple[str, str]],
    hot: Sequence[tuple[int, int]],
    positions: object,
) -> _Uses:
    """Which imported names will be renamed somewhere, and which are also used as they are."""
    import libcst as cst

    uses = _Uses()
    places: dict[cst.CSTNode, object] = dict(positions)  # type: ignore[call-overload]

    class Look(cst.CSTVisitor):
        def __init__(self) -> None:
            super().__init__()
            self.called: set[cst.CSTNode] = set()

        def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
            return False

        def visit_Attribute(self, node: cst.Attribute) -> bool:
            node.value.visit(self)
            return False

        def visit_Call(self, node: cst.Call) -> None:
            if isinstance(node.func, cst.Name) and node.func.value in functions:
                line = places[node].start.line  # type: ignore[attr-defined]
                if not any(first <= line <= last for first, last in hot):
                    uses.renamed.add(node.func.value)
                    self.called.add(node.func)

        def visit_Name(self, node: cst.Name) -> None:
            if node.value in functions and node not in self.called:
                uses.kept.add(node.value)

    tree.visit(Look())
    return uses
