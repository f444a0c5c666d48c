"""The version of the strategies, free of Hypothesis: reports name it."""

VERSION = 62
"""To be raised with anything that changes what a seed generates."""
