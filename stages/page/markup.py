"""A page's few HTML forms. Whatever comes from outside goes through `text`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


def text(value: object) -> str:
    """`value` as text in HTML, also inside an attribute."""
    return escape(str(value))


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def paragraph(value: object, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{_class(kind)}>{text(value)}</p>"


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    left: int = 1,
    prose: int | None = None,
) -> str:
    """A table: the first `left` columns are text, the others figures, aligned; `prose` wraps."""

    def cell(tag: str, i: int, value: object) -> str:
        kind = "prose" if i == prose else "n" if i >= left else ""
        return f"<{tag}{_class(kind)}>{text(value)}</{tag}>"

    head = "".join(cell("th", i, c) for i, c in enumerate(columns))
    body = "".join(
        f"<tr>{''.join(cell('td', i, value) for i, value in enumerate(row))}</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def figure(name: str, title: str, svg: str, caption: str, command: str = "") -> str:
    """A drawing with its title, what it shows, and the command or file it comes from."""
    source = f' <code class="from">{text(command)}</code>' if command else ""
    return (
        f'<figure id="{text(name)}"><h3>{text(title)}</h3><div class="chart">{svg}</div>'
        f"<figcaption>{text(caption)}{source}</figcaption></figure>"
    )


def grid(*figures: str) -> str:
    """Figures beside each other where there is room."""
    return f'<div class="grid">{"".join(figures)}</div>'


def section(name: str, title: str, *body: str) -> str:
    """A section that the navigation leads to."""
    return f'<section id="{name}"><h2>{text(title)}</h2>{"".join(body)}</section>'


def details(summary: str, content: str) -> str:
    """Preformatted text behind a heading that opens it."""
    return f"<details><summary>{text(summary)}</summary><pre>{text(content)}</pre></details>"


def missing(what: str, reason: str) -> str:
    """A piece that is not there, and why."""
    return f'<p class="missing"><strong>{text(what)}:</strong> {text(reason.rstrip("."))}.</p>'


# ---------------------------------------------------------------- what a page says in few words


@dataclass(frozen=True)
class Missing:
    """A piece that can't be shown, and why."""

    reason: str


def command(*words: object) -> str:
    """A command line, quoted so that it can be pasted."""
    return shlex.join(str(word) for word in words)


def duration(microseconds: float) -> str:
    """Three figures at least, in the unit that suits."""
    if microseconds >= 1e4:
        return f"{microseconds / 1e3:,.1f} ms"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.2f} ms"
    return f"{microseconds:.1f} µs"


def number(value: float | None, form: str) -> str:
    """A figure, or a dash where it was not finite or not recorded."""
    return "–" if value is None else format(value, form)


def sentence(words: str) -> str:
    """`words` with a capital at their head and a full stop at their end."""
    return f"{words[:1].upper()}{words[1:]}."
