"""The tree as modules, classes and functions, and what a dotted name or an attribute leads to."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from onegraph.guards.engine.index import Declared, blocks
from onegraph.guards.engine.reading import parse
from onegraph.guards.engine.values import (
    UNKNOWN,
    ClassRef,
    External,
    FunctionRef,
    ModuleRef,
    Value,
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module

#: The name of the pseudo-function that holds a module's own statements.
BODY = "<module>"


@dataclass(eq=False)
class Function:
    """A function, a lambda, or a module's own body.

    Attributes:
        qualname: as in Python, without ``<locals>``.
        marks: its decorators as dotted names.
        cls: the class it is a method of.
        parent: the function it is nested in.
    """

    module: Module
    qualname: str
    line: int
    cls: Class | None = None
    parent: Function | None = None
    ordinal: int = -1
    lambda_node: ast.Lambda | None = None
    marks: tuple[str, ...] = ()
    end: int = 0

    @property
    def name(self) -> str:
        return self.qualname.rpartition(".")[2]

    @property
    def dotted(self) -> str:
        return f"{self.module.name}.{self.qualname}"

    @property
    def node(self) -> FunctionNode:
        if self.lambda_node is not None:
            return self.lambda_node
        if self.ordinal < 0:
            return self.module.tree
        return self.module.function_nodes[self.ordinal]

    @property
    def body(self) -> list[ast.stmt]:
        node = self.node
        if isinstance(node, ast.Lambda):
            return [ast.copy_location(ast.Expr(node.body), node.body)]
        return node.body

    @property
    def decorators(self) -> list[ast.expr]:
        node = self.node
        return (
            node.decorator_list if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
        )

    @property
    def parameters(self) -> list[ast.arg]:
        node = self.node
        if isinstance(node, ast.Module):
            return []
        return [*node.args.posonlyargs, *node.args.args]

    def decorated_by(self, *names: str) -> bool:
        """Whether a decorator's last name is one of `names`; needs no tree."""
        return any(mark.rpartition(".")[2] in names for mark in self.marks)

    def marked(self, name: str) -> bool:
        """Whether it has the marker `name`, under whatever name that was imported."""
        for mark in self.marks:
            if mark.rpartition(".")[2] == name:
                return True
            if self.module.imports.get(-1, {}).get(mark, ("", ""))[1] == name:
                return True
        return False


