"""The version of the strategies, free of Hypothesis: reports name it."""

VERSION = 17
"""To be raised with anything that changes what a seed generates."""
