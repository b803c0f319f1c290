"""Writing a resolved config: TOML for people, JSON for checkpoints."""

import datetime as dt
import json
import re
from collections.abc import Iterator

from .schema import Config, Section


def config_to_toml(config: Config) -> str:
    """The resolved config as TOML, every field written, which loads back to an equal config.

    A field whose value is None has no TOML form and is left out.
    """
    return "\n".join(_lines(config, "")).lstrip() + "\n"


def config_to_json(config: Config) -> str:
    """The resolved config as one JSON object, as checkpoints carry it."""
    return config.model_dump_json()


def toml_value(value: object) -> str:
    """One value as TOML.

    Raises:
        TypeError: for a type that no config field has.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # JSON's escapes are TOML's, but for DEL, which JSON leaves bare.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case tuple() | list():
            return f"[{', '.join(toml_value(item) for item in value)}]"
        case dict():
            items = (f"{_key(name)} = {toml_value(item)}" for name, item in value.items())
            return f"{{{', '.join(items)}}}"
        case int() | float():
            return repr(value)
        case dt.date():
            return value.isoformat()
    message = f"no TOML form for {value!r}"
    raise TypeError(message)


def _key(name: str) -> str:
    """A key as TOML: bare where it may be."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_value(name)


def _lines(section: Section, path: str) -> Iterator[str]:
    nested = []
    if path:
        yield f"\n[{path}]"
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            nested.append((f"{path}.{name}".lstrip("."), value))
        elif value is not None:
            yield f"{name} = {toml_value(value)}"
    for name, value in nested:
        yield from _lines(value, name)
