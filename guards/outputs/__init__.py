"""The output formats; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onegraph.guards.check import Report

#: Module and function of each format.
FORMATS = {
    "full": ("text", "full"),
    "concise": ("text", "concise"),
    "json": ("documents", "as_json"),
    "github": ("workflow", "github"),
    "gitlab": ("documents", "gitlab"),
    "sarif": ("documents", "sarif"),
}


def written(report: Report, name: str) -> str:
    """`report` in the format `name`."""
    module, function = FORMATS[name]
    text: str = getattr(import_module(f"onegraph.guards.outputs.{module}"), function)(report)
    return text
