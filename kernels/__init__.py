"""Everything that touches a device: kernels, their NumPy twins, and the devices that run them."""
