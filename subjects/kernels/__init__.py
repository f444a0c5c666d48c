"""Bindings of kernels in released packages: how the ops are called on them."""
