"""Make the edits that findings carry: nothing outside their spans changes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onegraph.guards.check import Report, check
from onegraph.guards.config import Config
from onegraph.guards.engine.reading import ReadError, lines_of, parse
from onegraph.guards.findings import Edit, Finding

#: Rounds after which fixes that go on making work for each other are given up.
ROUNDS = 10


@dataclass(frozen=True)
class Fixed:
    """What came of the fixes.

    Attributes:
        report: what is left.
        files: new bytes by path.
        edits: how many were made.
        diff: the change as a unified diff.
    """

    report: Report
    files: dict[Path, bytes]
    edits: int
    diff: str


def apply_edits(text: str, edits: Iterable[Edit]) -> tuple[str, int]:
    """`text` with the edits made, first come first served where two overlap."""
    lines = [line.encode() for line in lines_of(text)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = b"".join(lines)

    def offset(place: tuple[int, int]) -> int:
        row, column = place
        return min(starts[min(row - 1, len(lines))] + column, len(data))

    spans = sorted({(offset(e.start), offset(e.end), e.text) for e in edits})
    made: list[bytes] = []
    position, count = 0, 0
    for start, end, replacement in spans:
        if start < position or (start == position and count and start == end):
            continue
        made += [data[position:start], replacement.encode()]
        position, count = end, count + 1
    made.append(data[position:])
    return b"".join(made).decode(), count


def fix(paths: Sequence[Path], config: Config, *, unsafe: bool) -> Fixed:
    """Fix what can be fixed, round after round until nothing is left to do; writes nothing."""
    overlay: dict[Path, bytes] = {}
    before: dict[Path, str] = {}
    edits = 0
    for _ in range(ROUNDS):
        report = check(paths, config, overlay=overlay)
        by_path: dict[str, list[Finding]] = {}
        for finding in report.findings:
            if finding.edits and (finding.safe or unsafe):
                by_path.setdefault(finding.path, []).append(finding)
        changed = False
        for module, text in report.tree.texts.items():
            found = by_path.get(module.shown)
            if not found:
                continue
            new, count = apply_edits(text.text, [e for f in found for e in f.edits])
            if new == text.text or not _parses(new):
                continue
            before.setdefault(module.path, text.text)
            overlay[module.path] = text.encoded(new)
            edits, changed = edits + count, True
        if not changed:
            break
    pieces: list[str] = []
    for module, text in report.tree.texts.items():
        if module.path in before:
            pieces += difflib.unified_diff(
                before[module.path].splitlines(keepends=True),
                text.text.splitlines(keepends=True),
                module.shown,
                module.shown,
            )
    return Fixed(report, overlay, edits, "".join(pieces))


def _parses(text: str) -> bool:
    try:
        parse(text)
    except ReadError:
        return False
    return True
