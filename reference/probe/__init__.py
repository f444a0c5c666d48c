"""Probe models, exact in the ring of integers modulo 2^64."""
