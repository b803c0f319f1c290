"""Charts as inline SVG that follow the page's light or dark colours.

matplotlib draws with one stand-in colour for each role, and the SVG then names the page's CSS
variable in its place; text stays text. Series differ in line style too, not by colour alone.
"""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Colours of series; the page's style sheet has as many variables, ``--c0`` and on.
COLOURS = 9
_ROLES = ("ink", "muted", "rule", "paper", *(f"c{i}" for i in range(COLOURS)))
#: A role's stand-in: a colour that nothing else has.
_STAND_IN = {role: f"#0a0b{0x10 + i:02x}" for i, role in enumerate(_ROLES)}
_STYLES = ("-", "--", "-.", ":")
#: Inches; a chart is as wide as a phone and stands in a grid on anything wider.
WIDTH, HEIGHT = 5.0, 2.9
#: Characters of a bar's or a series' name; more would leave no room for the drawing.
LONGEST = 30


class PlotUnavailableError(RuntimeError):
    """matplotlib is not installed."""


@dataclass(frozen=True)
class Series:
    """A named line: `x` and `y` [N]; NaN leaves a gap."""

    name: str
    x: NDArray[Any]
    y: NDArray[np.float64]


def require_plots() -> None:
    """Raise `PlotUnavailableError` without matplotlib; ask before work that ends in a chart."""
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise PlotUnavailableError(
            f"the report's charts need matplotlib ({error}); run pip install 'onegraph[plot]'"
        ) from None


def colour(index: int) -> str:
    """The stand-in of series colour `index`."""
    return _STAND_IN[f"c{index % COLOURS}"]


def _shortened(label: str) -> str:
    """`label`, cut where it would not fit; the table beside the chart has all of it."""
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"


def _grouped(value: float, position: int | None = None) -> str:
    """A tick's label: six figures at most, thousands apart."""
    del position
    return f"{value:,.6g}"


