"""Drafts by definition, one module for each algorithm, found by its name."""
