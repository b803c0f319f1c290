"""Which functions are hot, which run inside a capture, and the chain that made them so."""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from onegraph.guards.engine.analysis import Analysis
from onegraph.guards.engine.index import CAPTURES
from onegraph.guards.engine.project import BODY, Function, Module
from onegraph.guards.engine.reading import lines_of

#: A function is looked at again when callers pass it more, so often at most.
VISITS = 4


@dataclass(frozen=True)
class Link:
    """How a function became hot: by `caller`, or by itself (``None``)."""

    caller: Function | None
    line: int


class Hotness:
    """The spread from the functions that are marked or named in the config.

    Attributes:
        hot, captured: each function that is, with the link to the one before it.
        loops: roots of which only the loops are hot.
        unmatched: globs of the config that name no function.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.hot: dict[Function, Link] = {}
        self.captured: dict[Function, Link] = {}
        self.loops: set[Function] = set()
        self.unmatched: tuple[str, ...] = ()
        self._cold: dict[Function, bool] = {}
        names = [
            re.escape(name.rpartition(".")[2])
            for name, category in analysis.config.apis.items()
            if category == "capture_begin"
        ]
        self._words = re.compile(rf"\b(?:{'|'.join(names)})\(") if names else None
        self._capturing: dict[Module, tuple[Function, ...]] = {}

    def is_cold(self, function: Function) -> bool:
        """Marked ``@cold_path``, named cold in the config, or nested in such a function."""
        if function not in self._cold:
            self._cold[function] = (
                function.marked("cold_path")
                or any(_named(function, glob) for glob in self.analysis.config.cold)
                or (function.parent is not None and self.is_cold(function.parent))
            )
        return self._cold[function]

    def roots(self) -> Iterable[Function]:
        """Marked functions, and those that the config names."""
        wanted = [glob.removesuffix(":loop") for glob in self.analysis.config.hot]
        loops = {g.removesuffix(":loop") for g in self.analysis.config.hot if g.endswith(":loop")}
        left = dict.fromkeys(wanted)
        for function in self.analysis.project.functions():
            matched = [glob for glob in wanted if _named(function, glob)]
            for glob in matched:
                left.pop(glob, None)
            if function.marked("hot_path"):
                yield function
            elif matched:
                if all(glob in loops for glob in matched):
                    self.loops.add(function)
                yield function
        self.unmatched = tuple(left)

    def spread(self) -> None:
        """Fill `hot`, then `captured`."""
        queue = deque[Function]()
        for root in self.roots():
            if not self.is_cold(root):
                self.hot[root] = Link(None, root.line)
                queue.append(root)
        self._follow(queue, self.hot, captured=False)
        queue = deque()
        for function in [*self.hot, *self._with_captures()]:
            if function in self.captured:
                continue
            if self.analysis.is_compiled(function):
                self.captured[function] = Link(None, function.line)
                queue.append(function)
            for edge in self.analysis.flow(function).edges:
                known = not edge.captured or edge.target in self.captured
                if not known and not self.is_cold(edge.target):
                    self.captured[edge.target] = Link(function, edge.line)
                    queue.append(edge.target)
        self._follow(queue, self.captured, captured=True)

    def _follow(
        self, queue: deque[Function], found: dict[Function, Link], *, captured: bool
    ) -> None:
        visits: dict[Function, int] = {}
        while queue:
            function = queue.popleft()
            visits[function] = visits.get(function, 0) + 1
            for edge in list(self.analysis.flow(function).edges):
                if edge.guard or (edge.captured and not captured):
                    continue
                if function in self.loops and not edge.in_loop and not captured:
                    continue
                target = edge.target
                if self.is_cold(target) or target.dotted in self.analysis.config.apis:
                    continue
                news = self.analysis.learn_parameters(target, edge.arguments)
                if target not in found:
                    found[target] = Link(function, edge.line)
                    queue.append(target)
                elif news and visits.get(target, 0) < VISITS and target not in queue:
                    queue.append(target)

    def _with_captures(self) -> Iterable[Function]:
        """Functions that capture or launch, hot or not."""
        for module in self.analysis.project.modules.values():
            yield from self.capturing(module)

    def capturing(self, module: Module) -> tuple[Function, ...]:
        """The functions that may capture, by the frameworks' names or by the config's own."""
        if module not in self._capturing:
            self._capturing[module] = tuple(self._find_capturing(module))
        return self._capturing[module]

    def _find_capturing(self, module: Module) -> Iterable[Function]:
        own = self._words is not None and self._words.search(module.text)
        if not module.declared["captures"] and not own:
            return
        places = [match.start() for match in CAPTURES.finditer(module.text)]
        if self._words is not None:
            places += [match.start() for match in self._words.finditer(module.text)]
        starts = list(accumulate(map(len, lines_of(module.text)), initial=0))
        rows = {bisect_right(starts, place) for place in places}
        inside: set[int] = set()
        for function in module.functions:
            # A decorator stands above the first line.
            found = {r for r in rows if function.line <= r <= function.end}
            if found or self.analysis.is_compiled(function):
                inside |= found
                yield function
        if rows - inside:
            yield module.body

    def chain(self, function: Function, *, captured: bool = False) -> tuple[Function, ...]:
        """From the root to `function`."""
        links = self.captured if captured else self.hot
        found = [function]
        while (link := links.get(found[-1])) is not None and link.caller is not None:
            if link.caller in found:
                break
            found.append(link.caller)
            if captured and found[-1] not in links:
                break
        return tuple(reversed(found))


def _named(function: Function, glob: str) -> bool:
    """Whether `glob` names it: its dotted name, or that of the module for a module's body."""
    if function.qualname == BODY and not glob.endswith(BODY):
        return False
    return fnmatch.fnmatchcase(function.dotted, glob)
