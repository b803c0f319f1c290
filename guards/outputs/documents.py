"""For machines: JSON, GitLab's code quality report, SARIF 2.1.0."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onegraph.guards.findings import Finding
from onegraph.guards.rules import RULES

if TYPE_CHECKING:
    from onegraph.guards.check import Report

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"proven": "error", "likely": "warning", "possible": "note"}


def as_json(report: Report) -> str:
    """Every field of every finding."""
    rows = []
    for finding in report.findings:
        row: dict[str, Any] = asdict(finding)
        row["fix"] = "" if not finding.edits else "safe" if row.pop("safe") else "unsafe"
        row.pop("safe", None)
        rows.append(row)
    return json.dumps(rows, indent=2)


def gitlab(report: Report) -> str:
    """GitLab's code quality report."""
    severity = {"proven": "major", "likely": "minor", "possible": "info"}
    rows = [
        {
            "description": f"{f.code}: {f.message}",
            "check_name": f.code,
            "fingerprint": f.fingerprint,
            "severity": severity[f.confidence],
            "location": {"path": f.path, "lines": {"begin": f.line, "end": f.end_line}},
        }
        for f in report.findings
    ]
    return json.dumps(rows, indent=2)


def sarif(report: Report) -> str:
    """SARIF 2.1.0, the chains as code flows."""
    codes = sorted(RULES)
    document = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "onegraph guard",
                        "rules": [
                            {
                                "id": code,
                                "name": RULES[code].name,
                                "shortDescription": {"text": RULES[code].summary},
                                "fullDescription": {"text": " ".join(RULES[code].why.split())},
                            }
                            for code in codes
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(f, codes) for f in report.findings],
            }
        ],
    }
    return json.dumps(document, indent=2)


def _place(path: str, **region: int) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(path), "uriBaseId": "%SRCROOT%"},
            "region": region,
        }
    }


def _result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    place = _place(
        finding.path,
        startLine=finding.line,
        startColumn=finding.column,
        endLine=finding.end_line,
        endColumn=finding.end_column,
    )
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVELS[finding.confidence],
        "message": {"text": finding.message},
        "locations": [place],
        "partialFingerprints": {"onegraphGuard/v1": finding.fingerprint},
    }
    if finding.chain:
        steps = [
            {"location": {**_place(s.path, startLine=s.line), "message": {"text": s.name}}}
            for s in finding.chain
        ]
        end = {"location": {**place, "message": {"text": finding.message}}}
        result["codeFlows"] = [{"threadFlows": [{"locations": [*steps, end]}]}]
    return result
