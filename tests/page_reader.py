"""Report pages read back as a browser would, and opened in one; a device that draws its graphs.

Its asserts are rewritten as a test's are (`conftest.py`).
"""

import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from onegraph.kernels.device import HostDevice

CHROMIUM = Path("/usr/bin/chromium")
HOSTILE = "<script>alert('x')</script><img src=http://example.com/x.png>&\"'$x$"


def needs_browser(test):
    """Skips by name where there is no Chromium."""
    reason = f"no {CHROMIUM}: make browser installs it"
    return pytest.mark.slow(pytest.mark.skipif(not CHROMIUM.exists(), reason=reason)(test))


class Page(HTMLParser):
    """What a reader of the page meets: text and tables by section, ids, whatever is loaded."""

    def __init__(self, path, void=("meta", "link", "img", "path", "rect", "use")):
        super().__init__()
        self.void = void
        file = path / "report.html" if path.is_dir() else path
        self.source = file.read_text(encoding="utf-8")
        self.ids, self.loads, self.tags, self.links = [], [], set(), []
        self.text, self.tables, self.figures = {}, {}, {}
        self._open, self._section, self._figure = [], "", ""
        self.feed(self.source)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.add(tag)
        if tag not in self.void:
            self._open.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster", "action", "xlink:href"):
                self.loads.append(value)
            elif name == "href":
                (self.links if tag in ("a", "use") else self.loads).append(value)
            elif "url(" in (value or "") and not re.search(r"url\(#", value):
                self.loads.append(value)
        if tag == "section":
            self._section = found["id"]
        if tag == "figure":
            self._figure = found["id"]
        if tag == "tr":
            self.tables.setdefault(self._section, []).append([])
        if tag in ("th", "td"):
            self.tables[self._section][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag in self.void:
            return
        assert self._open.pop() == tag
        if tag == "section":
            self._section = ""
        if tag == "figure":
            self._figure = ""

    def handle_data(self, data):
        self.text[self._section] = self.text.get(self._section, "") + data
        if self._figure:
            self.figures[self._figure] = self.figures.get(self._figure, "") + data
        if self._open and self._open[-1] in ("th", "td"):
            self.tables[self._section][-1][-1] += data

    def row(self, section, first):
        return next(row for row in self.tables[section] if row[0] == first)


def loads_nothing(page):
    """The page holds all that it shows, and no script."""
    assert page.loads == ["data:,"]
    assert "@import" not in page.source
    assert not page.tags & {"script", "iframe", "img", "object", "embed", "base", "form"}
    assert all(link.startswith("#") for link in page.links)
    assert re.findall(r"url\((?!#)", page.source) == []
    assert "default-src 'none'" in page.source
    assert len(page.source.encode()) < 2 * 2**20


def leads_to(page, sections):
    """The navigation leads to each section, and each says something."""
    assert set(sections) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    leads = {link[1:] for link in page.links}
    assert set(sections) <= leads <= set(page.ids)
    for name in sections:
        assert page.text[name].strip()


class DrawingDevice(HostDevice):
    """The host device, which draws its graphs as a driver does."""

    kind = "cuda"

    def graph_dot(self, graph):
        clusters = [
            f'subgraph cluster_{i} {{ label="graph_{i}" graph[style="dashed"];'
            + "".join(
                f'"graph_{i}_node_{j}"[style="bold" shape="octagon" label="{j}\n{node.label}\n"];'
                for j, node in enumerate(child.nodes)
            )
            + "}"
            for i, child in enumerate(graph.children)
        ]
        return f"digraph dot {{ {' '.join(clusters)} }}"


# ---------------------------------------------------------------- in a browser


def browse(page, tmp_path, *words):
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--hide-scrollbars", "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}",
        *words, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, env=os.environ
    )


def shown_without_complaint(page, tmp_path, width, scheme):
    """A browser logs nothing; the page has the scheme's paper, marks all the way down, and fits."""
    from matplotlib.image import imread

    picture = tmp_path / "page.png"
    shown = browse(
        page,
        tmp_path,
        f"--window-size={width},4000",
        f"--screenshot={picture}",
        f"--blink-settings=preferredColorScheme={scheme}",
    )
    assert "CONSOLE" not in shown.stderr  # where Chromium logs what a page complains of
    pixels = imread(picture)[:, :, :3]
    assert pixels.shape[:2] == (4000, width)
    paper = pixels[2, 2]
    assert (paper.mean() > 0.9) == (scheme == 1)
    drawn = np.abs(pixels - paper).max(axis=2) > 0.1
    for band in np.array_split(drawn, 8):  # every part of it shows something
        assert 0.002 < band.mean() < 0.9
    edge = drawn[:, -1].mean()
    assert edge < 0.2  # nothing runs out of the window
