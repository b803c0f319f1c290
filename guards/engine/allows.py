"""Allow comments: ``# guards: allow[GRD102] -- reason``, on any line of a statement.

The run-time half (`onegraph.kernels.device.no_roundtrips`) reads the same comment by the same
functions. The word ``runtime`` among the codes says that the comment is for that half, so that the
lint does not call it unused.
"""

from __future__ import annotations

import io
import re
import tokenize

ALLOW = re.compile(
    r"#\s*guards:\s*allow\[(?P<codes>[^\]]*)\](?:\s*--\s*(?P<reason>\S.*?))?\s*(?=#|$)"
)
RUNTIME = "runtime"

#: Line, column, end column, codes, reason.
Allow = tuple[int, int, int, tuple[str, ...], str]


def find_allows(text: str) -> list[Allow]:
    """Every allow comment of a file; what stands in a string is none."""
    if "guards:" not in text:
        return []
    found: list[Allow] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found += _in_comment(token.string, token.start[0], token.start[1])
    except (tokenize.TokenError, SyntaxError):  # syntax newer than this Python's tokenizer
        found = []
        for row, line in enumerate(text.splitlines(), start=1):
            if "guards:" in line:
                found += _in_comment(line, row, 0)
    return found


def _in_comment(comment: str, row: int, offset: int) -> list[Allow]:
    return [
        (
            row,
            offset + match.start(),
            offset + match.end(),
            tuple(code for code in re.split(r"[\s,]+", match["codes"]) if code),
            (match["reason"] or "").strip(),
        )
        for match in ALLOW.finditer(comment)
    ]


def allowed_on(line: str) -> frozenset[str]:
    """The codes that an allow comment on this line of source gives, if it has a reason."""
    return frozenset(
        code for _, _, _, codes, reason in _in_comment(line, 1, 0) if reason for code in codes
    )
