"""What the pages say of features is what their rows say."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, refusal, refused_beside
from draftproof.properties.features.feature import Feature
from draftproof.properties.values.drafts import DRAFT_KINDS
from draftproof.report.feature_tables import PAGES, TableError, beside, written

ROOT = Path(__file__).resolve().parent.parent.parent
SEMANTICS = (ROOT / "docs/semantics.md").read_text(encoding="utf-8")
DEFINED = set(re.findall(r"\*\*(S-[A-Z]+-\d+)", SEMANTICS))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_table_as_it_is(name: str) -> None:
    """Otherwise run `make tables`."""
    page = (ROOT / name).read_text(encoding="utf-8")
    assert written(page, PAGES[name]()) == page


def test_a_page_without_a_place_is_told() -> None:
    with pytest.raises(TableError, match="invalid page: expected <!-- features -->"):
        written("# A page", beside())
    assert written("a\n\n<!-- features -->\n\nold\n\n<!-- /features -->\n\nb", "new").split() == [
        *("a", "<!--", "features", "-->", "new", "<!--", "/features", "-->", "b")
    ]


def test_the_table_has_every_pair_once_and_all_that_drafts_and_checkpoints_lack() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \| (.+) \|$", beside(), flags=re.MULTILINE)
    told = Counter(frozenset((name, other.strip("`"))) for name, other, _ in rows if other.startswith("`"))
    pairs = (pair for pair in combinations(FEATURES_BY_NAME, 2) if refusal(*pair))
    assert told == Counter(map(frozenset, pairs))
    drafts = {name: set(re.findall(r"`(\w+)`", other)) for name, other, _ in rows if other.startswith("a draft ")}
    lacking = {one.name: {kind.name for kind in DRAFT_KINDS if not one.drafts(kind)} for one in FEATURES}
    assert drafts == {name: others for name, others in lacking.items() if others}
    assert {name for name, other, _ in rows if other == "a checkpoint"} == {
        one.name for one in FEATURES if one.of_probes
    }


@pytest.mark.parametrize("feature", FEATURES, ids=lambda one: one.name)
def test_a_row_names_definitions_and_features_that_there_are(feature: Feature) -> None:
    assert feature.rule in DEFINED
    assert feature.what
    assert "\n" not in feature.what
    for other, because in feature.refuses.items():
        assert other in FEATURES_BY_NAME
        assert other != feature.name
        assert feature.name not in FEATURES_BY_NAME[other].refuses, "a pair stands in one of its two rows"
        cited = re.findall(r"S-[A-Z]+-\d+", because)
        assert cited
        assert set(cited) <= DEFINED
    assert set(feature.needs) <= FEATURES_BY_NAME.keys()
    assert bool(feature.because) == any(not feature.drafts(kind) for kind in DRAFT_KINDS)


def test_refusals_do_not_depend_on_the_order() -> None:
    for one, other in combinations(FEATURES_BY_NAME, 2):
        assert refusal(one, other) == refusal(other, one)
        assert (other in refused_beside(one)) == (one in refused_beside(other)) == bool(refusal(one, other))


def test_what_a_feature_needs_comes_before_it_and_is_not_refused_beside_it() -> None:
    order = list(FEATURES_BY_NAME)
    for feature in FEATURES:
        for needed in feature.needs:
            assert order.index(needed) < order.index(feature.name)
            assert not refusal(needed, feature.name)
            assert set(refused_beside(needed)) <= set(refused_beside(feature.name))