class Chart:
    """One chart with a title, axes with units, and a legend where there is more than one series.

    Args:
        name: an id on the page, unique.
        rows: height in rows of bars; 0 gives the usual height.

    Raises:
        PlotUnavailableError: matplotlib is not installed.
    """

    def __init__(self, name: str, title: str, x_label: str, y_label: str, *, rows: int = 0) -> None:
        require_plots()
        import matplotlib as mpl
        from matplotlib.figure import Figure

        self.name, self.title = name, title
        self._rc: dict[str, Any] = {
            "svg.fonttype": "none",
            "svg.hashsalt": "onegraph",
            "text.parse_math": False,
            "text.color": _STAND_IN["ink"],
            "axes.edgecolor": _STAND_IN["rule"],
            "axes.labelcolor": _STAND_IN["muted"],
            "axes.facecolor": "none",
            "xtick.color": _STAND_IN["rule"],
            "ytick.color": _STAND_IN["rule"],
            "xtick.labelcolor": _STAND_IN["muted"],
            "ytick.labelcolor": _STAND_IN["muted"],
            "grid.color": _STAND_IN["rule"],
            "grid.linewidth": 0.6,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "font.size": 9.0,
            "legend.frameon": False,
            "figure.facecolor": "none",
            "savefig.facecolor": "none",
        }
        self._mpl = mpl
        with mpl.rc_context(self._rc):
            height = 1.0 + 0.27 * rows if rows else HEIGHT
            self.figure = Figure(figsize=(WIDTH, height), layout="constrained")
            self.axes = self.figure.add_subplot()
            self.axes.set_xlabel(x_label)
            self.axes.set_ylabel(y_label)
            self.axes.grid(axis="x" if rows else "y")

    def lines(self, series: Sequence[Series], *, log: bool = False) -> Chart:
        """Draw lines; few points are marked too, so that a single one shows."""
        with self._mpl.rc_context(self._rc):
            for i, s in enumerate(series):
                self.axes.plot(
                    s.x,
                    s.y,
                    # Dashes of a line with many turns would hide its shape.
                    _STYLES[i % len(_STYLES)] if len(s.x) <= 200 else "-",
                    color=colour(i),
                    linewidth=1.6,
                    marker="o" if len(s.x) <= 24 else "",
                    markersize=3.2,
                    label=_shortened(s.name),
                )
            if log:
                self._log()
            else:
                self.axes.yaxis.set_major_formatter(_grouped)
            if series and np.issubdtype(np.asarray(series[0].x).dtype, np.datetime64):
                self._dates()
            elif series and np.issubdtype(np.asarray(series[0].x).dtype, np.integer):
                self.axes.xaxis.get_major_locator().set_params(integer=True)
                self.axes.xaxis.set_major_formatter(_grouped)
        return self._legend(len(series))

    def bars(
        self,
        labels: Sequence[str],
        values: Sequence[float],
        spread: Sequence[tuple[float, float]],
        notes: Sequence[str],
    ) -> Chart:
        """Horizontal bars from the top down, each with its low and high end and a note."""
        with self._mpl.rc_context(self._rc):
            rows = np.arange(len(labels))
            ends = np.asarray(spread, np.float64)
            middle = np.asarray(values, np.float64)
            reach = np.maximum(np.abs(ends.T - middle), 0.0)
            self.axes.barh(
                rows,
                middle,
                height=0.62,
                color=colour(0),
                xerr=reach,
                error_kw={"ecolor": _STAND_IN["ink"], "elinewidth": 1.0, "capsize": 2.0},
            )
            self._rows(labels)
            self.axes.locator_params(axis="x", nbins=6)
            self.axes.xaxis.set_major_formatter(_grouped)
            top = float(ends.max())
            for row, (end, note) in enumerate(zip(ends[:, 1], notes, strict=True)):
                self.axes.text(end + top * 0.015, row, note, va="center", fontsize=8.5)
            self.axes.set_xlim(0, top * 1.18)
        return self

    def spreads(
        self,
        labels: Sequence[str],
        points: Sequence[Sequence[float]],
        marks: Sequence[tuple[str, Sequence[float]]],
        *,
        name: str,
    ) -> Chart:
        """Rows from the top down: points on a line from the least to the most, and their mean.

        Args:
            labels: of the rows.
            points: of each row, one at least.
            marks: what the points are held against: a name, and a value for each row.
            name: of the points, for the legend.
        """
        signs = ("D", "s", "^", "v")
        with self._mpl.rc_context(self._rc):
            rows = np.arange(len(labels))
            ends = [(min(row), max(row)) for row in points]
            self.axes.hlines(rows, *zip(*ends, strict=True), color=colour(0), linewidth=1.6)
            each = [(value, i) for i, row in enumerate(points) for value in row]
            x, y = zip(*each, strict=True)
            self.axes.plot(x, y, "o", color=colour(0), markersize=4.2, label=_shortened(name))
            means = [float(np.mean(row)) for row in points]
            self.axes.plot(
                means, rows, "|", color=_STAND_IN["ink"], markersize=13, markeredgewidth=2.0,
                label="mean",
            )  # fmt: skip
            for i, (mark, values) in enumerate(marks):
                self.axes.plot(
                    values, rows, signs[i % len(signs)], color=colour(i + 1), markersize=5.5,
                    label=_shortened(mark),
                )  # fmt: skip
            self._rows(labels)
            self.axes.locator_params(axis="x", nbins=6)
            self.axes.xaxis.set_major_formatter(_grouped)
        return self._legend(2 + len(marks))

    def stacked_rows(
        self, labels: Sequence[str], parts: Sequence[tuple[str, Sequence[float]]]
    ) -> Chart:
        """Horizontal bars from the top down, each the sum of its parts."""
        with self._mpl.rc_context(self._rc):
            rows, start = np.arange(len(labels)), np.zeros(len(labels))
            for i, (name, values) in enumerate(parts):
                self._stack(self.axes.barh, rows, values, i, name, left=start, height=0.62)
                start = start + np.asarray(values, np.float64)
            self._rows(labels)
        return self._legend(len(parts))

    def stacked_columns(
        self, x: Sequence[int], parts: Sequence[tuple[str, Sequence[float]]]
    ) -> Chart:
        """A column for each x, the sum of its parts, the first part at the bottom."""
        with self._mpl.rc_context(self._rc):
            start = np.zeros(len(x))
            # Thousands of columns would have nothing but edges.
            for i, (name, values) in enumerate(parts):
                self._stack(self.axes.bar, x, values, i, name, bottom=start, width=0.75)
                start = start + np.asarray(values, np.float64)
            self.axes.xaxis.get_major_locator().set_params(integer=True)
        return self._legend(len(parts))

    def _stack(
        self, draw: Any, place: Any, values: Sequence[float], i: int, name: str, **how: Any
    ) -> None:
        edge = 0.6 if len(values) <= 60 else 0.0
        draw(
            place,
            values,
            color=colour(i),
            edgecolor=_STAND_IN["paper"],
            linewidth=edge,
            label=_shortened(name),
            **how,
        )

    def _rows(self, labels: Sequence[str]) -> None:
        self.axes.set_yticks(np.arange(len(labels)), [_shortened(label) for label in labels])
        self.axes.invert_yaxis()
        self.axes.tick_params(axis="y", length=0)

    def _log(self) -> None:
        from matplotlib.ticker import LogFormatter

        self.axes.set_yscale("log")
        # The usual formatter writes TeX; this one writes text.
        self.axes.yaxis.set_major_formatter(LogFormatter())
        self.axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))

    def _dates(self) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=8)
        self.axes.xaxis.set_major_locator(locator)
        self.axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))

    def _legend(self, series: int) -> Chart:
        if series > 1:
            longest = max(len(str(label)) for label in self.axes.get_legend_handles_labels()[1])
            # Points of an entry: a letter is up to 6 wide at this size, the line and the gaps 40.
            fits = int(WIDTH * 72 / (6 * longest + 40))
            with self._mpl.rc_context(self._rc):
                self.figure.legend(
                    loc="outside lower center",
                    ncols=max(1, min(series, 4, fits)),
                    fontsize=8.0,
                    handlelength=1.8,
                )
        return self

    def svg(self) -> str:
        """The chart as an inline ``<svg>`` that scales to the width it is given."""
        file = io.StringIO()
        with self._mpl.rc_context(self._rc):
            empty = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            self.figure.savefig(file, format="svg", metadata=empty)
        return _themed(file.getvalue(), self.name, self.title)


def _themed(svg: str, name: str, title: str) -> str:
    """The SVG as a part of the page: in its colours and its font, with ids of its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.S)
    svg = re.sub(r' (?:xmlns(?::\w+)?|version)="[^"]*"', "", svg)
    svg = re.sub(
        r'<svg ([^>]*?)width="[^"]*"([^>]*)>',
        lambda m: f'<svg {m[1]}{m[2]} role="img" aria-label="{escape(title)}">',
        svg,
        count=1,
    )
    svg = re.sub(r'(<svg [^>]*?)height="[^"]*"\s*', r"\1", svg, count=1)
    svg = re.sub(r"<style.*?</style>\s*", "", svg, flags=re.S)  # it would hold for the whole page
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'xlink:href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    svg = re.sub(r"font-family: [^;\"]*; ", "", svg)
    for role, stand_in in _STAND_IN.items():
        svg = svg.replace(stand_in, f"var(--{role})")
    return svg.strip()
