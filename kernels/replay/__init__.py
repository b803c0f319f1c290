"""Prioritized replay on a device: the sum tree, the draw, n-step assembly and the ring."""
