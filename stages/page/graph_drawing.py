"""The step's graph as inline SVG: children as clusters, work nodes labelled by kernel.

A step is a chain, so the layout is one: clusters run down a column and on at the top of the next,
as newspaper columns do. Branches inside a cluster stand side by side, between a fork and a join; of
a dag the lanes do, without what one waits for in another.
`from_program` needs no device; `from_dot` reads what a driver drew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby

from onegraph.stages.dag import Dag
from onegraph.stages.page.markup import Missing
from onegraph.stages.program import (
    Branches,
    Copy,
    GraphLaunch,
    Launch,
    LaunchGroup,
    MatmulGroup,
    MatmulOp,
    Memset,
    Op,
    RecordEvent,
    StepProgram,
    opened,
)
from onegraph.stages.runner import Runner


@dataclass(frozen=True)
class Node:
    """A unit of work.

    Attributes:
        kind: ``kernel``, ``matmul``, ``copy``, ``memset`` or ``host``.
        fork: which fork of its cluster it stands in, counted from 1; 0: it is in no branch.
        branch: which branch of that fork.
    """

    label: str
    kind: str
    fork: int = 0
    branch: int = 0


@dataclass(frozen=True)
class Cluster:
    """A child graph, or a phase whose work stands outside any graph."""

    name: str
    nodes: tuple[Node, ...]
    graphed: bool = True


@dataclass(frozen=True)
class DriverGraph:
    """A step's graphs as the driver holds them, and the text that they were read from."""

    clusters: tuple[Cluster, ...]
    dot: str


class DotError(ValueError):
    """DOT text that is not of the form that a driver writes."""


# ---------------------------------------------------------------- from the program


def from_program(program: StepProgram) -> tuple[Cluster, ...]:
    """The clusters of a program at any stages: graphs where it has them, else phases."""
    found: list[Cluster] = []
    for phase in program.phases:
        loose = [op for op in phase.ops if not isinstance(op, (GraphLaunch, RecordEvent))]
        if loose:
            nodes = tuple(map(_node, opened(loose)))
            found.append(Cluster(phase.name, nodes, graphed=False))
        for op in phase.ops:
            if isinstance(op, GraphLaunch):
                found += _graph(op)
    return tuple(found)


def _graph(graph: GraphLaunch) -> Iterator[Cluster]:
    """A graph's children, and its own work where it has some."""
    own = [op for op in graph.body if not isinstance(op, (GraphLaunch, RecordEvent))]
    if own:
        yield Cluster(graph.name, tuple(_nodes(own)))
    for op in graph.body:
        if isinstance(op, GraphLaunch):
            yield from _graph(op)


def _nodes(ops: Sequence[Op]) -> Iterator[Node]:
    """The nodes of a graph's ops, branches and lanes side by side."""
    forks = 0
    for op in ops:
        if isinstance(op, Branches):
            forks += 1
            for index, branch in enumerate(op.branches):
                yield from (replace(_node(o), fork=forks, branch=index) for o in branch)
        elif isinstance(op, Dag):
            forks += 1
            by_lane = sorted(zip(op.lanes, op.ops, strict=True), key=lambda pair: pair[0])
            for lane, inner in by_lane:
                yield replace(_node(inner), fork=forks, branch=lane)
        else:
            yield _node(op)


def _node(op: Op) -> Node:
    match op:
        case Launch():
            return Node(op.kernel, "kernel")
        case LaunchGroup():
            return Node(f"{len(op.members)} x {op.kernel}", "kernel")
        case MatmulOp():
            return Node(f"matmul {op.out.buffer}", "matmul")
        case MatmulGroup():
            return Node(f"matmul {', '.join(m.out.buffer for m in op.members)}", "matmul")
        case Memset():
            return Node(f"zero {op.dst.buffer}", "memset")
        case Copy():
            return Node(f"{op.direction} {op.dst.buffer}", "copy")
    return Node(op.label, "host")


