"""Relations change what they say, and nothing that they leave alone."""

from __future__ import annotations

import msgspec
import pytest

from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.scenario import RELATIONS
from draftproof.properties.values.validate import validate
from draftproof.properties.variants import related, unchanged
from tests.properties.evidence import STATIC, evidence


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_relation_changes_the_scenario_and_keeps_it_valid(relation: str) -> None:
    scenario = msgspec.structs.replace(STATIC, relation=relation)
    changed = validate(related(scenario))
    assert changed.relation == "none"
    assert changed != msgspec.structs.replace(scenario, relation="none")
    assert changed.requests == scenario.requests


def test_no_relation_has_no_pair() -> None:
    with pytest.raises(ValueError, match="allowed: graph_vs_eager"):
        related(STATIC)


@pytest.mark.parametrize("relation", RELATIONS)
def test_what_the_host_sees_is_never_changed(relation) -> None:
    kept = unchanged(relation)
    assert {name for name in CHANNELS if name.startswith("accept.")} | {"commit.length", "commit.kv"} <= kept


def test_the_pairs_really_differ() -> None:
    """What a relation is about is different in its second run."""
    sizes = [{value[1] for value in evidence(r).related.channel("graph.replay").values()} for r in RELATIONS[:2]]  # type: ignore[union-attr,index]
    assert sizes == [{0}, {0}]
    moved = evidence("pages_permuted")
    assert moved.subject.channel("round.table") != moved.related.channel("round.table")  # type: ignore[union-attr]
    wider = evidence("other_bucket")
    assert {row.size for row in wider.rows if row.phase} == {2}
    assert 3 in {value[3] for value in wider.related.channel("round.rows").values()}  # type: ignore[union-attr,index]
    permuted = evidence("rows_permuted")
    assert permuted.subject.channel("round.rows") != permuted.related.channel("round.rows")  # type: ignore[union-attr]
