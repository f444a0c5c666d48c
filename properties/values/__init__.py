"""The values that travel between stages."""
