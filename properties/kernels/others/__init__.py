"""Ops that other engines have kernels for and the built-in one has not: their table, and the calls they are held to."""