# ---------------------------------------------------------------- from a driver's DOT

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|->|[{}\[\];=,]|[^\s{}\[\];=,"]+', re.S)
#: What the driver calls a node that only holds others, or nothing.
_HOLDERS = re.compile(r"\b(child|graph|empty|event|conditional)\b|^graph_\d+$", re.I)


def from_dot(text: str, names: Sequence[str]) -> tuple[Cluster, ...]:
    """The clusters of a graph as a driver drew it, named `names` where there are as many.

    Args:
        text: DOT; each subgraph is a graph, a node's label has its number, then what it does.
        names: the children in order.

    Raises:
        DotError: no node that does work is found.
    """
    members: dict[str, list[tuple[str, str]]] = {}
    edges: list[tuple[str, str]] = []
    open_graphs: list[str] = []
    tokens = [t if t[0] != '"' else t[1:-1] for t in _TOKEN.findall(text)]
    i = 0
    while i < len(tokens):
        word, after = tokens[i], tokens[i + 1] if i + 1 < len(tokens) else ""
        if word in ("digraph", "subgraph"):
            open_graphs.append(after if after != "{" else f"graph {len(members)}")
            members.setdefault(open_graphs[-1], [])
            i += 3 if after != "{" else 2
        elif word == "}":
            if open_graphs:
                open_graphs.pop()
            i += 1
        elif after == "->" and i + 2 < len(tokens):
            edges.append((word, tokens[i + 2]))
            i = _past_attributes(tokens, i + 3)
        elif after == "[":
            end = _past_attributes(tokens, i + 1)
            if open_graphs and word not in ("graph", "node", "edge"):
                label = _attribute(tokens[i + 2 : end - 1], "label")
                members[open_graphs[-1]].append((word, label))
            i = end
        else:
            i += 1
    clusters = [
        found
        for name, nodes in members.items()
        if (found := Cluster(name, tuple(_driver_nodes(nodes, edges)))).nodes
    ]
    if not clusters:
        raise DotError("the driver's DOT names no node that does work")
    if len(names) == len(clusters):
        clusters = [Cluster(n, c.nodes) for n, c in zip(names, clusters, strict=True)]
    return tuple(clusters)


def driver_graph(runner: Runner) -> DriverGraph | Missing:
    """The captured graphs of `runner` as its driver draws them.

    Raises:
        DotError: the driver's text can't be read.
        DeviceError: the driver would not draw.
    """
    if runner.device.kind != "cuda":
        return Missing(f"the {runner.device.kind} device has no driver to ask")
    dots = runner.graph_dots()
    if not dots:
        return Missing("these stages capture no graph")
    text = "\n".join(dots.values())
    names = [cluster.name for cluster in from_program(runner.program) if cluster.graphed]
    return DriverGraph(from_dot(text, names), text)


def _past_attributes(tokens: Sequence[str], at: int) -> int:
    """The place after an attribute list that may begin at `at`."""
    if at >= len(tokens) or tokens[at] != "[":
        return at
    while at < len(tokens) and tokens[at] != "]":
        at += 1
    return at + 1


def _attribute(tokens: Sequence[str], name: str) -> str:
    for i, token in enumerate(tokens[:-2]):
        if token == name and tokens[i + 1] == "=":
            return tokens[i + 2]
    return ""


def _driver_nodes(
    nodes: Sequence[tuple[str, str]], edges: Sequence[tuple[str, str]]
) -> Iterator[Node]:
    """The work nodes of one graph in the order of its edges.

    Where several are ready at once, each begins a branch, which goes on for as long as a node has
    one follower, and that one nothing else to wait for.
    """
    labels = dict(nodes)
    after: dict[str, list[str]] = {name: [] for name in labels}
    waits = dict.fromkeys(labels, 0)
    for a, b in edges:
        if a in labels and b in labels:
            after[a].append(b)
            waits[b] += 1
    single = {name for name, count in waits.items() if count < 2}
    left, forks = dict(labels), 0

    def take(name: str) -> str:
        del left[name]
        for follower in after[name]:
            waits[follower] -= 1
        return labels[name]

    while left:
        ready = [n for n in left if waits[n] == 0] or [next(iter(left))]
        if len(ready) == 1:
            if node := _worker(take(ready[0])):
                yield node
            continue
        forks += 1
        for branch, name in enumerate(ready):
            at = name
            while True:
                if node := _worker(take(at)):
                    yield replace(node, fork=forks, branch=branch)
                if len(after[at]) != 1 or after[at][0] not in single & left.keys():
                    break
                at = after[at][0]


def _worker(label: str) -> Node | None:
    """The node of a driver's label, or ``None`` for one that does no work."""
    lines = [line.strip() for line in re.split(r"\n|\\n", label) if line.strip()]
    words = [line for line in lines if not line.isdigit()]
    if not words or any(_HOLDERS.search(line) for line in words):
        return None
    return _driver_node(words[0])


def _driver_node(text: str) -> Node:
    lowered = text.lower()
    for kind in ("memset", "memcpy"):
        if lowered.startswith(kind):
            return Node(lowered, "copy" if kind == "memcpy" else "memset")
    return Node(text, "kernel")


# ---------------------------------------------------------------- drawing

_BOX, _GAP, _HEAD, _PAD, _BETWEEN, _GUTTER = 24, 9, 28, 9, 22, 26
_CHARACTER = 6.6  # widest usual advance of the 11.5 px monospaced labels, rounded up


def draw(clusters: Sequence[Cluster], columns: int, width: int, title: str) -> str:
    """Draw `clusters` as a chain in at most `columns` columns of an SVG `width` units wide."""
    stacks = _split([_height(c) for c in clusters], columns)
    column = (width - _GUTTER * (len(stacks) - 1)) / len(stacks)
    parts: list[str] = []
    bottom, number, previous = 0.0, 0, (0.0, 0.0)
    for at, size in enumerate(stacks):
        x, y = at * (column + _GUTTER), 10.0
        for index in range(size):
            cluster = clusters[number]
            if number and index:
                parts.append(_arrow(x + column / 2, y - _BETWEEN, y))
            elif number:
                parts.append(_elbow(previous, x, column, y))
            parts.append(_cluster(cluster, x, y, column))
            y += _height(cluster) + _BETWEEN
            number += 1
        previous = (x + column / 2, y - _BETWEEN)
        bottom = max(bottom, y)
    return (
        f'<svg viewBox="0 0 {width} {bottom:.0f}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def _rows(cluster: Cluster) -> Iterator[list[list[Node]]]:
    """A cluster from top to bottom: a node of its own, or the branches of a fork."""
    for fork, group in groupby(cluster.nodes, lambda node: node.fork):
        members = list(group)
        if fork:
            yield [list(b) for _, b in groupby(members, lambda node: node.branch)]
        else:
            yield from ([[node]] for node in members)


def _height(cluster: Cluster) -> float:
    n = sum(max(map(len, row)) for row in _rows(cluster))
    return _HEAD + n * _BOX + (n - 1) * _GAP + _PAD


def _split(heights: Sequence[float], columns: int) -> list[int]:
    """Cut a sequence into runs, in order, so that the highest column is as low as can be."""
    low, high = max(heights) + _BETWEEN, sum(h + _BETWEEN for h in heights)
    while high - low > 1:
        middle = (low + high) / 2
        if len(_filled(heights, middle)) <= columns:
            high = middle
        else:
            low = middle
    return _filled(heights, high)


def _filled(heights: Sequence[float], limit: float) -> list[int]:
    runs, used = [0], 0.0
    for height in heights:
        if runs[-1] and used + height + _BETWEEN > limit:
            runs.append(0)
            used = 0.0
        runs[-1] += 1
        used += height + _BETWEEN
    return runs


def _cluster(cluster: Cluster, x: float, y: float, width: float) -> str:
    parts = [
        f'<rect class="cluster{"" if cluster.graphed else " loose"}" x="{x + 0.5:.1f}" y="{y:.1f}"'
        f' width="{width - 1:.1f}" height="{_height(cluster):.1f}" rx="7"/>',
        f'<text class="cluster-name" x="{x + 10:.1f}" y="{y + 18:.1f}">'
        f"{escape(cluster.name)}</text>",
        f'<text class="cluster-size" x="{x + width - 10:.1f}" y="{y + 18:.1f}">'
        f"{len(cluster.nodes)}</text>",
    ]
    top, above = y + _HEAD, 0
    for row in _rows(cluster):
        if above:
            lanes = max(above, len(row))
            parts += [_arrow(a + w / 2, top - _GAP, top) for a, w in _lanes(x, width, lanes)]
        above, longest = len(row), max(map(len, row))
        for (left, lane), nodes in zip(_lanes(x, width, len(row)), row, strict=True):
            middle = left + lane / 2
            for k, node in enumerate(nodes):
                at = top + k * (_BOX + _GAP)
                if k:
                    parts.append(_arrow(middle, at - _GAP, at))
                parts.append(_drawn(node, left, at, lane))
            if len(nodes) < longest:  # on to the foot of the longest branch
                end, foot = (top + n * (_BOX + _GAP) - _GAP for n in (len(nodes), longest))
                parts.append(f'<path class="edge" d="M{middle:.1f} {end:.1f}V{foot:.1f}"/>')
        top += longest * (_BOX + _GAP)
    return "".join(parts)


def _lanes(x: float, width: float, count: int) -> list[tuple[float, float]]:
    """Left edge and width of each of `count` boxes side by side in a cluster."""
    lane = (width - 18 - _GAP * (count - 1)) / count
    return [(x + 9 + i * (lane + _GAP), lane) for i in range(count)]


def _drawn(node: Node, x: float, y: float, width: float) -> str:
    room = max(1, int((width - 10) / _CHARACTER))
    label = node.label if len(node.label) <= room else f"{node.label[: room - 1]}…"
    return (
        f'<g class="node {node.kind}"><title>{escape(node.label)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BOX}" rx="4"/>'
        f'<text x="{x + width / 2:.1f}" y="{y + 16:.1f}">{escape(label)}</text></g>'
    )


def _arrow(x: float, top: float, bottom: float) -> str:
    return (
        f'<path class="edge" d="M{x:.1f} {top:.1f}V{bottom - 3:.1f}"/>'
        f'<path class="tip" d="M{x - 3:.1f} {bottom - 5:.1f}h6l-3 5z"/>'
    )


def _elbow(start: tuple[float, float], x: float, width: float, top: float) -> str:
    """From the foot of one column, up through the gutter, to the head of the next."""
    lane, middle = x - _GUTTER / 2, x + width / 2
    foot, head = start[1] + 9, top - 7
    return (
        f'<path class="edge" d="M{start[0]:.1f} {start[1]:.1f}V{foot:.1f}H{lane:.1f}V{head:.1f}'
        f'H{middle:.1f}V{top - 3:.1f}"/>'
        f'<path class="tip" d="M{middle - 3:.1f} {top - 5:.1f}h6l-3 5z"/>'
    )
