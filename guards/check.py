"""One run: index the tree, spread hotness, ask the rules, take away what is allowed."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from onegraph.guards.allowing import allow_findings, is_allowed
from onegraph.guards.baseline import load_baseline
from onegraph.guards.config import CONFIDENCES, Config
from onegraph.guards.engine.analysis import Analysis
from onegraph.guards.engine.flow import Event
from onegraph.guards.engine.hotness import Hotness
from onegraph.guards.engine.project import Function, Module
from onegraph.guards.engine.reading import lines_of, matches
from onegraph.guards.engine.tree import Tree, read_tree
from onegraph.guards.findings import Finding, Hit, Step
from onegraph.guards.rules import RULES, expand, selected
from onegraph.guards.rules.rule import Context, Rule

#: Python frames that following a value may take: some for each of its functions and expressions.
RECURSION = 6_000


@dataclass(frozen=True)
class Report:
    """What a run found.

    Attributes:
        findings: those to show, in the order of the source.
        allowed: how many an allow comment took away.
        baselined: how many the baseline took away.
        hot: how many functions are hot.
        unmatched: globs of the config's `hot` that name no function.
    """

    findings: tuple[Finding, ...]
    allowed: int
    baselined: int
    files: int
    hot: int
    tree: Tree
    unmatched: tuple[str, ...] = ()


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Room for `RECURSION` frames, and the caller's own limit again afterwards."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@_deep_recursion()
def check(
    paths: Sequence[Path],
    config: Config,
    *,
    overlay: Mapping[Path, bytes] | None = None,
    today: date | None = None,
    use_baseline: bool = True,
) -> Report:
    """Check every Python file below `paths`; the rest of the project is followed, not reported.

    Args:
        paths: files and folders that are reported on.
        config: the project's.
        overlay: bytes to take in the place of a file's own.
        today: the date against which baseline entries expire.
        use_baseline: whether the config's baseline takes findings away.

    Raises:
        UnknownCodeError, BaselineError: the config names what there is not.
    """
    codes = selected(config.select, config.extend_select, config.ignore)
    everything = [*paths]
    if (config.root / "pyproject.toml").is_file():
        everything.append(config.root)
    tree = read_tree(everything, config, overlay=overlay or {})
    wanted = _Within(paths)
    analysis = Analysis(tree.project, config)
    hotness = Hotness(analysis)
    hotness.spread()

    raw = [f for f in _findings(analysis, hotness, codes) if wanted(_path(tree, f))]
    raw += [
        _at(path, 1, "GRD900", problem)
        for path, problem in tree.problems
        if wanted(tree.paths[path])
    ]
    raw += [
        _at(f.module.shown, f.line, "GRD900", f"{f.qualname} is nested too deeply to be followed")
        for f in analysis.too_deep
    ]
    raw = [f for f in raw if not _ignored(f, config)]
    lowest = CONFIDENCES.index(config.min_confidence)
    used: set[tuple[str, int, str]] = set()
    modules = {m.shown: m for m in tree.project.modules.values()}
    kept: list[Finding] = []
    allowed = 0
    for finding in raw:
        module = modules.get(finding.path)
        if module is not None and is_allowed(finding, module, used):
            allowed += 1
        elif CONFIDENCES.index(finding.confidence) <= lowest:
            kept.append(finding)
    for module in modules.values():
        if wanted(module.path):
            kept += [f for f in allow_findings(module, codes, used) if not _ignored(f, config)]
    kept = _fingerprinted(kept, modules)
    baselined = 0
    if use_baseline and config.baseline is not None:
        baseline = load_baseline(config.baseline)
        kept, baselined = baseline.apply(kept, config.root, today or date.today(), codes)  # noqa: DTZ011
    return Report(
        tuple(sorted(set(kept), key=lambda f: f.order)),
        allowed,
        baselined,
        len(modules),
        len(hotness.hot),
        tree,
        hotness.unmatched,
    )


class _Within:
    """Whether a path is one of `paths` or below one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [Path(os.path.realpath(p)) for p in paths]

    def __call__(self, path: Path) -> bool:
        path = Path(os.path.realpath(path))  # unlike resolve(), it takes links that go round
        return any(path == p or p in path.parents for p in self._paths)


def _path(tree: Tree, finding: Finding) -> Path:
    return tree.paths[finding.path]


def _at(path: str, line: int, code: str, message: str) -> Finding:
    return Finding(code, message, path, line, 1, line, 1, statement=(line, line))


def _ignored(finding: Finding, config: Config) -> bool:
    return any(
        finding.code in expand(codes)
        for glob, codes in config.per_file_ignores.items()
        if matches(finding.path, [glob])
    )


# -------------------------------------------------------------------- asking the rules


