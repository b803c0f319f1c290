"""The example's kernels: each a pair of files, as in the package; importing them declares them."""

from own_loop_kernels import km_advance, km_assign, km_inertia, km_move

__all__ = ["km_advance", "km_assign", "km_inertia", "km_move"]
