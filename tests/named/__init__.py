"""Scenarios that tests share, each a file under the name of what it has; none hangs on a seed or on the strategies.

`named("eagle_padded")` reads tests/named/eagle_padded.json, `with_other_draft` exchanges a draft. test_named.py holds
each file to what its name says.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from draftproof.properties.formats.case import decode, encode
from draftproof.properties.strategies.drafts import with_draft
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.scenario import Scenario

T = TypeVar("T")
FOLDER = Path(__file__).parent
OF_DRAFT: dict[Algorithm, str] = {
    "eagle": "eagle_padded",
    "mtp": "mtp_chain_partial",
    "dflash": "dflash_block",
    "ngram": "ngram_matches",
    "standalone": "standalone",
    "eagle3": "eagle3_features",
}
"""A scenario of each draft, without any feature."""


@cache
def named(name: str) -> Scenario:
    """Return the scenario of a file. Raises ValueError for a name that no file has."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        raise ValueError(f"invalid name {name!r}: expected one of {', '.join(names())}")
    return decode(path.read_text(encoding="utf-8"), Scenario, name=path.name)


def names() -> tuple[str, ...]:
    """Return the names of all scenarios, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


class Nth:
    """Choices without a seed: always the value of this number, and yes for even ones."""

    def __init__(self, number: int) -> None:
        self.number = number

    def one_of(self, values: Sequence[T]) -> T:
        return values[self.number % len(values)]

    def integer(self, least: int, most: int) -> int:
        return least + self.number % (most - least + 1)

    def boolean(self) -> bool:
        return not self.number % 2


def with_other_draft(scenario: Scenario, draft: Algorithm, number: int = 0) -> Scenario:
    """Return the scenario of an EAGLE draft with another one; what that leaves open is always the choice `number`."""
    return with_draft(Nth(number), scenario, draft, {})


def record(name: str, scenario: Scenario) -> None:
    """Write the file of a scenario: by hand, from a list in which one with the wanted properties was looked for."""
    (FOLDER / f"{name}.json").write_text(encode(scenario) + "\n", encoding="utf-8")
