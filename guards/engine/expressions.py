"""What each kind of expression is."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from onegraph.guards.engine import arrays
from onegraph.guards.engine.project import last_name
from onegraph.guards.engine.scope import Scope
from onegraph.guards.engine.values import (
    HOST,
    UNKNOWN,
    Array,
    FunctionRef,
    Group,
    Host,
    Instance,
    Items,
    Object,
    Value,
    element,
    join,
)


class Expressions(Scope):
    """The expressions but for calls; a method each, named after its node as in `ast`."""

    def _test(self, node: ast.expr, construct: str) -> Value:
        """A truth test, with what stands inside `and`, `or` and `not`."""
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self._test(value, construct)
            return HOST
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._test(node.operand, "not" if construct == "value" else construct)
            return HOST
        found = self.value(node)
        self._event("truth", node, value=found, construct=construct)
        return found

    def _of_Constant(self, node: ast.Constant) -> Value:
        return HOST

    def _of_Name(self, node: ast.Name) -> Value:
        return self._name(node.id)

    def _of_NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self._bind(node.target, value)
        return value

    def _of_Tuple(self, node: ast.Tuple) -> Value:
        return Group(tuple(self.value(e) for e in node.elts))

    def _of_List(self, node: ast.List | ast.Set) -> Value:
        found: Value = UNKNOWN
        for inner in node.elts:
            found = join(found, self.value(inner))
        return Items(found)

    _of_Set = _of_List

    def _of_Dict(self, node: ast.Dict) -> Value:
        found: Value = UNKNOWN
        for key in node.keys:
            if key is not None:
                self.value(key)
        for inner in node.values:
            found = join(found, self.value(inner))
        return Items(found) if isinstance(found, Array) else UNKNOWN

    def _of_Starred(self, node: ast.Starred) -> Value:
        return element(self.value(node.value))

    def _of_Await(self, node: ast.Await) -> Value:
        return self.value(node.value)

    def _of_Yield(self, node: ast.Yield) -> Value:
        value = self.value(node.value) if node.value is not None else HOST
        self.result, self._returned = join(self.result, Items(value)), True
        return UNKNOWN

    def _of_YieldFrom(self, node: ast.YieldFrom) -> Value:
        self.result, self._returned = join(self.result, self.value(node.value)), True
        return UNKNOWN

    def _of_IfExp(self, node: ast.IfExp) -> Value:
        self._test(node.test, "conditional expression")
        return join(self.value(node.body), self.value(node.orelse))

    def _of_BoolOp(self, node: ast.BoolOp) -> Value:
        found: Value = UNKNOWN
        for inner in node.values[:-1]:
            found = join(found, self._test(inner, "and/or"))
        return join(found, self.value(node.values[-1]))

    def _of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            self._test(node.operand, "not")
            return HOST
        return self.value(node.operand)

    def _of_BinOp(self, node: ast.BinOp) -> Value:
        # A chain of additions leans left; unroll it, so that a long one does not nest.
        operands: list[ast.expr] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            operands.append(left.right)
            left = left.left
        operands.append(left)
        values = [self.value(o) for o in reversed(operands)]
        is_text = isinstance(left, ast.JoinedStr) or (
            isinstance(left, ast.Constant) and isinstance(left.value, str)
        )
        if isinstance(node.op, ast.Mod) and is_text:
            for position, inner in enumerate(values[1:]):
                self._formatted(operands[-2 - position], inner, "% formatting")
            return HOST
        return arrays.operate(values)

    def _of_Compare(self, node: ast.Compare) -> Value:
        values = [self.value(node.left), *(self.value(c) for c in node.comparators)]
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return HOST
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            if isinstance(values[-1], Array):
                self._event("truth", node, value=values[-1], construct="in")
            return HOST
        return arrays.operate(values, boolean=True)

    def _of_Lambda(self, node: ast.Lambda) -> Value:
        return FunctionRef(self.analysis.lambda_function(self.function, node))

    def _of_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        self._generators(node.generators)
        return Items(self.value(node.elt))

    _of_SetComp = _of_ListComp

    _of_GeneratorExp = _of_ListComp

    def _of_DictComp(self, node: ast.DictComp) -> Value:
        self._generators(node.generators)
        self.value(node.key)
        return Items(self.value(node.value))

    def _generators(self, generators: Sequence[ast.comprehension]) -> None:
        for generator in generators:
            self._bind(generator.target, self._iterate(generator.iter))
            for test in generator.ifs:
                self._test(test, "comprehension")

    def _iterate(self, node: ast.expr) -> Value:
        """What one turn over `node` gives."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name == "enumerate" and node.args:
                return Group((HOST, element(self.value(node.args[0]))))
            if name == "zip":
                return Group(tuple(element(self.value(a)) for a in node.args))
        value = self.value(node)
        return HOST if isinstance(node, ast.Call) and last_name(node) == "range" else element(value)

    def _of_JoinedStr(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self._formatted(part.value, self.value(part.value), "f-string")
        return HOST

    def _of_Subscript(self, node: ast.Subscript) -> Value:
        owner = self.value(node.value)
        return self._index(node, owner, None)

    def _index(self, node: ast.Subscript, owner: Value, stored: Value | None) -> Value:
        inner = node.slice
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        values: list[Value] = []
        for part in parts:
            if isinstance(part, ast.Slice):
                for bound in (part.lower, part.upper, part.step):
                    if bound is not None and isinstance(found := self.value(bound), Array):
                        self._event("scalar", bound, value=found, construct="a slice bound")
                values.append(HOST)
            else:
                values.append(self.value(part))
        if isinstance(owner, Array):
            for value in values:
                if isinstance(value, Array) and value.boolean:
                    self._event(
                        "index",
                        node,
                        value=value,
                        receiver=owner,
                        construct="store" if stored is not None else "load",
                        args=() if stored is None else (stored,),
                    )
            return owner
        if isinstance(owner, (Items, Group)):
            constant = inner.value if isinstance(inner, ast.Constant) else None
            if (
                isinstance(owner, Group)
                and isinstance(constant, int)
                and -len(owner.values) <= constant < len(owner.values)
            ):
                return owner.values[constant]
            if isinstance(inner, ast.Slice):
                return owner
            return element(owner)
        if isinstance(owner, Host):
            return HOST
        if isinstance(owner, Object) and (method := owner.cls.find("__getitem__")) is not None:
            return self._invoke(FunctionRef(method, owner), node, values, {})
        if isinstance(owner, (FunctionRef, Instance)):
            return owner  # kernel[grid]
        return UNKNOWN

    def _of_Attribute(self, node: ast.Attribute) -> Value:
        return self.attribute(self.value(node.value), node.attr, node)
