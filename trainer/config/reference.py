"""Every field of the config as a row: what the help and the docs are made from."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from .dump import toml_value
from .schema import Config, Section


class ConfigField(NamedTuple):
    """One row of the config reference, all text."""

    name: str
    type: str
    default: str
    description: str


def config_reference() -> Iterator[ConfigField]:
    """Yield a row for every field of `Config`: a section's own fields, then its subsections'."""
    yield from _rows(Config(), "")


def _rows(section: Section, prefix: str) -> Iterator[ConfigField]:
    nested = []
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            nested.append((f"{prefix}{name}.", value))
        else:
            default = "" if value is None else toml_value(value)
            yield ConfigField(prefix + name, type_text(info), default, info.description or "")
    for name, value in nested:
        yield from _rows(value, name)


def type_text(info: FieldInfo) -> str:
    """A field's type and bounds, such as ``int, >= 1, <= 65536``, ``huber | mse`` or ``table``."""
    arguments = get_args(info.annotation)
    if arguments and all(isinstance(argument, str) for argument in arguments):
        return " | ".join(arguments)
    if get_origin(info.annotation) is dict:
        return "table"
    if type(None) in arguments:
        return _name(arguments[0])
    annotation: Any = info.annotation
    if isinstance(annotation, UnionType):
        return " or ".join(_kind(argument) for argument in arguments)
    if arguments:
        return f"list of {_name(arguments[0])}"
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    bounds = [
        f"{sign} {getattr(constraint, key):.12g}"
        if isinstance(getattr(constraint, key), float)
        else f"{sign} {getattr(constraint, key)}"
        for constraint in info.metadata
        for key, sign in signs.items()
        if hasattr(constraint, key)
    ]
    return ", ".join([_name(info.annotation), *bounds])


def _kind(annotation: Any) -> str:
    """A type in a field that takes more than one, such as ``list of [date, float]``."""
    if not (arguments := get_args(annotation)):
        return _name(annotation)
    if arguments[-1] is Ellipsis:
        return f"list of {_kind(arguments[0])}"
    return f"[{', '.join(_kind(argument) for argument in arguments)}]"


def _name(annotation: Any) -> str:
    plain = get_args(annotation)[0] if get_args(annotation) else annotation
    return str(plain.__name__)
