"""What the kernels share: Philox, float64 functions that match the host's, index layouts."""
