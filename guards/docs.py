"""The rule pages, from the rules: ``python -m onegraph.guards.docs docs/rules`` writes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from onegraph.guards.rules import RULES
from onegraph.guards.rules.rule import Example, Rule


def page(rule: Rule) -> str:
    """A rule's page, in Markdown."""
    on = "on by default" if rule.default else f"on with `--extend-select {rule.code}`"
    return "\n".join(
        [
            f"# {rule.code} {rule.name}",
            "",
            f"{rule.summary[0].upper()}{rule.summary[1:]}. It is {on}.",
            "",
            " ".join(rule.why.split()),
            "",
            f"Fix: {' '.join(rule.fix.split()) if rule.fix else 'none.'}",
            "",
            "## Flagged",
            "",
            *(line for example in rule.flagged for line in _example(example)),
            "## Not flagged",
            "",
            *(line for example in rule.unflagged for line in _example(example)),
        ]
    ).rstrip("\n") + "\n"  # fmt: skip


def _example(example: Example) -> Iterator[str]:
    if example.config:
        yield from ("With this in `[tool.onegraph.guards]`:", "", "```toml")
        yield from (example.config.rstrip("\n"), "```", "")
    for path, text in example.files.items():
        yield from (f"`{path}`:", "", "```", text.rstrip("\n"), "```", "")
    if example.path != "example.py":
        yield from (f"`{example.path}`:", "")
    yield from ("```python", example.source.rstrip("\n"), "```", "")


def index() -> str:
    """The list of the rules."""
    rows = [
        f"| [{r.code}]({r.code}.md) | {r.name} | {r.summary} | {'yes' if r.default else ''} |"
        f" {_safety(r)} |"
        for r in RULES.values()
    ]
    return "\n".join(
        [
            "# The guards' rules",
            "",
            "Generated from the rules by `make docs`; edit `guards/rules/`, not these pages.",
            "",
            "| code | name | what it flags | default | fix |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _safety(rule: Rule) -> str:
    if not rule.fix:
        return ""
    words = [word for word in ("unsafe", "safe") if word in rule.fix.replace("unsafe", "UN")]
    if "unsafe" in rule.fix:
        words.append("unsafe")
    return ", ".join(words)


def pages() -> dict[str, str]:
    """Every page by file name."""
    return {"README.md": index(), **{f"{code}.md": page(rule) for code, rule in RULES.items()}}


def write(folder: Path) -> None:
    """Write every page, and take away those of rules that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in folder.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/rules"))
