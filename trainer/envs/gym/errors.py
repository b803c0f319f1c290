"""What goes wrong with an environment of gymnasium."""

from __future__ import annotations

from typing import Any


class GymnasiumError(ValueError):
    """gymnasium or one of its environments can't be used; the message says why and what to do."""


def gymnasium() -> Any:
    """The gymnasium package, imported when it is first needed.

    Raises:
        GymnasiumError: it is not installed, or cannot be imported.
    """
    try:
        import gymnasium as package
    except ImportError as error:
        raise GymnasiumError(
            f"env.kind = 'gymnasium' needs gymnasium, which can't be imported ({error});"
            " pip install 'onegraph[gym]'"
        ) from error
    return package