def _findings(analysis: Analysis, hotness: Hotness, codes: frozenset[str]) -> Iterator[Finding]:
    rules = [RULES[code] for code in sorted(codes)]
    lookers: dict[Context, list[Rule]] = {
        context: [r for r in rules if r.look is not None and context in r.contexts]
        for context in ("hot", "captured", "cold", "other")
    }
    whole = [r for r in rules if r.look_all is not None]
    events: list[Event] = []
    for function in _looked_at(analysis, hotness):
        found = list(analysis.flow(function).events)
        events += found if whole else ()
        yield from _in_function(function, found, hotness, lookers)
    for rule in whole:
        assert rule.look_all is not None
        for event, hit in rule.look_all(events):
            yield _finding(rule.code, event, hit, ())
    for rule in rules:
        if rule.look_imports is not None:
            for module in analysis.project.modules.values():
                for line, column, hit in rule.look_imports(module, analysis.config):
                    yield replace(
                        _at(module.shown, line, rule.code, hit.message), column=column + 1
                    )


def _looked_at(analysis: Analysis, hotness: Hotness) -> Iterable[Function]:
    """Hot and captured functions, those declared cold, and those that capture."""
    found: dict[Function, None] = dict.fromkeys(hotness.hot)
    found.update(dict.fromkeys(hotness.captured))
    for module in analysis.project.modules.values():
        found.update(dict.fromkeys(hotness.capturing(module)))
        if "to_host" in module.text or "to_vec" in module.text:
            found.update(dict.fromkeys(filter(hotness.is_cold, module.functions)))
    return found


def _in_function(
    function: Function,
    events: Sequence[Event],
    hotness: Hotness,
    lookers: Mapping[Context, Sequence[Rule]],
) -> Iterator[Finding]:
    hot = function in hotness.hot
    only_loops = function in hotness.loops
    inside = function in hotness.captured
    cold = hotness.is_cold(function)
    for event in events:
        contexts: list[Context] = []
        if event.guard in ("once", "error") and not cold:
            continue  # it does not run each step
        if event.captured or inside:
            contexts.append("captured")
        if not event.captured and hot and (event.in_loop or not only_loops):
            contexts.append("hot")
        if cold:
            contexts = ["cold"]
        for context in contexts or ["other"]:
            seen: set[ast.expr] = set()
            # GRD601 says more of a load in a capture than GRD502 does.
            for rule in sorted(lookers[context], key=lambda r: r.code != "GRD601"):
                assert rule.look is not None
                for hit in rule.look(event, context):
                    if rule.code == "GRD502" and event.node in seen:
                        continue
                    seen.add(event.node)
                    chain: tuple[Function, ...] = ()
                    if context in ("hot", "captured"):
                        chain = hotness.chain(function, captured=context == "captured" and inside)
                    yield _finding(rule.code, event, hit, chain)


def _finding(code: str, event: Event, hit: Hit, chain: Sequence[Function]) -> Finding:
    module = event.function.module
    node = hit.node or event.node
    return Finding(
        code,
        hit.message,
        module.shown,
        node.lineno,
        characters(module, node.lineno, node.col_offset) + 1,
        node.end_lineno or node.lineno,
        characters(module, node.end_lineno or node.lineno, node.end_col_offset or 0) + 1,
        hit.confidence,
        tuple(Step(f.dotted, f.module.shown, f.line) for f in chain),
        hit.edits,
        hit.safe,
        statement_lines(event.statement),
        event.function.dotted,
    )


def characters(module: Module, line: int, column: int) -> int:
    """A column in characters from one in UTF-8 bytes, which is what `ast` counts."""
    text = source_line(module, line)
    return column if text.isascii() else len(text.encode()[:column].decode(errors="replace"))


_LINES: dict[Module, list[str]] = {}


def source_line(module: Module, line: int) -> str:
    """A line of a file, with its end."""
    if module not in _LINES:
        _LINES[module] = lines_of(module.text)
    lines = _LINES[module]
    return lines[line - 1] if 0 < line <= len(lines) else ""


def statement_lines(statement: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement; of a compound one, of its head alone."""
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        last = max(first, body[0].lineno - 1)
    return first, last


def _fingerprinted(findings: Sequence[Finding], modules: Mapping[str, Module]) -> list[Finding]:
    """The findings with a fingerprint that outlives a shift of lines."""
    seen: dict[str, int] = {}
    found = []
    for finding in sorted(findings, key=lambda f: f.order):
        module = modules.get(finding.path)
        line = source_line(module, finding.line).strip() if module is not None else ""
        key = "\0".join((finding.code, finding.path, finding.function, line))
        seen[key] = seen.get(key, 0) + 1
        digest = hashlib.blake2b(f"{key}\0{seen[key]}".encode(), digest_size=8).hexdigest()
        found.append(replace(finding, fingerprint=digest))
    return found
