"""Markers and lint that keep host round trips out of hot code."""

from .markers import cold_path, hot_path

__all__ = ["cold_path", "hot_path"]
