"""Run the guard over a project that a test writes down."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path
from typing import Any

from onegraph.guards.check import Report, check
from onegraph.guards.config import build


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """The files below `folder`; text is dedented."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(textwrap.dedent(content), encoding="utf-8")
    return folder.resolve()


def run(folder: Path, files: dict[str, str | bytes], config: str = "", **more: Any) -> Report:
    """What the guard finds in these files."""
    root = write(folder, files)
    return check([root], build(root, tomllib.loads(config), "test"), **more)


def found(report: Report) -> list[tuple[str, str, int]]:
    """Code, path and line of each finding."""
    return [(f.code, f.path, f.line) for f in report.findings]


def chains(report: Report, code: str) -> list[str]:
    """The chain of each finding of a rule."""
    return [f.chain_text for f in report.findings if f.code == code]
