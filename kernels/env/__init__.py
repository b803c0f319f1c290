"""Environments that live on the device."""
