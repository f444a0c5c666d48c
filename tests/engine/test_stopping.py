"""What ends a request in the engine, and masks of stop tokens before a minimum, beside the reference's."""

import random

import numpy as np
import pytest
import torch

from draftproof.engine.stages import DecodeRow, GenerationRequest, Minimum, PrefillRow, Proposal
from draftproof.engine.stopping import depths, masks, minimum, prompt_masks, stops
from draftproof.properties.values.scenario import Request, RoundPlan
from draftproof.reference.decode import RequestLimits
from draftproof.reference.minimum import excluded

VOCAB = 7


def generation(**changes: object) -> GenerationRequest:
    fields = {"id": 0, "arrival": 0, "prompt": (1, 2), "budget": 50, "stop": frozenset(), "num_drafts_wanted": (1,)}
    return GenerationRequest(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(200))
def test_a_text_ends_where_the_reference_ends_it(seed: int) -> None:
    rng = random.Random(seed)
    stop, eos = (frozenset(rng.sample(range(VOCAB), rng.randrange(3))) for _ in range(2))
    sequences = tuple(tuple(rng.choices(range(3), k=rng.randint(1, 4))) for _ in range(rng.randrange(3)))
    least, ignores = rng.randrange(5), rng.random() < 0.5
    request = Request(
        arrival=0, prompt=(1, 2), budget=50, rounds=(RoundPlan(num_drafts=1, num_correct=1),), min_tokens=least
    )
    limits = RequestLimits.of(request, 100, tuple(stop), sequences, () if ignores else tuple(eos))
    served = generation(stop=stop, stop_sequences=sequences, min_tokens=least, ignore_eos=ignores)
    text = tuple(rng.choices(range(4), k=12))
    ends = [count for count in range(1, 13) if stops(served, text[:count], eos)]
    assert ends == [count for count in range(1, 13) if limits.ended(text[:count])]
    cut = limits.cut((), text)
    assert cut == text[: min(ends, default=12)]
    for done in range(1, len(cut)):
        assert limits.cut(text[:done], text[done:]) == cut[done:]


def decode_row(least: Minimum | None) -> DecodeRow:
    return DecodeRow(generation(), 1, 1, 5, 3, 2, minimum=least)


@pytest.mark.parametrize("emitted", range(1, 7))
def test_each_row_of_a_verify_is_masked_by_its_own_place(emitted: int) -> None:
    served = generation(stop=frozenset({2}), min_tokens=4)
    request = Request(arrival=0, prompt=(1,), budget=9, rounds=(RoundPlan(num_drafts=1, num_correct=1),), min_tokens=4)
    row = decode_row(minimum(served, emitted, frozenset({5})))
    proposal = Proposal(torch.zeros((2, 3), dtype=torch.int64), (2, 3))
    made = masks((row, decode_row(None)), proposal, torch.zeros((2, 4, VOCAB), dtype=torch.bool)).numpy()
    for place in range(3):
        assert set(np.flatnonzero(made[0, place])) == excluded(request, emitted + place, (2, 5))
    # Neither surplus rows nor another request are masked.
    assert not made[0, 3].any()
    assert not made[1].any()


def test_rows_of_a_tree_have_the_place_of_their_depth() -> None:
    parents = torch.tensor([[0, 0, 1, 3, 0]])
    proposal = Proposal(torch.zeros((1, 5), dtype=torch.int64), (4,), parents)
    assert depths(proposal, 0) == (0, 1, 1, 2, 3)
    row = decode_row(Minimum(2, (6,)))
    made = masks((row,), proposal, torch.zeros((1, 6, VOCAB), dtype=torch.bool))
    assert made[0, :, 6].tolist() == [True, True, True, False, False, False]
    assert made.sum() == 3


def test_what_is_excluded_already_stays() -> None:
    before = torch.zeros((1, 2, VOCAB), dtype=torch.bool)
    before[0, 1, 3] = True
    made = masks((decode_row(Minimum(1, (0,))),), Proposal(torch.zeros((1, 1), dtype=torch.int64), (1,)), before)
    assert made.nonzero().tolist() == [[0, 0, 0], [0, 1, 3]]


def test_a_prompt_is_masked_by_what_was_emitted() -> None:
    served = generation(stop=frozenset({2}), min_tokens=2)
    rows = [
        PrefillRow(served, 1, 0, 0, 2, minimum=minimum(served, emitted, frozenset()), emitted=(3,) * emitted)
        for emitted in (0, 1, 2)
    ]
    made = prompt_masks(rows, torch.zeros((3, VOCAB), dtype=torch.bool))
    assert made.nonzero().tolist() == [[0, 2], [1, 2]]
    assert minimum(generation(stop=frozenset({2})), 0, frozenset({1})) is None
