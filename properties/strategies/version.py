"""The version of the strategies, free of Hypothesis: reports name it."""

STRATEGIES_VERSION = 80
"""To be raised with anything that changes what a seed generates."""
