"""Follow a function from top to bottom: what each expression is, what is called, what is asked.

One pass, in the order of the source, with both arms of a branch. The result is a list of `Event`s
for the rules and of `Edge`s for the spread of hotness.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from onegraph.guards.engine import arrays
from onegraph.guards.engine.calls import Calls
from onegraph.guards.engine.conditions import guard_of
from onegraph.guards.engine.events import Edge, Event
from onegraph.guards.engine.values import (
    HOST,
    UNKNOWN,
    Array,
    FunctionRef,
    Instance,
    Object,
    Value,
    join,
)

__all__ = ["Edge", "Event", "Flow"]


class Flow(Calls):
    """One function's pass; see the module. A method for each kind of statement."""

    def run(self) -> None:
        """Go through the body."""
        body = self.function.body
        if self.function.lambda_node is not None:
            self._statement = body[0]
            self.result = self.value(self.function.lambda_node.body)
            return
        self._block(body)

    def probe(self, statement: ast.stmt, node: ast.expr) -> Value:
        """What one expression is, of a statement that is not followed otherwise."""
        self._statement = statement
        return self.value(node)

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement = statement
            method = getattr(self, f"_do_{type(statement).__name__}", None)
            if method is not None:
                method(statement)

    def _under(self, guard: str, body: Sequence[ast.stmt]) -> None:
        self._guards.append(guard)
        self._block(body)
        self._guards.pop()

    def _do_Expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def _do_Return(self, node: ast.Return) -> None:
        value = self.value(node.value) if node.value is not None else HOST
        self.result = join(self.result, value) if self._returned else value
        self._returned = True

    def _do_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._bind(target, value)

    def _do_AnnAssign(self, node: ast.AnnAssign) -> None:
        declared = self.annotation(node.annotation)
        value = self.value(node.value) if node.value is not None else UNKNOWN
        chosen = value if isinstance(value, (Object, Array, FunctionRef, Instance)) else UNKNOWN
        self._bind(node.target, chosen if chosen != UNKNOWN else join(declared, value))

    def _do_AugAssign(self, node: ast.AugAssign) -> None:
        value = arrays.operate([self.value(node.target), self.value(node.value)])
        if not isinstance(node.target, ast.Subscript):
            self._bind(node.target, value)

    def _do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.env.pop(target.id, None)

    def _do_Raise(self, node: ast.Raise) -> None:
        self._guards.append("error")
        if node.exc is not None:
            self.value(node.exc)
        self._guards.pop()

    def _do_Assert(self, node: ast.Assert) -> None:
        self._test(node.test, "assert")
        if node.msg is not None:
            self._guards.append("error")
            self.value(node.msg)
            self._guards.pop()

    def _do_If(self, node: ast.If) -> None:
        self._test(node.test, "if")
        before = dict(self.env)
        self._under(guard_of(node.test, node.body, node.orelse), node.body)
        after, self.env = self.env, before
        if node.orelse:
            self._block(node.orelse)
        for name, value in after.items():
            self.env[name] = join(value, self.env.get(name, UNKNOWN))

    def _do_While(self, node: ast.While) -> None:
        self._loops += 1
        self._test(node.test, "while")
        self._block(node.body)
        self._loops -= 1
        self._block(node.orelse)

    def _do_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._bind(node.target, self._iterate(node.iter))
        self._loops += 1
        self._block(node.body)
        self._loops -= 1
        self._block(node.orelse)

    _do_AsyncFor = _do_For

    def _do_With(self, node: ast.With | ast.AsyncWith) -> None:
        captured = 0
        for item in node.items:
            value = self.value(item.context_expr)
            if self._category_of(item.context_expr) == "capture_begin":
                captured += 1
                self._captured -= 1  # the call itself had opened it
            if item.optional_vars is not None:
                self._bind(item.optional_vars, value)
        self._captured += captured
        self._block(node.body)
        self._captured -= captured

    _do_AsyncWith = _do_With

    def _category_of(self, node: ast.expr) -> str:
        for event in reversed(self.events):
            if event.node is node:
                return event.category
        return ""

    def _do_Try(self, node: ast.Try) -> None:
        self._block(node.body)
        for handler in node.handlers:
            if handler.name:
                self.env[handler.name] = HOST
            self._under("error", handler.body)
        self._block(node.orelse)
        self._block(node.finalbody)

    _do_TryStar = _do_Try

    def _do_Match(self, node: ast.Match) -> None:
        subject = self.value(node.subject)
        for case in node.cases:
            for inner in ast.walk(case.pattern):
                if isinstance(inner, (ast.MatchAs, ast.MatchStar)) and inner.name:
                    self.env[inner.name] = subject if inner is case.pattern else UNKNOWN
            if case.guard is not None:
                self._test(case.guard, "case")
            self._block(case.body)

    def _do_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.value(default)

    _do_AsyncFunctionDef = _do_FunctionDef
