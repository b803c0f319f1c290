"""Hold ``guards/data/apis.csv`` against the packages that are installed here.

    python tests/guards/check_apis.py

Each name is looked up in its package, where that is installed and imports without a GPU. Exit 1 if
a name is not there; the last lines say what could not be checked.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections import Counter

from onegraph.guards.apis import CATEGORIES, table


def _array_of_jax() -> object:
    """jax.Array itself is abstract: the methods are its arrays'."""
    import jax

    return type(jax.numpy.zeros(()))


OWNERS = {"jax.Array": _array_of_jax}


def look_up(name: str) -> str:
    """``found``, ``absent`` or why it can't be told."""
    parts = name.split(".")
    module = None
    try:
        if importlib.util.find_spec(parts[0]) is None:
            return "not installed"
        module = importlib.import_module(parts[0])
    except ImportError as error:
        return f"does not import: {error}"
    class_name, _, method = name.rpartition(".")
    if class_name in OWNERS:
        return "found" if hasattr(OWNERS[class_name](), method) else "absent"
    owner: object = module
    for position, part in enumerate(parts[1:], start=1):
        if not hasattr(owner, part) and inspect.ismodule(owner):
            try:
                importlib.import_module(".".join(parts[: position + 1]))
            except ModuleNotFoundError as error:
                # The part itself is missing, or something that it needs.
                if error.name == ".".join(parts[: position + 1]):
                    return "absent"
                return f"does not import: {error}"
            except ImportError as error:
                return f"does not import: {error}"
        if not hasattr(owner, part):
            return "absent"
        owner = getattr(owner, part)
    return "found"


def check() -> tuple[list[str], Counter[str], Counter[str]]:
    """Names that are absent, how many were found by package, and what could not be checked."""
    absent: list[str] = []
    found: Counter[str] = Counter()
    unchecked: Counter[str] = Counter()
    for name, category in table().items():
        if category not in CATEGORIES:
            absent.append(f"{name}: {category!r} is no category")
            continue
        package = name.split(".")[0]
        result = look_up(name)
        if result == "found":
            found[package] += 1
        elif result == "absent":
            absent.append(name)
        else:
            unchecked[f"{package}: {result}"] += 1
    return absent, found, unchecked


def main() -> int:
    """Print the result."""
    absent, found, unchecked = check()
    for name in absent:
        print(f"absent: {name}")
    for package, count in sorted(found.items()):
        print(f"{package}: {count} names are there")
    for what, count in sorted(unchecked.items()):
        print(f"not checked: {count} names of {what}")
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
