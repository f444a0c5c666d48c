"""How a divergence reads."""

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from draftproof.properties.values import relations as rel
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.verdict import Divergence
from draftproof.report.channels import WHAT
from draftproof.report.relations import phrase
from draftproof.report.text import block, impact, line, sentence

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
    relation=rel.OffBy(1),
    count=4,
    total=4,
    output_changed=False,
)
SPOT = rel.TensorLocation("row", (0, 3))
PHRASES = {
    rel.OffBy(12): "12 ahead",
    rel.Resized(-2): "shorter by 2",
    rel.Stale("round", 1, in_part=True): "stale: in part that of round 1",
    rel.TooEarly("step", 3): "that of step 3",
    rel.OtherLayer(1): "that of layer 1",
    rel.NotGreedy(): "not plain greedy decoding",
    rel.NotGreedy(7, None): (
        "not plain greedy decoding; token number 7 is not allowed there, by a grammar or a minimum of tokens"
    ),
    rel.NotGreedy(7, 5.0): "not plain greedy decoding; token number 7 is 5 below the best logit",
    rel.NotGreedy(7, 0.0123): (
        "not plain greedy decoding; token number 7 is 0.012 below the best logit: a lower precision may be why, be it"
        " of a KV cache"
    ),
    rel.OtherRow(request=2): "that of request 2",
    rel.OtherRow(row=3): "that of row 3",
    rel.SlotOf(5): "the slot of position 5",
    rel.StateSlotOf(1): "that of request 1",
    rel.StateSlotOf(1, 2): "that of row 2 of request 1",
    rel.OtherState(1, -1): "the state of row 1, one behind",
    rel.OtherState(2, request=1, earlier_round=True): "the state of row 2 of request 1, left by an earlier round",
    rel.ChoiceOf(2, 1): "the choice after row 2, one ahead",
    rel.WrongFeature(0, 2, "feature", 1): "feature 0 of 2 is feature 1",
    rel.WrongFeature(0, 2, "last"): "feature 0 of 2 is the last hidden state",
    rel.WrongMatch("length", 1): "1 token more",
    rel.WrongMatch("place", -2): "the place is two behind",
    rel.Stride(rel.StridePair(3, 5, "", "A"), rel.VerifyRow(0, 1), 4, 6, source=rel.VerifyRow(2, -1, 3), how="lies"): (
        "stride 3 instead of A=5: row 0 of request 1 reads where row 2 of batch place 3 lies; "
        "this explains 4 of 6 wrong states of the batch"
    ),
    rel.RowElsewhere(SPOT, (1, 0), rel.WrongStride(rel.StridePair(3, 5, "W", "A"))): (
        "row (0, 3) holds what belongs to row (1, 0); a stride of W=3 instead of A=5 explains it"
    ),
    rel.RowElsewhere(rel.TensorLocation("around", (7,)), (1, 0), rel.Shifted(3, 2)): (
        "the memory around it, at offset 7, holds what belongs to row (1, 0); "
        "so it is with 3 rows, all moved by 2 elements"
    ),
    rel.RowTaken((1,), "steps", rel.TensorLocation("inside", (0, 1)), SPOT, rel.SwappedStrides(0, 1)): (
        "row (1,) holds what begins at (0, 1) of steps instead of row (0, 3); "
        "the strides of dimensions 0 and 1 taken for one another explain it"
    ),
    rel.RowUnwritten((1,)): "row (1,) is as it was before",
    rel.RowOverwritten((1,)): "row (1,) must stay as it was",
    rel.InMemory("around"): "in the memory around the tensor",
    rel.InMemory("outside"): "a lane reads what is no element of a tensor; on a GPU it may fault",
}


def other(channel: str, **changes: Any) -> Divergence:
    """The seed bug with another channel, and whatever else is given."""
    phase = CHANNELS[channel].phase
    return replace(SEED_BUG, **{"channel": channel, "phase": phase, **changes})


