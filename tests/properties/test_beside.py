"""What the pages say of features is what their rows say."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations

import pytest

from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, refusal, refused_beside
from draftproof.properties.features.feature import Feature
from draftproof.properties.values.drafts import DRAFT_KINDS
from draftproof.report.feature_tables import beside, overview
from tests.definitions import defined


def sections() -> dict[str, list[tuple[str, str]]]:
    """Return feature -> what its section says it is never beside, each with the reason."""
    parts = re.split(r"^### ([\w-]+)$", beside(), flags=re.MULTILINE)[1:]
    return {
        name: [row for row in re.findall(r"^\| (.+?) \| (.+) \|$", text, flags=re.MULTILINE) if row[0] not in _HEADS]
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


_HEADS = ("never beside", "---")


def test_a_pair_stands_with_its_reason_in_the_sections_of_both_of_its_features() -> None:
    rows = [(name, *row) for name, of in sections().items() for row in of]
    told = Counter(frozenset((name, other.strip("`"))) for name, other, _ in rows if other.startswith("`"))
    pairs = [pair for pair in combinations(FEATURES_BY_NAME, 2) if refusal(*pair)]
    assert told == Counter({frozenset(pair): 2 for pair in pairs})
    reasons = {(name, other.strip("`")): re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", why) for name, other, why in rows}
    for one, other in pairs:
        assert reasons[one, other] == reasons[other, one] == refusal(one, other)


def test_the_sections_have_all_that_drafts_and_checkpoints_lack() -> None:
    assert list(sections()) == list(FEATURES_BY_NAME)
    rows = [(name, *row) for name, of in sections().items() for row in of]
    drafts = {name: set(re.findall(r"`(\w+)`", other)) for name, other, _ in rows if other.startswith("a draft ")}
    lacking = {one.name: {kind.name for kind in DRAFT_KINDS if not one.drafts(kind)} for one in FEATURES}
    assert drafts == {name: others for name, others in lacking.items() if others}
    assert {name for name, other, _ in rows if other == "a checkpoint"} == {
        one.name for one in FEATURES if one.of_probes
    }


def test_the_overview_names_what_the_sections_explain() -> None:
    rows = re.findall(r"^\| \[`([\w-]+)`\]\(#[\w-]+\) \| (.+) \|$", overview(), flags=re.MULTILINE)
    assert [name for name, _ in rows] == list(FEATURES_BY_NAME)
    for name, others in rows:
        listed = set(re.findall(r"\[`([\w-]+)`\]", others))
        assert listed == {other.strip("`") for other, _ in sections()[name] if other.startswith("`")}


@pytest.mark.parametrize("feature", FEATURES, ids=lambda one: one.name)
def test_a_row_names_definitions_and_features_that_there_are(feature: Feature) -> None:
    assert feature.rule in defined()
    assert feature.what
    assert "\n" not in feature.what
    for other, because in feature.refuses.items():
        assert other in FEATURES_BY_NAME
        assert other != feature.name
        assert feature.name not in FEATURES_BY_NAME[other].refuses, "a pair stands in one of its two rows"
        cited = re.findall(r"S-[A-Z]+-\d+", because)
        assert cited
        assert set(cited) <= set(defined())
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
