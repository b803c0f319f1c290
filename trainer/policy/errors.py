"""The error of an export."""


class ExportError(ValueError):
    """A policy that can't leave: what was wrong, and what would help."""