def test_the_seed_bug_reads_as_a_block_of_lines():
    assert block(SEED_BUG, of="some-fault", replay="draftproof replay case.json").splitlines() == [
        "FAIL draft.positions  some-fault",
        "  what       the position of a draft step's input token (draft.step.positions)",
        "  where      draft step 1, request 0, round 2 (at every step)",
        "  expected   position 7",
        "  got        position 8 (one ahead)",
        "  impact     the output tokens did not change; at worst drafts are rejected and acceptance falls",
        "  replay     draftproof replay case.json",
    ]


def test_the_seed_bug_reads_as_a_line():
    told = "draft step 1, request 0, round 2: expected position 7, got position 8 (one ahead), at every step; "
    assert line(SEED_BUG) == f"{told}first seen in draft.step.positions"
    assert sentence(SEED_BUG).startswith(f"{line(SEED_BUG)}. The output tokens did not change")


def test_a_long_cause_is_wrapped_below_itself():
    told = rel.Stride(
        rel.StridePair(1, 4, "W", "A"), rel.VerifyRow(0, 1), 6, 6, rel.VerifyRow(3, 0), rel.VerifyRow(0, 0), "earlier"
    )
    found = other("commit.intermediate", layer=0, row=0, relation=told, count=6, total=78)
    lines = block(found).splitlines()
    at = next(number for number, text in enumerate(lines) if text.startswith("  cause"))
    whole = " ".join(text[13:] for text in lines[at:])
    assert max(map(len, lines)) <= 110
    assert len(lines) > at + 1
    assert all(text.startswith(13 * " ") for text in lines[at + 1 :])
    assert whole == (
        "stride W=1 instead of A=4: row 0 of request 1 was written where row 3 of request 0 belongs and reads what "
        "row 0 of request 0 left in an earlier round; this explains 6 of 6 wrong states of the batch"
    )
    assert line(found).endswith(f"in 6 of 78 places; first seen in commit.intermediate; {whole}")


def test_impact_says_whether_the_text_changed():
    assert impact(replace(SEED_BUG, output_changed=True)) == "the output tokens changed"
    assert impact(other("commit.state")) == "the output tokens did not change"
    assert impact(replace(SEED_BUG, output_changed=None)) == ""
    assert sentence(replace(SEED_BUG, output_changed=None)).endswith("draft.step.positions.")


def test_a_kernel_names_its_argument():
    place = {"contract": "kernel.gdn_verify", "channel": "kernel.states", "phase": "kernel", "output_changed": None}
    values = {"expected": "states[0, 3] = 5.0", "got": "7.0", "margin": 0.25, "relation": rel.InMemory("output")}
    found = replace(SEED_BUG, **place, **values)
    assert block(found).splitlines() == [
        "FAIL kernel.gdn_verify",
        "  what       argument states of the kernel (kernel.states)",
        "  where      kernel gdn_verify (4 elements differ)",
        "  expected   states[0, 3] = 5.0",
        "  got        7.0 (over the bound by 0.25)",
    ]
    moved = replace(found, relation=rel.RowUnwritten((0, 3)))
    assert block(moved).splitlines()[-1] == "  cause      row (0, 3) is as it was before"


def test_every_channel_has_words():
    assert WHAT.keys() == CHANNELS.keys()


@pytest.mark.parametrize(("relation", "said"), PHRASES.items(), ids=str)
def test_relations_have_words(relation: rel.Relation, said: str):
    assert phrase(relation) == said


def test_every_relation_has_words():
    quiet = {rel.Missing, rel.Surplus, rel.Different}
    assert {type(relation) for relation in PHRASES} | set(get_args(rel.PlainRelation)) == set(get_args(rel.Relation))
    assert {kind for kind in get_args(rel.PlainRelation) if not phrase(kind())} == quiet


def test_a_vector_names_its_lane_and_an_engine_wide_place_its_step():
    changes = {"channel": "verify.hidden", "phase": "verify", "row": 2, "index": 4, "expected": "0x01", "got": "0x02"}
    hidden = other(**changes, relation=rel.Different(), total=0)
    assert line(hidden).startswith("verify row 2, request 0, round 2: expected 0x01 in lane 4, got 0x02; first")
    wide = other(channel="pool.owners", phase="pool", request=-1, step=-1)
    assert line(wide).startswith("engine step 2: ")


