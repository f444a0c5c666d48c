"""Capture a function once, replay it on the same memory: on a CUDA device, or on the host by the same rules."""
