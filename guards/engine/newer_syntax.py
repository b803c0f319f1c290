"""Read syntax newer than the running Python's.

`ast` knows the running interpreter's grammar alone. libcst has a parser of its own, so a file that
`ast` refuses and libcst reads is rewritten here into older syntax *without moving anything*: each
new construct is blanked out or exchanged within its own span, so that every line and column of the
result is that of the file, and findings and fixes still fit.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst


class UnreadableError(SyntaxError):
    """Neither `ast` nor libcst can read the text."""


def parse_newer(text: str) -> ast.Module:
    """The tree of `text`, which `ast.parse` has refused.

    Raises:
        UnreadableError: libcst can't read it either, or it uses a construct that has no older
            form of the same length.
    """
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider

    try:
        wrapper = MetadataWrapper(cst.parse_module(text))
    except cst.ParserSyntaxError as error:
        raise UnreadableError(str(error.message)) from error
    positions = wrapper.resolve(PositionProvider)
    lines = [list(line) for line in text.splitlines(keepends=True)]

    def put(row: int, column: int, words: str) -> None:
        lines[row - 1][column : column + len(words)] = words

    def blank(node: cst.CSTNode) -> None:
        span = positions[node]
        for row in range(span.start.line, span.end.line + 1):
            first = span.start.column if row == span.start.line else 0
            end = len(lines[row - 1]) if row != span.end.line else span.end.column
            for column in range(first, end):
                if lines[row - 1][column] not in "\r\n":
                    lines[row - 1][column] = " "

    class Older(cst.CSTVisitor):
        def visit_TypeParameters(self, node: cst.TypeParameters) -> bool:
            blank(node)
            return False

        def visit_TypeAlias(self, node: cst.TypeAlias) -> bool:
            start = positions[node].start
            name = node.name.value
            put(start.line, start.column, name.ljust(len("type ") + len(name)))
            if node.type_parameters is not None:
                blank(node.type_parameters)
            return False

        def visit_FormattedString(self, node: cst.FormattedString) -> bool:
            # PEP 701 lets an expression use the quotes of its own f-string.
            outer = node.end[0]
            for part in node.parts:
                if not isinstance(part, cst.FormattedStringExpression):
                    continue
                span = positions[part.expression]
                for row in range(span.start.line, span.end.line + 1):
                    first = span.start.column if row == span.start.line else 0
                    end = span.end.column if row == span.end.line else len(lines[row - 1])
                    for column in range(first, end):
                        if lines[row - 1][column] == outer:
                            lines[row - 1][column] = "'" if outer == '"' else '"'
                        elif lines[row - 1][column] == "\\":
                            lines[row - 1][column] = "_"
            return False

        def visit_TemplatedString(self, node: cst.CSTNode) -> bool:
            start = positions[node].start
            put(start.line, start.column, "f")
            return False

        def visit_ExceptHandler(self, node: cst.ExceptHandler) -> bool:
            # PEP 758 lets `except A, B:` go without parentheses; the first class stands for all.
            if isinstance(node.type, cst.Tuple) and not node.type.lpar:
                for element in node.type.elements[1:]:
                    blank(element)
                comma = node.type.elements[0].comma
                if isinstance(comma, cst.Comma):
                    blank(comma)
            return True

    wrapper.module.visit(Older())
    try:
        return ast.parse("".join("".join(line) for line in lines))
    except SyntaxError as error:
        raise UnreadableError(
            f"line {error.lineno}: {error.msg}; this syntax is newer than the running Python's"
        ) from error
