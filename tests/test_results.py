"""Documents of results are of the scenarios that are generated now: `make results` writes them anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from draftproof.properties.strategies.version import STRATEGIES_VERSION

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.mark.parametrize("name", ["matrix.md", "mutation.md", "images/report.txt"])
def test_results_are_of_the_scenarios_of_today(name):
    said = re.search(r"(?:strategies )?version (\d+)", (DOCS / name).read_text(encoding="utf-8"))
    assert said is not None, f"docs/{name} does not say of which version of the strategies it is"
    assert int(said[1]) == STRATEGIES_VERSION, (
        f"docs/{name} is of version {said[1]} of {STRATEGIES_VERSION}: run make results, and commit"
    )
