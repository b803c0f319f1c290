"""A function's names: parameters, locals, what encloses them, annotations, attributes."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onegraph.guards.engine import arrays
from onegraph.guards.engine.events import Edge, Event
from onegraph.guards.engine.project import Class, Function, last_name
from onegraph.guards.engine.values import (
    HOST,
    UNKNOWN,
    Array,
    ClassRef,
    External,
    FunctionRef,
    Group,
    Host,
    Instance,
    Items,
    ModuleRef,
    Object,
    SuperRef,
    Value,
    element,
    join,
)

if TYPE_CHECKING:
    from onegraph.guards.engine.analysis import Analysis


_BUILTINS = frozenset(dir(builtins))


class Scope(ABC):
    """What a name or an attribute is where the pass stands; see `onegraph.guards.engine.flow`."""

    def __init__(self, analysis: Analysis, function: Function, given: Mapping[str, Value]) -> None:
        self.analysis, self.function = analysis, function
        self.module = function.module
        self.project = function.module.project
        self.env: dict[str, Value] = {}
        self.events: list[Event] = []
        self.edges: list[Edge] = []
        self.attributes: dict[str, Value] = {}
        self.result: Value = UNKNOWN
        self._returned = False
        self._captured = 0
        self._guards: list[str] = []
        self._loops = 0
        self._statement: ast.stmt | None = None
        self._parameters(given)

    def _parameters(self, given: Mapping[str, Value]) -> None:
        node = self.function.node
        if isinstance(node, ast.Module):
            return
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for position, parameter in enumerate(every):
            value = self.annotation(parameter.annotation) if parameter.annotation else UNKNOWN
            if position == 0 and self.function.cls is not None:
                if self.function.decorated_by("staticmethod"):
                    pass
                elif self.function.decorated_by("classmethod"):
                    value = ClassRef(self.function.cls)
                else:
                    value = Object(self.function.cls)
                    passed = given.get(parameter.arg)
                    if isinstance(passed, Object) and self.function.cls in passed.cls.mro:
                        value = passed
            elif (passed := given.get(parameter.arg, UNKNOWN)) != UNKNOWN and (
                value in (UNKNOWN, HOST) or isinstance(value, Array)
            ):
                value = passed
            self.env[parameter.arg] = value
        if node.args.vararg is not None:
            self.env[node.args.vararg.arg] = Items(UNKNOWN)
        if node.args.kwarg is not None:
            self.env[node.args.kwarg.arg] = UNKNOWN

    def annotation(self, node: ast.expr | None) -> Value:
        """What an annotation says its name holds."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return UNKNOWN
        if node is None or (isinstance(node, ast.Constant)):
            return UNKNOWN if node is None or node.value is not None else HOST
        if isinstance(node, ast.BinOp):
            return join(self.annotation(node.left), self.annotation(node.right))
        if isinstance(node, ast.Subscript):
            name = last_name(node.value)
            inner = node.slice
            if name in ("Optional", "Annotated", "Final", "ClassVar", "Union", "Required"):
                parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                parts = parts[:1] if name == "Annotated" else parts
                found: Value = UNKNOWN
                for part in parts:
                    found = join(found, self.annotation(part))
                return found
            if name in ("tuple", "Tuple"):
                if isinstance(inner, ast.Tuple):
                    if len(inner.elts) == 2 and isinstance(inner.elts[1], ast.Constant):
                        return Items(self.annotation(inner.elts[0]))
                    return Group(tuple(self.annotation(e) for e in inner.elts))
                return Items(self.annotation(inner))
            if name in ("list", "List", "Sequence", "Iterable", "Iterator", "Generator", "set"):
                first = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
                return Items(self.annotation(first))
            if name in ("dict", "Dict", "Mapping", "MutableMapping") and isinstance(
                inner, ast.Tuple
            ):
                return Items(self.annotation(inner.elts[-1]))
            return self.annotation(node.value)
        if isinstance(node, ast.Name) and node.id in (
            "int", "float", "bool", "str", "bytes", "complex",
        ):  # fmt: skip
            return HOST
        match self.project.resolve(node, self.module, self.function):
            case External(dotted):
                dotted = self.analysis.canonical(dotted)
                if dotted in arrays.ARRAY_NAMES:
                    return Array(arrays.ARRAY_NAMES[dotted])
                if dotted.startswith("numpy."):
                    return HOST
                return Instance(dotted) if dotted.rpartition(".")[2][:1].isupper() else UNKNOWN
            case ClassRef(cls):
                return Object(cls)
            case Array() | Group() | Items() as value:  # an alias of a type
                return value
        return UNKNOWN

    def _name(self, name: str) -> Value:
        if name in self.env:
            return self.env[name]
        scope: Function | None = self.function
        while scope is not None:
            if (target := self.module.imports.get(scope.ordinal, {}).get(name)) is not None and (
                scope.ordinal >= 0
            ):
                return self.project.imported(target, frozenset())
            if (nested := self.analysis.nested(scope, name)) is not None:
                return nested
            scope = scope.parent
            if scope is not None and name in (env := self.analysis.flow(scope).env):
                return env[name]
        found = self.project.global_name(self.module, name)
        if found == UNKNOWN and name in _BUILTINS:
            return External(f"builtins.{name}")
        return found

    def _own_name(self) -> str:
        parameters = self.function.parameters
        return parameters[0].arg if parameters and self.function.cls is not None else ""

    def _event(self, kind: str, node: ast.expr, **more: object) -> Event:
        assert self._statement is not None
        event = Event(
            kind,
            node,
            self._statement,
            self.function,
            captured=self._captured > 0,
            guard=next((g for g in reversed(self._guards) if g and g != "modulo"), "")
            or ("modulo" if "modulo" in self._guards else ""),
            in_loop=self._loops > 0,
            frameworks=self.analysis.frameworks,
        )
        for name, value in more.items():
            setattr(event, name, value)
        self.events.append(event)
        return event

    def _edge(self, target: Function, line: int, arguments: Mapping[str, Value]) -> None:
        guard = next((g for g in self._guards if g in ("once", "error")), "")
        self.edges.append(Edge(target, line, arguments, self._captured > 0, guard, self._loops > 0))

    def value(self, node: ast.expr) -> Value:
        """What `node` is; its events and edges are noted on the way."""
        method = getattr(self, f"_of_{type(node).__name__}", None)
        return UNKNOWN if method is None else method(node)

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for position, inner in enumerate(target.elts):
                if isinstance(inner, ast.Starred):
                    self._bind(inner.value, Items(element(value)))
                elif isinstance(value, Group) and position < len(value.values):
                    self._bind(inner, value.values[position])
                else:
                    self._bind(inner, element(value))
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, Object) and isinstance(target.value, ast.Name):
                known = self.attributes.get(target.attr)
                self.attributes[target.attr] = value if known is None else join(known, value)
        elif isinstance(target, ast.Subscript):
            self._index(target, self.value(target.value), value)

    def _formatted(self, node: ast.expr, value: Value, how: str) -> None:
        if isinstance(value, (Group, Items)):
            value = element(value)
        if isinstance(value, Array):
            self._event("format", node, value=value, construct=how)

    def attribute(self, owner: Value, name: str, node: ast.expr) -> Value:
        """``owner.name``; a property is a call."""
        match owner:
            case ModuleRef() | External():
                return self.project.member(owner, name)
            case ClassRef(cls):
                if (method := cls.find(name)) is not None:
                    bound = owner if method.decorated_by("classmethod") else None
                    return FunctionRef(method, bound)
                found = self.project.member(owner, name)
                return found if found != UNKNOWN else self.analysis.class_value(cls, name)
            case Object(cls):
                return self._member(cls, name, owner, node)
            case SuperRef(cls, receiver):
                start = receiver.cls if isinstance(receiver, Object) else cls
                if (method := start.find(name, after=cls)) is not None:
                    return FunctionRef(method, receiver)
                return (
                    External(f"{cls.external_bases[0]}.{name}") if cls.external_bases else UNKNOWN
                )
            case Array():
                return arrays.array_attribute(owner, name)
            case Host():
                return HOST
            case Instance(dotted) if dotted.startswith("torch.distributions"):
                return Array("torch") if name in arrays.DISTRIBUTION_ARRAYS else UNKNOWN
        return UNKNOWN

    def _member(self, cls: Class, name: str, owner: Value, node: ast.expr) -> Value:
        method = cls.find(name)
        if method is not None:
            if method.decorated_by("property", "cached_property"):
                return self._invoke(FunctionRef(method, owner), node, [], {})
            if method.decorated_by("staticmethod"):
                return FunctionRef(method)
            return FunctionRef(method, owner)
        if name in self.attributes and owner == self.env.get(self._own_name()):
            return self.attributes[name]
        return self.analysis.attribute(cls, name)

    @abstractmethod
    def _index(self, node: ast.Subscript, owner: Value, stored: Value | None) -> Value:
        """``owner[...]``, read or stored to."""

    @abstractmethod
    def _invoke(
        self,
        callee: FunctionRef,
        node: ast.expr,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
    ) -> Value:
        """A call of a function of the project: an edge, and what it gives."""