def last_name(node: ast.expr) -> str:
    """The last name of ``a.b.c`` or of a call of it."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def stored(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """Every target that the statements assign, tuples taken apart."""
    for statement in body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = list(statement.targets)
        elif isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
            targets = [statement.target]
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            targets = [i.optional_vars for i in statement.items if i.optional_vars is not None]
        while targets:
            target = targets.pop()
            if isinstance(target, (ast.Tuple, ast.List)):
                targets += target.elts
            elif isinstance(target, ast.Starred):
                targets.append(target.value)
            else:
                yield target
        for inner in blocks(statement):
            yield from stored(inner)


@dataclass(eq=False)
class Class:
    """A class of the project."""

    module: Module
    qualname: str
    line: int
    ordinal: int
    parent: Function | None = None
    methods: dict[str, Function] = field(default_factory=dict)
    spelled: tuple[str, ...] = ()

    @property
    def dotted(self) -> str:
        return f"{self.module.name}.{self.qualname}"

    @property
    def node(self) -> ast.ClassDef:
        return self.module.class_nodes[self.ordinal]

    @cached_property
    def bases(self) -> tuple[Value, ...]:
        return tuple(
            self.module.project.resolve_name(base, self.module, self.parent)
            for base in self.spelled
        )

    @cached_property
    def mro(self) -> tuple[Class, ...]:
        """This class and its bases in the project, depth first, each once."""
        found: dict[Class, None] = {}

        def visit(cls: Class) -> None:
            if cls not in found:
                found[cls] = None
                for base in cls.bases:
                    if isinstance(base, ClassRef):
                        visit(base.cls)

        visit(self)
        return tuple(found)

    @cached_property
    def external_bases(self) -> tuple[str, ...]:
        return tuple(
            base.dotted for cls in self.mro for base in cls.bases if isinstance(base, External)
        )

    def find(self, name: str, *, after: Class | None = None) -> Function | None:
        """The method `name`, from this class on or from the class after `after` in the order."""
        order = self.mro
        if after is not None and after in order:
            order = order[order.index(after) + 1 :]
        return next((cls.methods[name] for cls in order if name in cls.methods), None)

    @cached_property
    def assigned(self) -> Mapping[str, tuple[Function, ...]]:
        """Which methods assign ``self.name``, by name; ``__init__`` first."""
        found: dict[str, list[Function]] = {}
        ordered = sorted(self.methods.values(), key=lambda m: m.name != "__init__")
        for method in ordered:
            if not method.parameters:
                continue
            own = method.parameters[0].arg
            for node in stored(method.body):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == own
                    and method not in found.setdefault(node.attr, [])
                ):
                    found[node.attr].append(method)
        return {name: tuple(methods) for name, methods in found.items()}

    @cached_property
    def annotated(self) -> Mapping[str, tuple[ast.expr | None, ast.expr | None]]:
        """Annotation and value of the names that the class body declares."""
        found: dict[str, tuple[ast.expr | None, ast.expr | None]] = {}
        for statement in self.node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found[statement.target.id] = statement.annotation, statement.value
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        found[target.id] = None, statement.value
        return found


@dataclass(eq=False)
class Module:
    """A file of the project."""

    project: Project
    name: str
    path: Path
    shown: str
    is_package: bool
    declared: Declared
    text: str

    def __post_init__(self) -> None:
        self.body = Function(self, BODY, 1)
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        for ordinal, (qualname, line, parent, bases) in enumerate(self.declared["classes"]):
            self.classes.append(Class(self, qualname, line, ordinal, spelled=bases))
            self._class_parents[ordinal] = parent
        for ordinal, (qualname, line, end, parent, owner, marks) in enumerate(
            self.declared["functions"]
        ):
            cls = self.classes[owner] if owner >= 0 else None
            above = self.functions[parent] if parent >= 0 else None
            function = Function(self, qualname, line, cls, above, ordinal, marks=marks, end=end)
            self.functions.append(function)
            if cls is not None:
                # A property's setter comes after its getter, which is the one that is read.
                cls.methods.setdefault(function.name, function)
        for cls in self.classes:
            parent = self._class_parents[cls.ordinal]
            cls.parent = self.functions[parent] if parent >= 0 else None

    @cached_property
    def _class_parents(self) -> dict[int, int]:
        return {}

    @cached_property
    def tree(self) -> ast.Module:
        return parse(self.text)

    @cached_property
    def _nodes(self) -> tuple[list[ast.FunctionDef | ast.AsyncFunctionDef], list[ast.ClassDef]]:
        """Function and class nodes in the order in which the index counted them."""
        functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        classes: list[ast.ClassDef] = []

        def walk(body: list[ast.stmt]) -> None:
            for statement in body:
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    functions.append(statement)
                elif isinstance(statement, ast.ClassDef):
                    classes.append(statement)
                for inner in blocks(statement):
                    walk(inner)

        walk(self.tree.body)
        return functions, classes

    @property
    def function_nodes(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return self._nodes[0]

    @property
    def class_nodes(self) -> list[ast.ClassDef]:
        return self._nodes[1]

    @cached_property
    def names(self) -> dict[str, Function | Class]:
        """Functions and classes at the module's own level."""
        found: dict[str, Function | Class] = {}
        for cls in self.classes:
            if "." not in cls.qualname:
                found[cls.qualname] = cls
        for function in self.functions:
            if "." not in function.qualname:
                found[function.qualname] = function
        return found

    @cached_property
    def by_qualname(self) -> dict[str, Function | Class]:
        """Every function and class of the file."""
        found: dict[str, Function | Class] = {c.qualname: c for c in self.classes}
        found.update({f.qualname: f for f in self.functions})
        return found

    def import_target(self, module: str, level: int) -> str:
        """The absolute name that a relative import means."""
        if level <= 0:
            return module
        parts = self.name.split(".")
        keep = len(parts) - level + (1 if self.is_package else 0)
        return ".".join((*parts[: max(keep, 0)], *([module] if module else [])))

    @cached_property
    def imports(self) -> dict[int, dict[str, tuple[str, str]]]:
        """``(module, attribute)`` by local name, for the module (-1) and each function."""
        found: dict[int, dict[str, tuple[str, str]]] = {}
        for _, _, local, module, attribute, level, function in self.declared["imports"]:
            table = found.setdefault(function, {})
            if level < 0:
                table[local] = (module if attribute else module.split(".")[0], "")
            elif attribute != "*":
                table[local] = (self.import_target(module, level), attribute)
        return found

    @cached_property
    def stars(self) -> tuple[str, ...]:
        return tuple(
            self.import_target(module, level)
            for _, _, _, module, attribute, level, function in self.declared["imports"]
            if attribute == "*" and level >= 0 and function < 0
        )

    @cached_property
    def assigned(self) -> frozenset[str]:
        return frozenset(self.declared["assigned"])


