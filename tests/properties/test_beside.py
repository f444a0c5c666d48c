"""What the page of definitions says of features that never run together is what is generated."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.features import FEATURES

PAGE = Path(__file__).resolve().parent.parent.parent / "docs/semantics.md"
SEEDS, COUNT = range(7100, 7116), 120


def table() -> dict[str, set[str]]:
    section = PAGE.read_text(encoding="utf-8").partition("\n## What runs beside what\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", section, flags=re.MULTILINE)
    return {name: set(re.findall(r"`([\w-]+)`", beside)) for name, beside in rows}


def never_together() -> dict[str, set[str]]:
    names = [feature.name for feature in FEATURES]
    met = set()
    for seed in SEEDS:
        for scenario in generate(seed, COUNT, ALGORITHMS):
            met |= set(combinations([feature.name for feature in FEATURES if feature.has(scenario)], 2))
    apart = [pair for pair in combinations(names, 2) if pair not in met]
    return {name: {one for pair in apart if name in pair for one in pair if one != name} for name in names}


def test_all_features_run_together_but_those_of_the_table():
    assert table() == {name: beside for name, beside in never_together().items() if beside}
