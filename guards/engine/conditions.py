"""When a stretch of a hot function does not run each time.

- ``once``: a memo, ``if self.graph is None: self.graph = capture()``;
- ``logging``: a block under ``step % n == 0`` that only logs;
- ``modulo``: any other block under ``step % n == 0``; it still is hot, since a learner's whole
  update often stands under ``step % train_frequency == 0``;
- ``error``: what runs only to raise.
"""

from __future__ import annotations

import ast

LOG_NAMES = frozenset(
    {
        "add_scalar", "add_scalars", "add_histogram", "add_video", "add_image", "add_figure",
        "add_text", "log", "log_dict", "record", "record_mean", "logkv", "print", "debug", "info",
        "warning", "write", "update", "set_postfix", "set_description", "set_postfix_str", "append",
        "dump", "track_data", "log_scalar", "log_scalars", "flush",
    }
)  # fmt: skip


def guard_of(test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> str:
    """The word for the body of ``if test``."""
    if _only_raises(body):
        return "error"
    if _is_memo(test, [*body, *orelse]):
        return "once"
    if _has_modulo(test):
        return "logging" if all(_only_logs(s) for s in body) else "modulo"
    return ""


def _only_raises(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Raise)


def _has_modulo(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test)
    )


def _only_logs(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.For, ast.With, ast.If)):
        return all(_only_logs(inner) for inner in statement.body)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return isinstance(statement, ast.Pass)
    function = statement.value.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in LOG_NAMES


def _is_memo(test: ast.expr, body: list[ast.stmt]) -> bool:
    """The test asks whether something is there yet, and the body puts it there."""
    if isinstance(test, ast.BoolOp):
        return any(_is_memo(value, body) for value in test.values)
    asked: ast.expr | None = None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked = test.operand
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        if isinstance(test.ops[0], ast.Is) and _is_none(test.comparators[0]):
            asked = test.left
        elif isinstance(test.ops[0], ast.NotIn):
            asked = test.comparators[0]
    if isinstance(asked, ast.Call) and getattr(asked.func, "id", "") in ("hasattr", "getattr"):
        arguments = asked.args
        if len(arguments) > 1 and isinstance(arguments[1], ast.Constant):
            return any(
                isinstance(n, ast.Attribute)
                and isinstance(n.ctx, ast.Store)
                and n.attr == arguments[1].value
                for s in body
                for n in ast.walk(s)
            )
    if asked is None or isinstance(asked, ast.Call):
        return False
    wanted = ast.dump(asked)
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    inner = target.value if isinstance(target, ast.Subscript) else target
                    if ast.dump(inner).replace("Store()", "Load()") == wanted:
                        return isinstance(asked, ast.Attribute) or isinstance(target, ast.Subscript)
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
