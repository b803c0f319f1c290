"""Prioritized replay on the device."""
