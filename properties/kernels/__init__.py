"""Contracts of kernels, and the calls that they are held to."""
