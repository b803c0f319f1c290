"""What the run-time half asks of the lint: which codes a line of source allows.

`onegraph.kernels.device.no_roundtrips` calls this when a forbidden device call happens, so that one
comment serves both halves: on any line of the statement, with a reason.
"""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from onegraph.guards.engine.allows import Allow, find_allows
from onegraph.guards.engine.reading import ReadError, parse


def allowed_at(file: str, line: int) -> frozenset[str]:
    """The codes that an allow comment with a reason gives the statement at `line` of `file`.

    A file that can't be read allows nothing.
    """
    text = "".join(linecache.getlines(file))
    if "guards:" not in text:
        return frozenset()
    allows, statements = _known(text)
    around = [span for span in statements if span[0] <= line <= span[1]]
    first, last = min(around, key=lambda span: span[1] - span[0], default=(line, line))
    return frozenset(
        code
        for row, _, _, codes, reason in allows
        if reason and first <= row <= last
        for code in codes
    )


@lru_cache(maxsize=64)
def _known(text: str) -> tuple[list[Allow], list[tuple[int, int]]]:
    """Allow comments, and first and last line of each statement: of a compound one, its head."""
    try:
        tree = parse(text)
    except ReadError:
        return find_allows(text), []
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            end = node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            if isinstance(body, list) and body:
                end = max(node.lineno, body[0].lineno - 1)
            spans.append((node.lineno, end))
    return find_allows(text), spans