HIDDEN = {"step": -1, "index": 3, "expected": "0x01", "got": "0x02", "count": 6, "total": 9}


@pytest.mark.parametrize(
    ("layer", "relation", "because", "got"),
    [
        (2, rel.OtherLayer(0), "the layer was given the target's hidden state instead of layer 1's output", "0x02"),
        (1, rel.OtherLayer(0), "the layer was given the target's hidden state instead of layer 0's output", "0x02"),
        (3, rel.OtherLayer(2), "the layer was given layer 1's output instead of layer 2's output", "0x02"),
        (3, rel.OtherLayer(1), "", "0x02 (that of layer 1)"),
        (2, rel.Stale("round", 1), "", "0x02 (stale: that of round 1)"),
    ],
)
def test_a_layer_of_a_chain_says_whose_output_it_took(layer: int, relation: rel.Relation, because: str, got: str):
    found = other("extend.hidden_in", layer=layer, row=7, relation=relation, **HIDDEN)
    assert line(found) == (
        f"MTP layer {layer}, request 0, round 2, hidden input of position 7: expected 0x01 in lane 3, got {got}, "
        f"in 6 of 9 places; first seen in extend.hidden_in{f'; {because}' if because else ''}"
    )


def test_a_layer_of_a_chain_with_the_ids_of_the_one_before_says_so():
    found = other("extend.ids", step=-1, layer=2, row=7, relation=rel.OtherLayer(1), total=0)
    assert line(found) == (
        "MTP layer 2, request 0, round 2, token of position 7: expected token 7, got token 8; "
        "first seen in extend.ids; the layer was given the token of layer 1 instead of the next one"
    )


def test_the_first_layer_is_that_of_any_draft():
    found = other("extend.hidden_in", layer=0, row=7, relation=rel.OtherLayer(0), **HIDDEN)
    assert line(found).startswith("extend at position 7, request 0, round 2: expected 0x01 in lane 3, got 0x02 (")
    deeper = other("extend.kv", layer=1, row=7, relation=rel.Poison(), **HIDDEN)
    assert line(deeper).startswith("extend of layer 1 at position 7, request 0, round 2: expected 0x01")
    chosen = other("extend.proposal", step=-1, layer=1, relation=rel.Different())
    assert line(chosen).startswith("MTP layer 1, request 0, round 2: expected token 7, got token 8, in every round")


def test_rows_of_a_block_are_named():
    place = {"step": -1, "row": 3}
    positions = other("draft.block.positions", **place)
    assert line(positions).startswith(
        "block row 3, request 0, round 2: expected position 7, got position 8 (one ahead)"
    )
    visible = other("draft.block.visible", **place, relation=rel.OffBy(-1), got="6")
    assert line(visible).startswith(
        "block row 3, request 0, round 2: expected positions up to 7, got positions up to 6 (one behind), in every row"
    )


def test_matches_and_proposals_of_an_ngram_draft_are_told():
    fields = {"step": -1, "total": 0, "relation": rel.WrongMatch("place", -2)}
    found = other("propose.match", expected="(2, 5)", got="(2, 3)", **fields)
    assert line(found) == (
        "n-gram match, request 0, round 2: expected (2, 5), got (2, 3) (the place is two behind); "
        "first seen in propose.match"
    )
    lost = other("propose.match", expected="(2, 5)", got="nothing", **{**fields, "relation": rel.Missing()})
    assert "expected (2, 5), got nothing; first" in line(lost)
    proposals = other("propose.tokens", step=-1, expected="(3, 4)", got="(3, 5)", relation=rel.Different(), total=0)
    assert line(proposals).startswith("proposals, request 0, round 2: expected (3, 4), got (3, 5); first seen in")


def test_a_number_of_things_is_no_token():
    found = other("verify.ids", expected="2 drafts", got="1 drafts", relation=rel.Missing(), total=0)
    assert "expected 2 drafts, got 1 draft" in line(found)
