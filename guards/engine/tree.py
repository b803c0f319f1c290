"""From folders to a `Project`: which module each file is, and its declarations from the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onegraph.guards.config import Config
from onegraph.guards.engine.index import Cache
from onegraph.guards.engine.project import Module, Project
from onegraph.guards.engine.reading import ReadError, Text, decode, python_files, relative


@dataclass
class Tree:
    """The files of a run.

    Attributes:
        problems: what could not be read: shown path and reason.
        texts: by module, for writing a file back.
        paths: by shown path.
    """

    project: Project = field(default_factory=Project)
    problems: list[tuple[str, str]] = field(default_factory=list)
    texts: dict[Module, Text] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)


def read_tree(
    paths: Sequence[Path], config: Config, *, overlay: Mapping[Path, bytes] | None = None
) -> Tree:
    """Index every Python file below `paths`; `overlay` has bytes to take in a file's place."""
    overlay = overlay or {}
    tree = Tree()
    cache = Cache(config.cache)
    folders = {(config.root / d).resolve(): name for name, d in config.package_dir.items()}
    roots = [(config.root / folder).resolve() for folder in config.src]
    packages: dict[Path, str] = {}
    resolved: dict[Path, Path] = {}
    for path, problem in python_files(paths, config.root, config.exclude):
        shown = relative(path, config.root)
        tree.paths[shown] = path
        if problem:
            tree.problems.append((shown, problem))
            continue
        try:
            data = overlay[path] if path in overlay else path.read_bytes()
        except OSError as error:
            tree.problems.append((shown, f"can't be read: {error.strerror}"))
            continue
        declared = cache.declared(data)
        if declared["error"]:
            tree.problems.append((shown, declared["error"]))
            continue
        try:
            text = decode(data)
        except ReadError as error:  # pragma: no cover - the index has decoded it already
            tree.problems.append((shown, str(error)))
            continue
        name, is_package = module_name(path, roots, folders, packages, resolved)
        if name in tree.project.modules:
            name = f"{name}@{shown}"
        module = Module(tree.project, name, path, shown, is_package, declared, text.text)
        tree.project.add(module)
        tree.texts[module] = text
    cache.save()
    return tree


def module_name(
    path: Path,
    roots: Sequence[Path],
    folders: dict[Path, str],
    packages: dict[Path, str],
    resolved: dict[Path, Path],
) -> tuple[str, bool]:
    """The import name of a file, and whether it is a package's ``__init__``."""
    # A link is named after what it leads to; the others share their folder's way.
    if path.is_symlink():
        path = path.resolve()
    else:
        if (folder := resolved.get(path.parent)) is None:
            folder = resolved[path.parent] = path.parent.resolve()
        path = folder / path.name
    is_package = path.stem == "__init__"
    folder = path.parent
    if folder not in packages:
        packages[folder] = _package(folder, roots, folders)
    package = packages[folder]
    if is_package:
        return package or folder.name, True
    return f"{package}.{path.stem}" if package else path.stem, False


def _package(folder: Path, roots: Sequence[Path], folders: dict[Path, str]) -> str:
    """The import name of a folder: from setuptools' map, a source root, or its `__init__` files."""
    below: list[str] = []
    here = folder
    while True:
        if here in folders:
            return ".".join(filter(None, (folders[here], *reversed(below))))
        if here in roots and not (here / "__init__.py").exists():
            return ".".join(reversed(below))
        if here.parent == here:
            break
        below.append(here.name)
        here = here.parent
    parts: list[str] = []
    here = folder
    while (here / "__init__.py").exists():
        parts.append(here.name)
        here = here.parent
    return ".".join(reversed(parts))