class Project:
    """Every module of the run."""

    def __init__(self) -> None:
        self.modules: dict[str, Module] = {}
        #: Module-level assignments are looked up through this (set by the analysis).
        self.assigned_value = _no_value

    def add(self, module: Module) -> None:
        self.modules[module.name] = module

    def functions(self) -> Iterator[Function]:
        for module in self.modules.values():
            yield module.body
            yield from module.functions

    @cached_property
    def subclasses(self) -> Mapping[Class, tuple[Class, ...]]:
        """Direct and indirect subclasses in the project."""
        found: dict[Class, list[Class]] = {}
        for module in self.modules.values():
            for cls in module.classes:
                for base in cls.mro[1:]:
                    found.setdefault(base, []).append(cls)
        return {cls: tuple(below) for cls, below in found.items()}

    # ---------------------------------------------------------------- names

    def dotted(self, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Value:
        """What the absolute dotted name leads to; what the project lacks is outside it."""
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            module = self.modules.get(".".join(parts[:cut]))
            if module is not None:
                value: Value = ModuleRef(module)
                for part in parts[cut:]:
                    value = self.member(value, part, seen)
                return value
        return External(name)

    def member(
        self, value: Value, name: str, seen: frozenset[tuple[str, str]] = frozenset()
    ) -> Value:
        """``value.name`` for a module or for something outside the project."""
        if isinstance(value, External):
            found = f"{value.dotted}.{name}"
            return self.dotted(found, seen) if found in self.modules else External(found)
        if isinstance(value, ModuleRef):
            return self.global_name(value.module, name, seen)
        if isinstance(value, ClassRef):
            if (method := value.cls.find(name)) is not None:
                return FunctionRef(method)
            for owner in value.cls.mro:
                inner = owner.module.by_qualname.get(f"{owner.qualname}.{name}")
                if isinstance(inner, Class):
                    return ClassRef(inner)
            return UNKNOWN
        return UNKNOWN

    def global_name(
        self, module: Module, name: str, seen: frozenset[tuple[str, str]] = frozenset()
    ) -> Value:
        """What `name` means at the level of `module`; follows re-exports and star imports."""
        if (module.name, name) in seen:
            return UNKNOWN
        seen |= {(module.name, name)}
        if (found := module.names.get(name)) is not None:
            return FunctionRef(found) if isinstance(found, Function) else ClassRef(found)
        if (target := module.imports.get(-1, {}).get(name)) is not None:
            return self.imported(target, seen)
        if name in module.assigned:
            return self.assigned_value(module, name)
        if (inner := self.modules.get(f"{module.name}.{name}")) is not None:
            return ModuleRef(inner)
        for star in module.stars:
            value = self.dotted(star, seen)
            if isinstance(value, External):
                continue
            if (found_value := self.member(value, name, seen)) != UNKNOWN:
                return found_value
        return UNKNOWN

    def imported(self, target: tuple[str, str], seen: frozenset[tuple[str, str]]) -> Value:
        """What an import's ``(module, attribute)`` means."""
        module, attribute = target
        if not attribute:
            return self.dotted(module, seen)
        if f"{module}.{attribute}" in self.modules and module not in self.modules:
            return ModuleRef(self.modules[f"{module}.{attribute}"])
        value = self.dotted(module, seen)
        found = self.member(value, attribute, seen)
        if found == UNKNOWN and f"{module}.{attribute}" in self.modules:
            return ModuleRef(self.modules[f"{module}.{attribute}"])
        return found

    def resolve_name(self, dotted: str, module: Module, function: Function | None) -> Value:
        """What a dotted name means where it stands, locals aside."""
        name, *rest = dotted.split(".")
        value = self._scoped(name, module, function)
        for part in rest:
            value = self.member(value, part)
        return value

    def _scoped(self, name: str, module: Module, function: Function | None) -> Value:
        scope = function
        while scope is not None:
            if (target := module.imports.get(scope.ordinal, {}).get(name)) is not None:
                return self.imported(target, frozenset())
            local = f"{scope.qualname}.{name}"
            if (nested := module.by_qualname.get(local)) is not None:
                return FunctionRef(nested) if isinstance(nested, Function) else ClassRef(nested)
            # An annotation in a method sees what stands beside it in the class.
            if scope.cls is not None:
                beside = module.by_qualname.get(f"{scope.cls.qualname}.{name}")
                if isinstance(beside, Class):
                    return ClassRef(beside)
            scope = scope.parent
        return self.global_name(module, name)

    def resolve(self, node: ast.expr, module: Module, function: Function | None) -> Value:
        """What a plain dotted expression means where it stands, locals aside."""
        if isinstance(node, ast.Name):
            return self._scoped(node.id, module, function)
        if isinstance(node, ast.Attribute):
            return self.member(self.resolve(node.value, module, function), node.attr)
        if isinstance(node, ast.Subscript):  # a generic base or decorator
            return self.resolve(node.value, module, function)
        return UNKNOWN


def _no_value(module: Module, name: str) -> Value:
    del module, name
    return UNKNOWN
