"""N-gram lookup against a brute force over all suffixes and all places, and by hand."""

import random
from collections import Counter
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from transformers.generation import PromptLookupCandidateGenerator

from draftproof.properties.values.drafts import Ngram as Spec
from draftproof.properties.values.observed import DraftNeeds, NgramMatch
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key
from draftproof.reference.build import build
from draftproof.reference.drafts.base import Said
from draftproof.reference.drafts.ngram import ReferenceNgram
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.run import run
from draftproof.reference.solve import resolve, solve
from tests.reference.draft_rows import Told, brute_match
from tests.reference.scenarios import BRIEF, request, scenario, scenarios
from tests.reference.test_dynamic import dynamic

MANY = settings(max_examples=1200, deadline=None, derandomize=True)
NOTHING: Pass = None  # type: ignore[assignment]


@st.composite
def lookups(draw: st.DrawFn) -> tuple[tuple[int, ...], Spec]:
    """Of two or three tokens, so that suffixes occur again and again, and overlap."""
    vocab = draw(st.integers(1, 3))
    tokens = draw(st.lists(st.integers(0, vocab), min_size=1, max_size=24))
    most = draw(st.integers(1, 8))
    match: Literal["earliest", "latest"] = draw(st.sampled_from(("earliest", "latest")))
    return tuple(tokens), Spec(max_n=most, min_n=draw(st.integers(1, most)), match=match)


def test_equals_the_brute_force() -> None:
    times: Counter[str] = Counter()

    @MANY
    @given(lookups(), st.integers(0, 6))
    def check(lookup: tuple[tuple[int, ...], Spec], count: int) -> None:
        tokens, spec = lookup
        length, place = brute_match(tokens, spec)
        got = ReferenceNgram(spec).propose(tokens, NOTHING, count)
        assert got.said == (Said("propose.match", NgramMatch(length, place)),)
        wanted = [tokens[place + k] for k in range(count) if place + k < len(tokens)] if length else []
        assert list(got.tokens) == wanted
        times["none"] += length == 0
        times["fewer than asked for"] += 0 < len(wanted) < count
        times["overlapping"] += length > 0 and place > len(tokens) - length
        times["shorter than most"] += 0 < length < spec.max_n
        times["of the most"] += length == spec.max_n > 1
        latest = brute_match(tokens, replace(spec, match="latest"))
        times[f"{spec.match} of several"] += latest != brute_match(tokens, replace(spec, match="earliest"))

    check()
    assert len(times) == 7
    assert all(count >= 20 for count in times.values()), times


@pytest.mark.parametrize(
    ("tokens", "most", "least", "match", "found"),
    [
        ((1, 2, 3, 1, 2), 3, 1, (2, 2), (3, 1, 2)),
        ((1, 2, 9, 1, 2, 7, 1, 2), 2, 1, (2, 5), (7, 1, 2)),
        ((1, 2, 9, 3, 2, 7, 1, 2), 2, 1, (2, 2), (9, 3, 2, 7, 1, 2)),
        ((1, 2, 9, 3, 2, 7, 1, 2), 1, 1, (1, 5), (7, 1, 2)),
        ((4, 4, 4, 4), 3, 1, (3, 3), (4,)),
        ((4, 4), 3, 1, (1, 1), (4,)),
        ((4, 5), 3, 1, (0, -1), ()),
        ((4,), 3, 1, (0, -1), ()),
        ((1, 2, 3, 2), 3, 2, (0, -1), ()),
    ],
)
def test_the_latest_by_hand(
    tokens: tuple[int, ...], most: int, least: int, match: tuple, found: tuple[int, ...]
) -> None:
    draft = ReferenceNgram(Spec(max_n=most, min_n=least, match="latest"))
    assert draft.match(tokens) == match
    for count in (*range(5), 40):
        assert draft.propose(tokens, NOTHING, count).tokens == found[:count]


