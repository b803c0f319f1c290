"""What is known of the whole project, asked for as it is needed and remembered."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from onegraph.guards.apis import canonical, framework_of, table
from onegraph.guards.engine.flow import Flow
from onegraph.guards.engine.project import Class, Function, Module, Project
from onegraph.guards.engine.values import (
    HOST,
    UNKNOWN,
    ClassRef,
    External,
    FunctionRef,
    Object,
    SuperRef,
    Value,
    join,
)

if TYPE_CHECKING:
    from onegraph.guards.config import Config

#: How many functions deep values are followed, through return values and attributes.
DEPTH = 12

_KERNELS: Mapping[str, str] = {
    "triton.jit": "triton",
    "triton.runtime.jit.jit": "triton",
    "numba.cuda.jit": "numba",
    "warp.kernel": "warp",
    "triton.autotune": "triton",
}
_COMPILED = ("jax.jit", "jax.pmap")


class Analysis:
    """Flows, attributes and return values, each computed once."""

    canonical = staticmethod(canonical)

    def __init__(self, project: Project, config: Config) -> None:
        self.project, self.config = project, config
        self._table = table()
        self._flows: dict[Function, Flow] = {}
        self._given: dict[Function, dict[str, Value]] = {}
        self._globals: dict[tuple[Module, str], Value] = {}
        self._lambdas: dict[tuple[Module, int, int], Function] = {}
        self._attributes: dict[tuple[Class, str], Value] = {}
        self._kinds: dict[Function, str] = {}
        self._children: dict[Module, dict[Function, dict[str, Value]]] = {}
        self._depth = 0
        self.too_deep: set[Function] = set()
        project.assigned_value = self._assigned
        self._torch: dict[Module, bool] = {}
        self.frameworks = any(
            framework_of(module)
            for m in project.modules.values()
            for _, _, _, module, _, level, _ in m.declared["imports"]
            if level <= 0
        )

    def imports_torch(self, module: Module) -> bool:
        """Whether the file imports torch itself."""
        if module not in self._torch:
            self._torch[module] = any(
                framework_of(i[3]) == "torch" for i in module.declared["imports"]
            )
        return self._torch[module]

    def category(self, dotted: str) -> str:
        """What the API `dotted` does, by the project's config or the table."""
        if not dotted:
            return ""
        return self.config.apis.get(dotted) or self._table.get(dotted, "")

    # ---------------------------------------------------------------- flows

    def flow(self, function: Function) -> Flow:
        """The function's pass; while it is under way, what there is of it."""
        found = self._flows.get(function)
        if found is None:
            found = Flow(self, function, self._given.get(function, {}))
            self._flows[function] = found
            self._depth += 1
            try:
                found.run()
            except RecursionError:
                self.too_deep.add(function)
            finally:
                self._depth -= 1
        return found

    def learn_parameters(self, function: Function, given: Mapping[str, Value]) -> bool:
        """Note what a caller passes; says whether that is news."""
        known = self._given.setdefault(function, {})
        changed = False
        for name, value in given.items():
            if isinstance(value, (SuperRef,)) or value == UNKNOWN:
                continue
            before = known.get(name, UNKNOWN)
            after = join(before, value)
            if after != before:
                known[name], changed = after, True
        if changed:
            self._flows.pop(function, None)
        return changed

    def returns(self, function: Function, given: Mapping[str, Value]) -> Value:
        """What calling the function gives."""
        node = function.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
            found = self.flow_annotation(function, node.returns)
            if found not in (UNKNOWN, HOST) or found == HOST:
                return found
        if self._depth > DEPTH:
            return UNKNOWN
        flow = self._flows.get(function)
        if flow is None and function not in self._given:
            self._given[function] = {k: v for k, v in given.items() if v != UNKNOWN}
        return self.flow(function).result

    def flow_annotation(self, function: Function, node: ast.expr) -> Value:
        """An annotation where it stands."""
        probe = Flow.__new__(Flow)
        probe.analysis, probe.function = self, function
        probe.module, probe.project = function.module, self.project
        return probe.annotation(node)

    # ---------------------------------------------------------------- names and attributes

    def nested(self, scope: Function, name: str) -> Value | None:
        """A function or class defined in `scope` under `name`."""
        module = scope.module
        if module not in self._children:
            table: dict[Function, dict[str, Value]] = {}
            for function in module.functions:
                if function.parent is not None and function.cls is None:
                    table.setdefault(function.parent, {})[function.name] = FunctionRef(function)
            for cls in module.classes:
                if cls.parent is not None:
                    local = cls.qualname.rpartition(".")[2]
                    table.setdefault(cls.parent, {})[local] = ClassRef(cls)
            self._children[module] = table
        return self._children[module].get(scope, {}).get(name)

    def lambda_function(self, parent: Function, node: ast.Lambda) -> Function:
        key = parent.module, node.lineno, node.col_offset
        if key not in self._lambdas:
            qualname = f"{parent.qualname}.<lambda>"
            self._lambdas[key] = Function(
                parent.module, qualname, node.lineno, None, parent, -2, node
            )
        return self._lambdas[key]

    def _assigned(self, module: Module, name: str) -> Value:
        """A name that the module's own level assigns: its last plain assignment, alone.

        The whole body is not followed for one name, or a look into one module would lead through
        every module that it imports.
        """
        if module.body in self._flows:
            return self._flows[module.body].env.get(name, UNKNOWN)
        key = module, name
        if key not in self._globals:
            self._globals[key] = UNKNOWN  # while it is being asked for
            for statement in reversed(module.tree.body):
                target, value = _plain_assignment(statement)
                if target == name and value is not None:
                    self._globals[key] = Flow(self, module.body, {}).probe(statement, value)
                    break
        return self._globals[key]

    def class_value(self, cls: Class, name: str) -> Value:
        """A name that the class body declares."""
        for owner in cls.mro:
            if name in owner.annotated:
                annotation, value = owner.annotated[name]
                found = UNKNOWN
                if annotation is not None:
                    found = self.flow_annotation(owner.module.body, annotation)
                if found == UNKNOWN and value is not None:
                    found = self._plain(value, owner)
                return found
        return UNKNOWN

    def _plain(self, node: ast.expr, cls: Class) -> Value:
        if isinstance(node, ast.Call):
            made = self.project.resolve(node.func, cls.module, cls.parent)
            return Object(made.cls) if isinstance(made, ClassRef) else UNKNOWN
        if isinstance(node, ast.Constant):
            return HOST
        return self.project.resolve(node, cls.module, cls.parent)

    def attribute(self, cls: Class, name: str) -> Value:
        """``self.name``: from what the methods assign, ``__init__`` first, or the class declares.

        A name that only subclasses assign is taken from the first of them.
        """
        key = cls, name
        if key in self._attributes:
            return self._attributes[key]
        if self._depth > DEPTH:
            return UNKNOWN
        self._attributes[key] = UNKNOWN  # while it is being asked for
        found = self.class_value(cls, name)
        if found in (UNKNOWN, HOST):
            for owner in cls.mro:
                for method in owner.assigned.get(name, ())[:3]:
                    found = join(found, self.flow(method).attributes.get(name, UNKNOWN))
                if found not in (UNKNOWN, HOST):
                    break
        if found == UNKNOWN:
            for below in self.project.subclasses.get(cls, ()):
                if name in below.assigned or name in below.annotated:
                    found = self.attribute(below, name)
                    break
                if (method_below := below.methods.get(name)) is not None:
                    found = FunctionRef(method_below, Object(below))
                    break
        if found == UNKNOWN and self._depth:
            del self._attributes[key]  # an unfinished pass may know more later
        else:
            self._attributes[key] = found
        return found

    # ---------------------------------------------------------------- functions

    def kernel_kind(self, function: Function) -> str:
        """``triton``, ``numba`` or ``warp`` for a kernel, else empty."""
        if function not in self._kinds:
            kind = ""
            for mark in function.marks:
                value = self.project.resolve_name(mark, function.module, function.parent)
                if isinstance(value, External):
                    kind = kind or _KERNELS.get(value.dotted, "")
            self._kinds[function] = kind
        return self._kinds[function]

    def is_compiled(self, function: Function) -> bool:
        """Decorated with a compiler that traces it (``jax.jit``, ``partial(jax.jit, ...)``)."""
        for position, mark in enumerate(function.marks):
            value = self.project.resolve_name(mark, function.module, function.parent)
            if isinstance(value, External) and value.dotted == "functools.partial":
                decorator = function.decorators[position]
                if isinstance(decorator, ast.Call) and decorator.args:
                    first = decorator.args[0]
                    value = self.project.resolve(first, function.module, function.parent)
            if isinstance(value, External) and value.dotted in _COMPILED:
                return True
        return False

    def wrappers(self, function: Function) -> Iterator[Function]:
        """The functions that the decorators put around it: those nested in them."""
        for mark in function.marks:
            if mark.rpartition(".")[2] in ("hot_path", "cold_path"):
                continue
            value = self.project.resolve_name(mark, function.module, function.parent)
            if isinstance(value, FunctionRef):
                for nested in value.function.module.functions:
                    above = nested.parent
                    while above is not None and above is not value.function:
                        above = above.parent
                    if above is not None and nested.cls is None:
                        yield nested

    def overrides(self, method: Function, receiver: Value) -> Iterator[Function]:
        """What `method` may be when the object is of a subclass."""
        if not isinstance(receiver, Object) or method.cls is None:
            return
        if method.name.startswith("__"):
            return
        for below in self.project.subclasses.get(receiver.cls, ()):
            if (other := below.methods.get(method.name)) is not None and other is not method:
                yield other


def _plain_assignment(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value
    return "", None
