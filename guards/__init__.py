"""Markers and lint that keep host round trips out of hot code."""
