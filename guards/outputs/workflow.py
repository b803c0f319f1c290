"""GitHub's workflow commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onegraph.guards.check import Report


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def github(report: Report) -> str:
    """An ``::error`` each."""
    lines = []
    for finding in report.findings:
        chain = f" (hot: {finding.chain_text})" if finding.chain else ""
        lines.append(
            f"::error file={_property(finding.path)},line={finding.line},col={finding.column},"
            f"endLine={finding.end_line},endColumn={finding.end_column},"
            f"title={_property(finding.code)}::{_data(finding.message + chain)}"
        )
    return "\n".join(lines)
