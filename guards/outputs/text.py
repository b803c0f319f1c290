"""For people: ``full`` and ``concise``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onegraph.guards.findings import Finding

if TYPE_CHECKING:
    from onegraph.guards.check import Report


def heading(finding: Finding) -> str:
    """Place, code and message."""
    sure = "" if finding.confidence == "proven" else f" ({finding.confidence})"
    fixable = "" if not finding.edits else " [*]" if finding.safe else " [unsafe fix]"
    return (
        f"{finding.path}:{finding.line}:{finding.column}: {finding.code}{fixable}"
        f" {finding.message}{sure}"
    )


def concise(report: Report) -> str:
    """A line each, with the chain."""
    lines = []
    for finding in report.findings:
        chain = f" [{finding.chain_text}]" if finding.chain else ""
        lines.append(heading(finding) + chain)
    return "\n".join([*lines, summary(report)])


def full(report: Report) -> str:
    """With the source and the chain."""
    blocks = ["\n".join(_block(finding, report)) for finding in report.findings]
    return "\n\n".join([*blocks, summary(report)])


def _block(finding: Finding, report: Report) -> Iterator[str]:
    from onegraph.guards.check import source_line

    yield heading(finding)
    module = next((m for m in report.tree.texts if m.shown == finding.path), None)
    if module is not None:
        line = source_line(module, finding.line).rstrip("\r\n")
        if line.strip():
            number = str(finding.line)
            end = finding.end_column if finding.end_line == finding.line else len(line) + 1
            width = max(1, end - finding.column)
            yield f"  {number} | {line}"
            yield f"  {' ' * len(number)} | {' ' * (finding.column - 1)}{'^' * width}"
    if finding.chain:
        word = "captured" if finding.code == "GRD601" else "hot"
        yield f"  {word}: {finding.chain_text}"


def summary(report: Report) -> str:
    """The closing line."""
    count = len(report.findings)
    found = "no findings" if not count else f"{count} finding{'s' if count > 1 else ''}"
    extra = "".join(
        f", {n} {word}"
        for n, word in ((report.allowed, "allowed"), (report.baselined, "in the baseline"))
        if n
    )
    return f"{found}{extra} in {report.files} files ({report.hot} hot functions)"
