"""How a divergence reads."""

from __future__ import annotations

from draftproof.cli.wording import describe, output
from draftproof.properties.values.verdict import Divergence

SEED_BUG = Divergence(
    contract="draft.positions",
    channel="draft.step.positions",
    phase="draft",
    request=0,
    round=2,
    step=1,
    layer=-1,
    row=-1,
    index=-1,
    expected="7",
    got="8",
    relation="1 ahead",
    extent="at every step",
)


def test_the_seed_bug_reads_as_a_sentence():
    assert describe(SEED_BUG) == (
        "draft step 1, request 0, round 2: expected position 7, got 8 (one ahead), at every step; "
        "first seen in draft.step.positions"
    )
    assert output(False) == "The output tokens did not change."
    assert output(True) != output(False)


def test_a_vector_names_its_lane_and_an_engine_wide_place_its_step():
    changes = {"channel": "verify.hidden", "phase": "verify", "row": 2, "index": 4, "expected": "0x01", "got": "0x02"}
    fields = {name: getattr(SEED_BUG, name) for name in SEED_BUG.__struct_fields__}
    hidden = Divergence(**{**fields, **changes, "relation": "different", "extent": ""})
    assert describe(hidden).startswith(
        "verify row 2, request 0, round 2: expected 0x01, got 0x02 in lane 4 (different)"
    )
    wide = Divergence(**{**fields, "channel": "pool.owners", "phase": "pool", "request": -1, "step": -1})
    assert describe(wide).startswith("engine step 2: ")
