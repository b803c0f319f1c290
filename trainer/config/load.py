"""Reading a config: defaults, then a TOML file, then overrides."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .errors import ConfigError, first_problem
from .presets import PRESETS
from .schema import Config

SHIPPED = Path(__file__).resolve().parent.parent / "configs"


def shipped_configs() -> dict[str, Path]:
    """The configs that come with the package: their names, and where they are."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.toml"))}


def load_config(
    path: str | Path | None = None, overrides: Mapping[str, object] | None = None
) -> Config:
    """Load a config: the defaults, then the preset, then the file, then the overrides.

    Args:
        path: a TOML file, or the name of a shipped config; None for the defaults alone.
        overrides: values by dotted field, such as ``{"learn.batch_size": 32}``.

    Raises:
        ConfigError: with one line, if the file cannot be read or a value cannot be used.
    """
    source = "defaults" if path is None else str(path)
    values = {} if path is None else _read_toml(path)
    for dotted, value in (overrides or {}).items():
        _insert(values, dotted, value)
    preset = values.get("preset")
    if isinstance(preset, str) and preset in PRESETS:
        values = _over(PRESETS[preset], values)
    return _validated(values, source, overrides or {})


def override_config(config: Config, overrides: Mapping[str, object], source: str) -> Config:
    """A config with some of its fields changed.

    Args:
        config: stays as it is.
        overrides: values by dotted field, as for `load_config`.
        source: names `config` in errors.

    Raises:
        ConfigError: with one line, if a value cannot be used.
    """
    preset = overrides.get("preset", config.preset)
    if preset in PRESETS and preset != config.preset:
        message = (
            f"{source}: preset = {preset!r} is what a config starts from, and can't go over a"
            f" finished one; load the config with it, or set the fields that it stands for"
        )
        raise ConfigError(message)
    values = config.model_dump()
    for dotted, value in overrides.items():
        _insert(values, dotted, value)
    return _validated(values, source, overrides)


def parse_override(text: str) -> tuple[str, object]:
    """Split ``field=value`` as given on the command line.

    The value is read as TOML (``32``, ``true``, ``[64, 64]``, ``2010-01-01``); what is not TOML is
    taken as a string, so that ``env.kind=chain`` needs no quotes.

    Raises:
        ConfigError: if there is no field or no equals sign.
    """
    dotted, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not dotted:
        message = f"override {text!r}: write field=value, such as learn.batch_size=32"
        raise ConfigError(message)
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return dotted, value
    # A line break in the value could bring more fields than the one.
    return dotted, parsed["value"] if len(parsed) == 1 else value


def config_from_json(text: str, source: str) -> Config:
    """Read what `config_to_json` wrote; ``source`` names it in errors.

    Raises:
        ConfigError: if it is not a config of this version.
    """
    try:
        return Config.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(first_problem(error, source, frozenset())) from None


def _validated(values: dict[str, Any], source: str, overrides: Mapping[str, object]) -> Config:
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(first_problem(error, source, frozenset(overrides))) from None


def _read_toml(path: str | Path) -> dict[str, Any]:
    file = Path(path)
    shipped = shipped_configs()
    if str(path) in shipped and not file.is_file():
        file = shipped[str(path)]
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"{path}: no such file; the shipped configs are {', '.join(shipped)}"
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); give a readable TOML file"
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8"
    except tomllib.TOMLDecodeError as error:
        message = f"{path}: not TOML: {error}; write each field as name = value, text in quotes"
    raise ConfigError(message)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One tree of tables over another."""
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[name] = _over(under, value) if both else value  # type: ignore[arg-type]
    return merged


def _insert(values: dict[str, Any], dotted: str, value: object) -> None:
    """Set a dotted field in a tree of tables."""
    table = values
    *sections, field = dotted.split(".")
    for depth, section in enumerate(sections):
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            parent = ".".join(sections[: depth + 1])
            message = f"override {dotted}: {parent} is set to a value, so it has no {field}"
            raise ConfigError(message)
    table[field] = value
