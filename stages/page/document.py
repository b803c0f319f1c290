"""A page as one HTML document that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onegraph.stages.page.markup import paragraph, text

STYLE = Path(__file__).with_name("style.css")

#: The browser itself refuses whatever the page would load.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Tile:
    """A figure that one would ask for first: what it is, its value, and a few words more."""

    what: str
    value: str
    more: str


@dataclass(frozen=True)
class PageSection:
    """A section (`markup.section`), the id that it has, and its name in the navigation."""

    name: str
    label: str
    html: str


def document(
    title: str, about: str, note: str, tiles: Sequence[Tile], sections: Sequence[PageSection],
    footer: str,
) -> str:  # fmt: skip
    """The whole page.

    Args:
        title: the heading; the browser's title has the package's name before it.
        about: what the page is about, in a line.
        note: what a reader should be warned of; empty if nothing.
        tiles: in the order of reading.
        sections: in the order of the page and of its navigation.
        footer: HTML, in a line.
    """
    links = "".join(f'<a href="#{text(s.name)}">{text(s.label)}</a>' for s in sections)
    figures = "".join(
        f"<div><dt>{text(t.what)}</dt><dd>{text(t.value)}<small>{text(t.more)}</small></dd></div>"
        for t in tiles
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{text(f"onegraph: {title}")}</title>'
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body>"
        f'<header><h1>{text(title)}</h1><p class="sub">{text(about)}</p>'
        f'{paragraph(note, "missing") if note else ""}<dl class="tiles">{figures}</dl></header>'
        f"<nav><div>{links}</div></nav><main>{''.join(s.html for s in sections)}</main>"
        f"<footer>{footer} The page loads nothing.</footer></body></html>\n"
    )
