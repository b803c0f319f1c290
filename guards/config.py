"""``[tool.onegraph.guards]`` of a project's pyproject.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onegraph.guards.apis import CATEGORIES

CONFIDENCES = ("proven", "likely", "possible")


class ConfigError(ValueError):
    """The config can't be used; the message names the key, the value and what it takes."""


@dataclass(frozen=True)
class Retired:
    """Modules that only some files may import: what a stage retired, or a device package."""

    modules: tuple[str, ...]
    allow: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Config:
    """The project's settings.

    Attributes:
        root: the folder of the pyproject.toml; globs of paths are taken from it.
        hot: globs of dotted names that run every step; with ``:loop`` at the end, only what
            stands in the function's loops.
        cold: globs of dotted names at which the spread of hotness stops.
        src: folders below which the top-level packages and scripts stand.
        package_dir: folder by import name, as setuptools has it.
        select: the codes that are on; empty for the default ones.
        extend_select: codes that are on beside those.
        ignore: codes that are off.
        per_file_ignores: codes by glob of a path.
        exclude: globs of paths that are left out.
        min_confidence: findings of a lower one are not shown.
        apis: category by dotted name, for the project's own device layer.
        retired: who may import what.
        baseline: the baseline file.
        cache: where the index is kept; ``None`` for nowhere.
    """

    root: Path
    hot: tuple[str, ...] = ()
    cold: tuple[str, ...] = ()
    src: tuple[str, ...] = (".", "src")
    package_dir: Mapping[str, str] = field(default_factory=dict)
    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    min_confidence: str = "likely"
    apis: Mapping[str, str] = field(default_factory=dict)
    retired: tuple[Retired, ...] = ()
    baseline: Path | None = None
    cache: Path | None = None


_LISTS = ("hot", "cold", "src", "select", "extend-select", "ignore", "exclude")
_OTHER = ("per-file-ignores", "min-confidence", "apis", "retired", "baseline", "cache")


def find_root(start: Path) -> Path:
    """The nearest folder from `start` up that has a pyproject.toml; else `start` itself."""
    start = start.resolve()
    folder = start if start.is_dir() else start.parent
    for candidate in (folder, *folder.parents):
        if (candidate / "pyproject.toml").is_file():
            return candidate
    return folder


def load_config(root: Path, *, file: Path | None = None) -> Config:
    """The config of the project at `root`, or of another TOML file with the same table.

    Raises:
        ConfigError: no TOML, an unknown key, or a value of the wrong kind.
    """
    path = file if file is not None else root / "pyproject.toml"
    if not path.is_file():
        if file is not None:
            raise ConfigError(f"{path}: there is no such file")
        return Config(root)
    import tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    tool = data.get("tool", {})
    packages = tool.get("setuptools", {}).get("package-dir", {})
    return build(root, tool.get("onegraph", {}).get("guards", {}), str(path), packages)


def build(
    root: Path, table: Mapping[str, Any], where: str, packages: Mapping[str, str] | None = None
) -> Config:
    """A config from its table; `where` names it in errors."""
    if unknown := [key for key in table if key not in (*_LISTS, *_OTHER)]:
        raise ConfigError(
            f"{where}: [tool.onegraph.guards] has no key {unknown[0]!r}; it has"
            f" {', '.join((*_LISTS, *_OTHER))}"
        )
    values: dict[str, Any] = {"root": root}
    for key in _LISTS:
        if key in table:
            values[key.replace("-", "_")] = _strings(table[key], f"{where}: {key}")
    ignores = _table(table.get("per-file-ignores", {}), f"{where}: per-file-ignores")
    values["per_file_ignores"] = {
        glob: _strings(codes, f"{where}: per-file-ignores.{glob}")
        for glob, codes in ignores.items()
    }
    apis = _table(table.get("apis", {}), f"{where}: apis")
    for name, category in apis.items():
        if category not in CATEGORIES:
            raise ConfigError(
                f"{where}: apis.{name}: {category!r} is none of {', '.join(CATEGORIES)}"
            )
    values["apis"] = apis
    confidence = table.get("min-confidence", "likely")
    if confidence not in CONFIDENCES:
        raise ConfigError(
            f"{where}: min-confidence: {confidence!r} is none of {', '.join(CONFIDENCES)}"
        )
    values["min_confidence"] = confidence
    values["retired"] = tuple(_retired(item, where) for item in table.get("retired", ()))
    for key in ("baseline", "cache"):
        if key in table:
            if not isinstance(table[key], str):
                raise ConfigError(f"{where}: {key}: {table[key]!r} is no path")
            values[key] = root / table[key]
    values["package_dir"] = dict(packages or {})
    return Config(**values)


def _strings(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{where}: {value!r} is no list of strings")
    for item in value:
        if not isinstance(item, str):
            raise ConfigError(f"{where}: {item!r} is no string")
    return tuple(value)


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: {value!r} is no table")
    return value


def _retired(item: object, where: str) -> Retired:
    table = _table(item, f"{where}: retired")
    if unknown := [key for key in table if key not in ("modules", "allow", "reason")]:
        raise ConfigError(f"{where}: retired: no key {unknown[0]!r}; use modules, allow, reason")
    if not table.get("modules"):
        raise ConfigError(f"{where}: retired: modules is missing")
    return Retired(
        _strings(table["modules"], f"{where}: retired.modules"),
        _strings(table.get("allow", ()), f"{where}: retired.allow"),
        str(table.get("reason", "")),
    )
