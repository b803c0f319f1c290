"""The learner's kernels: loss, optimiser, counters, published record."""
