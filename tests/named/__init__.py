"""Scenarios that tests share, each a file under the name of what it has; none hangs on a seed or on the strategies.

`named("eagle_padded")` reads tests/named/eagle_padded.json. test_named.py holds each file to what its name says.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from draftproof.properties.formats.case import decode, encode
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.scenario import Scenario

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


def record(name: str, scenario: Scenario) -> None:
    """Write the file of a scenario: by hand, from a list in which one with the wanted properties was looked for."""
    (FOLDER / f"{name}.json").write_text(encode(scenario) + "\n", encoding="utf-8")
