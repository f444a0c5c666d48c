"""Relations change what they say, and nothing that they leave alone."""

from __future__ import annotations

import msgspec
import pytest

from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.scenario import VARIANTS
from draftproof.properties.values.validate import validate
from draftproof.properties.variants import unchanged, varied
from tests.properties.evidence import STATIC, evidence


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_relation_changes_the_scenario_and_keeps_it_valid(variant: str) -> None:
    scenario = msgspec.structs.replace(STATIC, variant=variant)
    changed = validate(varied(scenario))
    assert changed.variant == "none"
    assert changed != msgspec.structs.replace(scenario, variant="none")
    assert changed.requests == scenario.requests


def test_no_relation_has_no_pair() -> None:
    with pytest.raises(ValueError, match="expected one of graph_vs_eager"):
        varied(STATIC)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_host_sees_is_never_changed(variant) -> None:
    kept = unchanged(variant)
    assert {name for name in CHANNELS if name.startswith("accept.")} | {"commit.length", "commit.kv"} <= kept


def test_the_pairs_really_differ() -> None:
    """What a variant is about is different in its second run."""
    sizes = [{launch.size for launch in evidence(r).varied.channel("graph.replay").values()} for r in VARIANTS[:2]]  # type: ignore[union-attr,index]
    assert sizes == [{0}, {0}]
    moved = evidence("pages_permuted")
    assert moved.subject.channel("round.table") != moved.varied.channel("round.table")  # type: ignore[union-attr]
    wider = evidence("other_bucket")
    assert {row.size for row in wider.schedule.rows if row.phase} == {2}
    assert 3 in {row.size for row in wider.varied.channel("round.rows").values()}  # type: ignore[union-attr,index]
    permuted = evidence("rows_permuted")
    assert permuted.subject.channel("round.rows") != permuted.varied.channel("round.rows")  # type: ignore[union-attr]