@pytest.mark.parametrize(
    ("tokens", "most", "match", "found"),
    [
        ((1, 2, 9, 1, 2, 7, 1, 2), 2, (2, 2), (9, 1, 2, 7, 1, 2)),
        ((2, 9, 1, 2, 7, 1, 2), 2, (2, 4), (7, 1, 2)),
        ((1, 2, 9, 3, 2, 7, 1, 2), 1, (1, 2), (9, 3, 2, 7, 1, 2)),
        ((4, 4, 4, 4), 3, (3, 3), (4,)),
        ((4, 4, 4, 4), 2, (2, 2), (4, 4)),
    ],
)
def test_the_earliest_by_hand(tokens: tuple[int, ...], most: int, match: tuple, found: tuple[int, ...]) -> None:
    draft = ReferenceNgram(Spec(max_n=most))
    assert draft.match(tokens) == match
    for count in (*range(5), 40):
        assert draft.propose(tokens, NOTHING, count).tokens == found[:count]


def test_the_earliest_is_what_transformers_looks_up() -> None:
    """The witness: PromptLookupCandidateGenerator on random tokens; its shortest suffix is one token."""
    rng, several = random.Random(5), 0
    for _ in range(400):
        tokens = tuple(rng.randrange(rng.choice((2, 3, 5))) for _ in range(rng.randint(1, 30)))
        most, count = rng.randint(1, 5), rng.randint(1, 6)
        lookup = PromptLookupCandidateGenerator(
            num_output_tokens=count, max_matching_ngram_size=most, max_length=len(tokens) + count + 1
        )
        witness = lookup.get_candidates(torch.tensor([tokens]))[0][0, len(tokens) :].tolist()
        assert list(ReferenceNgram(Spec(max_n=most)).propose(tokens, NOTHING, count).tokens) == witness
        several += ReferenceNgram(Spec(max_n=most, match="latest")).propose(tokens, NOTHING, count).tokens != tuple(
            witness
        )
    assert several > 80


@BRIEF
@given(scenarios("ngram"))
def test_only_what_was_emitted_enters_and_every_round_tells_its_match(made: Scenario) -> None:
    """Rounds without drafts and forced ones too; a round that is not forced verifies all that was found."""
    made = replace(made, requests=made.requests[:1])
    script = solve(made)
    trace, tokens = run(made, script), made.requests[0].prompt + script.requests[0].tokens[:1]
    for number, round_ in enumerate(script.requests[0].rounds, start=1):
        told = Told(trace, number)
        length, place = brute_match(tokens, made.draft)
        assert told("propose.match") == NgramMatch(length, place)
        own = tokens[place : place + round_.drafts] if length else ()
        assert told("propose.tokens") == own
        assert round_.forced is not None or len(own) == round_.drafts
        tokens += round_.emitted


@BRIEF
@given(scenarios("ngram"))
def test_a_dynamic_round_has_no_more_drafts_than_were_found(made: Scenario) -> None:
    asked = dynamic(made)
    script, memo = solve(asked), Memo()
    for count in range(made.steps + 1):
        given_ = {(index, round_): count for index in range(len(made.requests)) for round_ in range(1, 40)}
        solved = resolve(asked, script, given_, memo)
        trace = run(asked, solved, memo)
        for index, one in enumerate(solved.requests):
            for number, round_ in enumerate(one.rounds, start=1):
                assert round_.drafts <= count
                if round_.forced is None:
                    own = trace.channel("propose.tokens")[Key(index, number)]
                    assert len(own) == round_.drafts


def test_it_reports_nothing_of_entries_or_hidden_states() -> None:
    made = scenario(request(), draft=Spec(max_n=2))
    trace = run(made, solve(made))
    assert not [name for name in trace.channels if name.startswith(("draft.", "extend."))]
    assert trace.channel("config.draft") == {Key(-1, 0): DraftNeeds(0, 0)}
    assert build(made, Memo())[1].extend((1, 2), NOTHING, 0) == ()
