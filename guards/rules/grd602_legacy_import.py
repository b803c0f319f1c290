"""GRD602: an import of what only some files may import."""

from __future__ import annotations

from collections.abc import Iterator

from onegraph.guards.config import Config
from onegraph.guards.engine.project import Module
from onegraph.guards.engine.reading import matches
from onegraph.guards.findings import Hit
from onegraph.guards.rules.rule import Example, Rule


def look_imports(module: Module, config: Config) -> Iterator[tuple[int, int, Hit]]:
    for retired in config.retired:
        if matches(module.shown, retired.allow):
            continue
        for line, column, _, source, attribute, level, _ in module.declared["imports"]:
            base = module.import_target(source, level)
            names = [base]
            if level >= 0 and attribute not in ("", "*"):
                names.append(f"{base}.{attribute}")
            for name in names:
                if any(name == m or name.startswith(f"{m}.") for m in retired.modules):
                    reason = f": {retired.reason}" if retired.reason else ""
                    yield line, column, Hit(f"imports {name}{reason}")
                    break


_LEGACY = """\
[[retired]]
modules = ["example_legacy"]
allow = ["factory.py"]
reason = "only the factory keeps stage 0"
"""
_CUDA = """\
[[retired]]
modules = ["cuda"]
allow = ["device/**"]
"""

RULE = Rule(
    code="GRD602",
    name="legacy-import",
    summary="an import of retired code, or of a device package, outside the files that may",
    why="""What a stage retired stays for comparison, behind one factory; another import of it
brings the old step back. And device calls that bypass the device layer are not counted. Say who may
import what under `[[tool.onegraph.guards.retired]]`.""",
    flagged=(
        Example("from example_legacy import CpuReplay\n", _LEGACY),
        Example("def f():\n    import cuda.bindings.driver\n", _CUDA),
        Example("import importlib\n\nimportlib.import_module('cuda.core')\n", _CUDA),
    ),
    unflagged=(
        Example("from example_legacy import CpuReplay\n", _LEGACY, path="factory.py"),
        Example("import cuda.core\n", _CUDA, path="device/stream.py"),
        Example("import cudalike\n", _CUDA),
    ),
    contexts=frozenset(),
    look_imports=look_imports,
)
