"""From pydantic's report of what is wrong with a config to the one line that a user reads."""

import difflib

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .dump import toml_value
from .reference import config_reference
from .schema import MismatchError

REMEDIES = {
    "bool_type": "use true or false",
    "date_type": "use a date, such as 2010-01-01",
    "dict_type": "use a table, such as {{name = 1}}",
    "finite_number": "use a finite number",
    "float_type": "use a number",
    "greater_than": "use more than {gt}",
    "greater_than_equal": "use {ge} or more",
    "int_type": "use a whole number",
    "json_invalid": "{error}; it was not written by onegraph, or is damaged",
    "less_than": "use less than {lt}",
    "less_than_equal": "use {le} or less",
    "literal_error": "use {expected}",
    "string_too_short": "must not be empty",
    "string_type": "use text, in quotes",
    "too_long": "give at most {max_length} values",
    "too_short": "give at least {min_length} values",
    "tuple_type": "use a list, such as [64, 64]",
}


class ConfigError(ValueError):
    """A config that cannot be used. Its message is one line, meant for the user."""


def first_problem(error: ValidationError, source: str, overridden: frozenset[str]) -> str:
    """The first problem of a failed validation, and how many more there are.

    Args:
        error: what pydantic raised.
        source: the file that the values come from, or another name for their place.
        overridden: the dotted fields whose values come from overrides instead.
    """
    problems = error.errors(include_url=False)
    details = problems[0]
    location = list(details["loc"])
    value = details["input"]
    refusal = details.get("ctx", {}).get("error")
    if isinstance(refusal, MismatchError):
        location += refusal.location
        value, problem = refusal.value, refusal.problem
    else:
        problem = _problem(details)
    dotted = ".".join(str(part) for part in location)
    index = f"[{location.pop()}]" if location and isinstance(location[-1], int) else ""
    field = ".".join(str(part) for part in location)
    is_override = any(f"{dotted}.".startswith(f"{name}.") for name in overridden)
    place = f"override {field}{index}" if is_override else f"{source}: {field}{index}"
    # A list whose item is refused is reported as too short as well: that is no second problem.
    others = [
        other for other in problems[1:] if details["loc"][: len(other["loc"])] != other["loc"]
    ]
    more = f" (and {len(others)} more)" if others else ""
    if not location:
        return f"{source}: {problem}{more}"
    return f"{place} = {_shown(value)}: {problem}{more}"


def _problem(details: ErrorDetails) -> str:
    location = [str(part) for part in details["loc"]]
    match details["type"]:
        case "extra_forbidden":
            return f"unknown field; {_suggestion(location)}"
        case "model_type":
            return f"is a section, not a value; {_fields_of(location)}"
        case kind if kind in REMEDIES:
            return REMEDIES[kind].format(**details.get("ctx", {}))
    return details["msg"]


def _suggestion(location: list[str]) -> str:
    *section, field = location
    prefix = "".join(f"{part}." for part in section)
    names = _names()
    here = [name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)]
    if near := difflib.get_close_matches(field, here, n=1):
        return f"did you mean {prefix}{near[0]}?"
    elsewhere = {name.rpartition(".")[2]: name for name in names}
    if near := difflib.get_close_matches(field, elsewhere, n=1, cutoff=0.8):
        return f"did you mean {elsewhere[near[0]]}?"
    return _fields_of(section)


def _fields_of(section: list[str]) -> str:
    prefix = "".join(f"{part}." for part in section)
    fields = dict.fromkeys(
        name.removeprefix(prefix).split(".")[0] for name in _names() if name.startswith(prefix)
    )
    return f"the fields of {prefix.rstrip('.') or 'a config'} are {', '.join(fields)}"


def _names() -> list[str]:
    return [row.name for row in config_reference()]


def _shown(value: object) -> str:
    if value is None:
        return "(not set)"
    try:
        text = toml_value(value)
    except TypeError:
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
