"""What a call reaches, and what it gives."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from onegraph.guards.engine import arrays
from onegraph.guards.engine.events import Event
from onegraph.guards.engine.expressions import Expressions
from onegraph.guards.engine.project import last_name
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
    Object,
    SuperRef,
    Value,
    element,
)

_MODULE_CLASSES = ("torch.nn.", "flax.linen.Module", "tensorflow.keras.")
_JIT = ("jax.jit", "jax.pmap")
_PASSES_THROUGH = frozenset(
    {
        "jax.vmap", "jax.grad", "jax.value_and_grad", "jax.checkpoint", "torch.vmap",
        "torch.func.vmap", "torch.func.grad", "torch.compile", "functools.wraps",
        "functools.lru_cache", "functools.cache",
    }
)  # fmt: skip


class Calls(Expressions):
    """Calls: of the project's functions, of the frameworks', and of what is not known."""

    def _of_Call(self, node: ast.Call) -> Value:
        function = node.func
        method = last_name(function) if isinstance(function, (ast.Name, ast.Attribute)) else ""
        receiver: Value = UNKNOWN
        if isinstance(function, ast.Attribute):
            receiver = self.value(function.value)
            callee = self.attribute(receiver, function.attr, function)
        elif isinstance(function, ast.Subscript):
            callee = self.value(function)
        else:
            callee = self.value(function)
        if method == "super" and isinstance(function, ast.Name) and self.function.cls is not None:
            own = self.env.get(self._own_name(), UNKNOWN)
            return SuperRef(self.function.cls, own)
        args = [self.value(a) for a in node.args]
        keywords = {k.arg or "**": self.value(k.value) for k in node.keywords}
        literals = {
            (k.arg or "**"): k.value.value
            for k in node.keywords
            if isinstance(k.value, ast.Constant) and isinstance(k.value.value, str)
        }
        for position, argument in enumerate(node.args):
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                literals[str(position)] = argument.value
        dotted, launched = self._dotted(callee, receiver, method, function)
        category = self.analysis.category(dotted)
        if launched:
            category = "launch"
        event = self._event(
            "call",
            node,
            dotted=dotted,
            method=method,
            category=category,
            receiver=receiver,
            args=args,
            keywords=keywords,
            value=callee,
            resolved=bool(dotted),
        )
        self._count_capture(event)
        if dotted == "builtins.print" or (
            method in ("debug", "info", "warning", "error", "critical", "exception", "log")
            and ("logg" in ast.dump(function).lower() or dotted.startswith("logging."))
        ):
            how = "print" if method == "print" else f"logger {method}()"
            for argument, value in zip(node.args, args, strict=True):
                self._formatted(argument, value, how)
        elif dotted in ("builtins.str", "builtins.repr", "builtins.format") and args:
            self._formatted(node.args[0], args[0], f"{method}()")
        elif (
            method == "format"
            and isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Constant)
        ):
            for argument, value in zip(node.args, args, strict=True):
                self._formatted(argument, value, "str.format")
        if launched:
            return UNKNOWN
        return self._call(
            node, callee, receiver, method, dotted, category, args, keywords, literals
        )

    def _count_capture(self, event: Event) -> None:
        if event.category == "capture_begin":
            self._captured += 1
        elif event.category == "capture_end" and self._captured:
            self._captured -= 1

    def _dotted(
        self, callee: Value, receiver: Value, method: str, function: ast.expr
    ) -> tuple[str, bool]:
        """The name of what is called, and whether it is ``kernel[grid](...)``."""
        subscripted = isinstance(function, ast.Subscript)
        match callee:
            case FunctionRef(target):
                kind = self.analysis.kernel_kind(target)
                if kind:
                    return target.dotted, subscripted
                return target.dotted, False
            case ClassRef(cls):
                return cls.dotted, False
            case External(dotted):
                return self.analysis.canonical(dotted), False
            case Instance(dotted):
                return f"{dotted}.__call__", subscripted and dotted.endswith("Kernel")
        match receiver:
            case Array(framework):
                return f"{arrays.ARRAY_CLASSES[framework]}.{method}", False
            case Instance(dotted):
                return self.analysis.canonical(f"{dotted}.{method}"), False
            case Object(cls) if cls.external_bases:
                return f"{cls.external_bases[0]}.{method}", False
        return "", False

    def _call(
        self,
        node: ast.Call,
        callee: Value,
        receiver: Value,
        method: str,
        dotted: str,
        category: str,
        args: list[Value],
        keywords: dict[str, Value],
        literals: dict[str, str],
    ) -> Value:
        if dotted in self.analysis.config.apis:
            return Array("project", "device") if category in ("alloc", "htod") else HOST
        match callee:
            case FunctionRef():
                return self._invoke(callee, node, args, keywords)
            case ClassRef(cls):
                for special in ("__init__", "__post_init__"):
                    if (made := cls.find(special)) is not None:
                        self._invoke(FunctionRef(made, Object(cls)), node, args, keywords)
                return Object(cls)
            case Object(cls):
                for special in ("__call__", "forward"):
                    if (made := cls.find(special)) is not None:
                        found = self._invoke(FunctionRef(made, callee), node, args, keywords)
                        if found != UNKNOWN:
                            return found
                        break
                module = any(b.startswith(_MODULE_CLASSES) for b in cls.external_bases)
                return Array("torch") if module else UNKNOWN
            case External():
                return self._external(node, dotted, args, keywords, literals)
            case Instance(kind):
                return Array("torch") if kind.startswith("torch.nn.") else UNKNOWN
        self._passed(node, args, keywords)
        match receiver:
            case Array():
                return arrays.array_method(receiver, method, args, literals)
            case Instance(kind, origin):
                return arrays.instance_method(kind, method, origin, self._where(node))
            case Host():
                return HOST
            case SuperRef() if method == "forward":
                return Array("torch")
        if method in arrays.TENSOR_METHODS and self.analysis.imports_torch(self.module):
            return Array("torch", boolean=False)
        if isinstance(receiver, Object) and method == "to":
            return receiver
        return UNKNOWN

    def _where(self, node: ast.expr) -> str:
        return f"{self.module.shown}:{node.lineno}:{node.col_offset}"

    def _external(
        self,
        node: ast.Call,
        dotted: str,
        args: list[Value],
        keywords: dict[str, Value],
        literals: dict[str, str],
    ) -> Value:
        first = args[0] if args else UNKNOWN
        if dotted == "functools.partial" and isinstance(first, (FunctionRef, External)):
            if isinstance(first, FunctionRef):
                return FunctionRef(
                    first.function, first.receiver, first.bound + len(args) - 1, first.compiled
                )
            return first
        if dotted in _JIT and isinstance(first, FunctionRef):
            return FunctionRef(first.function, first.receiver, compiled=True)
        if dotted in ("jax.lax.scan", "jax.lax.cond", "jax.lax.while_loop", "jax.lax.fori_loop"):
            for value in args:
                if isinstance(value, FunctionRef):  # they trace what they are given
                    self._edge_to(FunctionRef(value.function, compiled=True), node, {})
            return Array("jax", "device")
        if dotted in _PASSES_THROUGH and isinstance(first, FunctionRef):
            return first
        if dotted == "builtins.getattr" and len(node.args) > 1 and "1" in literals:
            return self.attribute(first, literals["1"], node)
        if dotted in ("builtins.list", "builtins.tuple", "builtins.sorted", "builtins.reversed"):
            return first if isinstance(first, (Items, Group)) else HOST
        if dotted in ("builtins.sum", "builtins.max", "builtins.min", "builtins.abs"):
            found = element(first) if len(args) == 1 else arrays.operate(args)
            return found if isinstance(found, Array) else HOST
        self._passed(node, args, keywords)
        if dotted.startswith("builtins."):
            return HOST
        return arrays.external_call(dotted, args, keywords, literals, self._where(node))

    def _passed(self, node: ast.Call, args: Sequence[Value], keywords: Mapping[str, Value]) -> None:
        """A function that is handed to code outside the project will be called there."""
        for value in (*args, *keywords.values()):
            if isinstance(value, FunctionRef):
                self._edge_to(value, node, {})

    def _edge_to(self, callee: FunctionRef, node: ast.expr, given: Mapping[str, Value]) -> None:
        target = callee.function
        if self.analysis.kernel_kind(target):
            return
        if callee.compiled or self.analysis.is_compiled(target):
            self._captured += 1
            self._edge(target, node.lineno, given)
            self._captured -= 1
            return
        self._edge(target, node.lineno, given)
        for wrapper in self.analysis.wrappers(target):
            self._edge(wrapper, node.lineno, {})
        receiver = callee.receiver
        if target.cls is not None and isinstance(receiver, (Object, SuperRef)):
            for other in self.analysis.overrides(target, receiver):
                self._edge(other, node.lineno, given)

    def _invoke(
        self,
        callee: FunctionRef,
        node: ast.expr,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
    ) -> Value:
        target = callee.function
        given: dict[str, Value] = {}
        names = [p.arg for p in target.parameters]
        starred = isinstance(node, ast.Call) and any(isinstance(a, ast.Starred) for a in node.args)
        is_method = target.cls is not None and not target.decorated_by("staticmethod")
        if is_method and names and callee.receiver is not None:
            given[names[0]] = callee.receiver
            names = names[1:]
        if not starred:
            given.update(zip(names[callee.bound :], args, strict=False))
        given.update({k: v for k, v in keywords.items() if k != "**"})
        self._edge_to(callee, node, given)
        if callee.compiled or self.analysis.is_compiled(target):
            return Array("jax", "device")
        return self.analysis.returns(target, given)
