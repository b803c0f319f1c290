"""Take away what an allow comment allows, and report the comments that are wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from onegraph.guards.engine.allows import RUNTIME, Allow
from onegraph.guards.engine.project import Module
from onegraph.guards.engine.reading import lines_of
from onegraph.guards.findings import Edit, Finding
from onegraph.guards.rules import RULES

#: ``(path, line of the comment, code)`` of each allow that took a finding away.
Used = set[tuple[str, int, str]]


def is_allowed(finding: Finding, module: Module, used: Used) -> bool:
    """Whether a comment with a reason on the finding's statement allows it; notes its use."""
    allows = module.declared["allows"]
    if not allows or (finding.code.startswith("GRD9") and finding.code != "GRD905"):
        return False
    first, last = finding.statement
    if finding.code == "GRD602":
        first, last = _import_lines(module, finding.line)
    found = False
    for row, _, _, codes, reason in allows:
        if first <= row <= last and finding.code in codes:
            used.add((finding.path, row, finding.code))
            found = found or bool(reason)
    return found


def _import_lines(module: Module, line: int) -> tuple[int, int]:
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)) and node.lineno <= line:
            end = node.end_lineno or node.lineno
            if line <= end:
                return node.lineno, end
    return line, line


def allow_findings(module: Module, codes: frozenset[str], used: Used) -> Iterator[Finding]:
    """GRD901, GRD902 and GRD903 of a file."""
    for allow in module.declared["allows"]:
        row, _, _, given, reason = allow
        unknown = [c for c in given if c not in RULES and c != RUNTIME]
        if "GRD903" in codes:
            for code in unknown or ([] if given else [""]):
                yield _at(module, allow, "GRD903", f"there is no rule {code!r}")
        if "GRD902" in codes and not reason:
            yield _at(
                module,
                allow,
                "GRD902",
                f"allow[{', '.join(given)}] has no reason, so it allows nothing; write"
                f" # guards: allow[{', '.join(given)}] -- why",
            )
        if "GRD901" in codes and reason and RUNTIME not in given:
            unused = [
                c for c in given if c in codes and (module.shown, row, c) not in used
            ]  # fmt: skip
            if unused:
                yield _at(
                    module,
                    allow,
                    "GRD901",
                    f"allow[{', '.join(unused)}] allows nothing here",
                    _without(module, allow, unused),
                )


def _at(
    module: Module, allow: Allow, code: str, message: str, edits: tuple[Edit, ...] = ()
) -> Finding:
    row, start, end, _, _ = allow
    return Finding(
        code,
        message,
        module.shown,
        row,
        start + 1,
        row,
        end + 1,
        edits=edits,
        safe=True,
        statement=(row, row),
    )


def _without(module: Module, allow: Allow, unused: list[str]) -> tuple[Edit, ...]:
    row, start, end, codes, reason = allow
    line = lines_of(module.text)[row - 1]

    def column(characters: int) -> int:
        return len(line[:characters].encode())

    left = [c for c in codes if c not in unused]
    if left:
        text = f"# guards: allow[{', '.join(left)}] -- {reason}"
        return (Edit((row, column(start)), (row, column(end)), text),)
    if line[end:].lstrip().startswith("#"):  # another comment follows it
        end += len(line[end:]) - len(line[end:].lstrip())
        return (Edit((row, column(start)), (row, column(end)), ""),)
    before = line[:start].rstrip()
    if not before:
        return (Edit((row, 0), (row + 1, 0), ""),)
    end = len(line.rstrip("\r\n"))
    return (Edit((row, column(len(before))), (row, column(end)), ""),)
