"""How a divergence reads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import DraftNeeds
from draftproof.properties.values.verdict import Divergence
from draftproof.report.text import describe, output

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


def other(channel: str, **changes: Any) -> Divergence:
    """The seed bug with another channel, and whatever else is given."""
    phase = CHANNELS[channel].phase
    return msgspec.structs.replace(SEED_BUG, **{"channel": channel, "phase": phase, **changes})


def test_the_seed_bug_reads_as_a_sentence():
    assert describe(SEED_BUG) == (
        "draft step 1, request 0, round 2: expected position 7, got 8 (one ahead), at every step; "
        "first seen in draft.step.positions"
    )
    assert output(False) == "The output tokens did not change."
    assert output(True) != output(False)


def test_a_vector_names_its_lane_and_an_engine_wide_place_its_step():
    changes = {"channel": "verify.hidden", "phase": "verify", "row": 2, "index": 4, "expected": "0x01", "got": "0x02"}
    hidden = other(**changes, relation="different", extent="")
    assert describe(hidden).startswith(
        "verify row 2, request 0, round 2: expected 0x01, got 0x02 in lane 4 (different)"
    )
    wide = other(channel="pool.owners", phase="pool", request=-1, step=-1)
    assert describe(wide).startswith("engine step 2: ")


HIDDEN = {"step": -1, "index": 3, "expected": "0x01", "got": "0x02", "extent": "in 6 of 9 places"}


@pytest.mark.parametrize(
    ("layer", "relation", "said"),
    [
        (2, "value of layer 0", "is the target's instead of layer 1's output (expected 0x01, got 0x02 in lane 3)"),
        (1, "value of layer 0", "is the target's instead of layer 0's output (expected 0x01, got 0x02 in lane 3)"),
        (3, "value of layer 2", "is layer 1's output instead of layer 2's output (expected 0x01, got 0x02 in lane 3)"),
        (3, "value of layer 1", ": expected 0x01, got 0x02 in lane 3 (value of layer 1)"),
        (2, "stale: value of round 1", ": expected 0x01, got 0x02 in lane 3 (stale: value of round 1)"),
    ],
)
def test_a_layer_of_a_chain_says_whose_output_it_took(layer: int, relation: str, said: str):
    found = other("extend.hidden_in", layer=layer, row=7, relation=relation, **HIDDEN)
    told = said if said.startswith(":") else f" {said}"
    assert describe(found) == (
        f"mtp layer {layer}, request 0, round 2: hidden input of position 7{told}, in 6 of 9 places; "
        "first seen in extend.hidden_in"
    )


def test_a_layer_of_a_chain_with_the_ids_of_the_one_before_says_so():
    found = other("extend.ids", step=-1, layer=2, row=7, relation="value of layer 1", extent="")
    assert describe(found) == (
        "mtp layer 2, request 0, round 2: token of position 7 is layer 1's instead of the next one "
        "(expected token 7, got 8); first seen in extend.ids"
    )


def test_the_first_layer_is_that_of_any_draft():
    found = other("extend.hidden_in", layer=0, row=7, relation="value of layer 0", **HIDDEN)
    assert describe(found).startswith("extend at position 7, request 0, round 2: expected 0x01, got 0x02 in lane 3 (")
    deeper = other("extend.kv", layer=1, row=7, relation="poison", **HIDDEN)
    assert describe(deeper).startswith("extend of layer 1 at position 7, request 0, round 2: expected 0x01")
    chosen = other("extend.proposal", step=-1, layer=1, relation="different")
    assert describe(chosen).startswith("mtp layer 1, request 0, round 2: expected token 7, got 8 (different)")


def test_rows_of_a_block_are_named():
    place = {"step": -1, "row": 3}
    positions = other("draft.block.positions", **place)
    assert describe(positions).startswith("block row 3, request 0, round 2: expected position 7, got 8 (one ahead)")
    visible = other("draft.block.visible", **place, relation="1 behind", got="6")
    assert describe(visible).startswith(
        "block row 3, request 0, round 2: expected positions up to 7, got 6 (one behind"
    )


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        (
            "2 tokens, followed by that at place 5",
            "2 tokens, followed by that at place 3",
            "expected 2 tokens, followed by that at place 5, got 2 tokens, followed by that at place 3",
        ),
        ("none", "1 token, followed by that at place 4", "expected none, got 1 token, followed by that at place 4"),
        (
            "2 tokens, followed by that at place 5",
            "nothing",
            "expected 2 tokens, followed by that at place 5, got nothing",
        ),
    ],
)
def test_matches_of_an_ngram_draft_are_told(expected: str, got: str, said: str):
    found = other("propose.match", step=-1, expected=expected, got=got, relation="", extent="")
    assert describe(found) == f"n-gram match, request 0, round 2: {said}; first seen in propose.match"


def test_proposals_and_needs_are_told():
    proposals = other("propose.tokens", step=-1, expected="(3, 4)", got="(3, 5)", relation="different", extent="")
    assert describe(proposals) == (
        "proposals, request 0, round 2: expected (3, 4), got (3, 5) (different); first seen in propose.tokens"
    )
    needs = other(
        "config.draft",
        step=-1,
        request=-1,
        round=0,
        expected=str(DraftNeeds(0, 2)),
        got=str(DraftNeeds(5, 2)),
        relation="",
        extent="",
    )
    assert describe(needs) == (
        "what the draft is made for: expected no lanes of hidden states and 2 layers of entries, "
        "got 5 lanes of hidden states and 2 layers of entries; first seen in config.draft"
    )
