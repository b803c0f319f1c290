"""Kernels that do what several of the others do one after the other (stage 7)."""
