"""Lists of all drafts that tests of the generator share: to draw one takes seconds."""

from functools import cache

from draftproof.properties.strategies import scenarios
from draftproof.properties.strategies.scenarios import Listed
from draftproof.properties.values.drafts import ALGORITHMS, CHECK_EXAMPLES


@cache
def listed(seed: int) -> list[Listed]:
    """Return the list of a seed, as long as that of a check, with its rows."""
    return list(scenarios.listed(seed, CHECK_EXAMPLES, ALGORITHMS))
