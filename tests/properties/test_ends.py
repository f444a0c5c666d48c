"""Ends of requests: ids of the model, stop sequences, a minimum of tokens, and which of them comes first (S-LIMIT)."""

from typing import Any

import pytest
from msgspec.structs import replace

from draftproof.fuzz.shrinking.of_requests import fewer_ends, fewer_eos, no_stops
from draftproof.fuzz.shrinking.size import size
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.ends import end_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features import ends
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import is_valid, validate
from draftproof.properties.values.grammar import Grammar
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.relations import Different, Resized
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, TokenSpan
from draftproof.reference.solve import solve
from tests.properties.breaking import edited, ran
from tests.properties.evidence import PREEMPTED, STATIC, TREE
from tests.properties.facts import names_of

CONTRACT = find("output.ends")
OF_ENDS = {*names_of("eos", "min-tokens", "stop-sequences"), "stops_before_budget_in_run"}
RIGHT = (RoundPlan(num_drafts=3, num_correct=3),)


def ended(scenario: Scenario = STATIC, /, eos: TokenIds = (), **changes: Any) -> Scenario:
    """Return the scenario with a first request whose drafts are all right, with these changes."""
    first, *others = scenario.requests
    return replace(scenario, eos=eos, requests=(replace(first, rounds=RIGHT, **changes), *others))


def text_of(scenario: Scenario) -> TokenIds:
    """Return what the first request emits by definition."""
    return solve(scenario).requests[0].tokens


PLAIN = text_of(ended())
"""Nine tokens: one of the prompt, four of the first round, four of the second."""


def emitted(of: Evidence) -> list[TokenIds]:
    """Return what each round of the first request emitted."""
    return [value for key, value in sorted(of.subject.typed("accept.emitted", TokenIds).items()) if not key.request]


def told(of: Evidence) -> set[str]:
    """Return the counts of ends that are not zero."""
    return {name for name, count in counts(of).items() if count and name in OF_ENDS}


def first_at(token: int) -> int:
    """Return which token of the plain text is the first of this id."""
    return PLAIN.index(token)


def test_an_id_of_the_model_ends_a_text_unless_it_is_ignored() -> None:
    token = PLAIN[3]
    of = ran(ended(eos=(token,)))
    assert of.subject.texts[0] == PLAIN[: first_at(token) + 1]
    assert "ends_by_eos" in told(of)
    ignoring = ran(ended(eos=(token,), ignore_eos=True))
    assert ignoring.subject.texts[0] == PLAIN
    assert "eos_ignored" in told(ignoring)


def test_ids_of_the_request_end_one_that_ignores_those_of_the_model() -> None:
    token = PLAIN[3]
    of = ran(ended(eos=(token,), stops=(token,), ignore_eos=True))
    assert of.subject.texts[0] == PLAIN[: first_at(token) + 1]
    assert "eos_ignored" not in told(of)


@pytest.mark.parametrize("last", range(1, 9))
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_sequence_ends_a_text_wherever_its_rounds_are(last: int, length: int) -> None:
    span = TokenSpan(first=max(0, last - length + 1), last=last)
    of = ran(ended(stop_sequences_at=(span,)))
    own = PLAIN[span.first : last + 1]
    ends = [end for end in range(len(own), len(PLAIN) + 1) if PLAIN[end - len(own) : end] == own]
    assert of.subject.texts[0] == PLAIN[: ends[0]]
    # The rounds emit 1, 4 and 4 tokens: of a sequence over a border the beginning came before.
    assert ("sequences_across_rounds" in told(of)) == (ends[0] - len(own) < (5 if ends[0] > 5 else 1) and ends[0] > 1)


def test_what_is_committed_follows_the_cut() -> None:
    of = ran(ended(stop_sequences_at=(TokenSpan(first=5, last=6),)))
    assert emitted(of) == [PLAIN[:1], PLAIN[1:5], PLAIN[5:7]]
    lengths = [value for key, value in sorted(of.subject.typed("commit.length", int).items()) if not key.request]
    prompt = len(of.scenario.requests[0].prompt)
    assert lengths == [prompt, prompt + 4, prompt + 6]
    assert "sequences_in_accepted_run" in told(of)


def test_a_sequence_that_begins_in_the_prompt_is_none() -> None:
    of = ran(ended(stop_sequences_at=(TokenSpan(first=-2, last=1),)))
    assert of.subject.texts[0] == PLAIN
    assert "sequences_from_prompt" in told(of)


def test_a_sequence_of_the_scenario_is_found_too() -> None:
    of = ran(ended(stop_sequences=(PLAIN[4:6], (0, 0, 0, 0))))
    assert of.subject.texts[0] == PLAIN[:6]


@pytest.mark.parametrize("least", range(10))
def test_no_stop_token_comes_before_the_minimum(least: int) -> None:
    """Of an id that comes early, in a text that is another then, with drafts that are all right."""
    scenario = ended(stop_at=2, min_tokens=min(least, 9))
    of = ran(scenario)
    (stop,) = of.script.requests[0].stop
    text = of.subject.texts[0]
    assert stop == PLAIN[2]
    assert stop not in text[:least]
    assert len(text) == 9 or (text[-1] == stop and len(text) > least)
    if least > 2:
        assert "minimum_changed_choice" in told(of)
        assert text[:2] == PLAIN[:2]


def test_the_minimum_ends_inside_of_a_verify() -> None:
    # The first round verifies numbers 1 .. 4: of these 3 and 4 may be the stop token, and 3 is it.
    of = ran(ended(stop_at=3, min_tokens=3))
    (stop,) = of.script.requests[0].stop
    text = of.subject.texts[0]
    assert (text[-1], len(text)) == (stop, 4)
    assert {"minimum_in_window", "minimum_of_first_row", "minimum_in_accepted_run"} <= told(of)
    assert "ends_as_minimum_is_reached" in told(of)


def test_ids_of_the_model_are_excluded_though_they_are_ignored() -> None:
    token = PLAIN[3]
    of = ran(ended(eos=(token,), ignore_eos=True, min_tokens=5))
    assert token not in of.subject.texts[0][:5]


def test_a_sequence_before_the_minimum_ends_nothing_and_one_behind_does() -> None:
    early = ran(ended(min_tokens=4, stop_sequences_at=(TokenSpan(first=2, last=3),)))
    again = [end for end in range(5, 10) if PLAIN[end - 2 : end] == PLAIN[2:4]]
    assert early.subject.texts[0] == PLAIN[: min(again, default=9)]
    assert "sequences_before_minimum" in told(early)
    behind = ran(ended(min_tokens=4, stop_sequences_at=(TokenSpan(first=2, last=4),)))
    assert behind.subject.texts[0] == PLAIN[:5]


def test_the_first_in_the_text_ends_it() -> None:
    """Not that of the run: a stop before a budget, a budget before a stop, in one accepted run."""
    of = ran(ended(budget=5, stop_sequences_at=(TokenSpan(first=2, last=3),)))
    assert of.subject.texts[0] == PLAIN[:4]
    assert "stops_before_budget_in_run" in told(of)
    assert ran(ended(budget=5, stop_sequences_at=(TokenSpan(first=4, last=5),))).subject.texts[0] == PLAIN[:5]
    longest = len(STATIC.requests[0].prompt) + 5
    limited = ended(stop_sequences_at=(TokenSpan(first=5, last=6),))
    limited = replace(limited, memory=replace(limited.memory, max_len=longest))
    limited = replace(limited, requests=limited.requests[:1])
    assert ran(limited).subject.texts[0] == PLAIN[:5]


@pytest.mark.parametrize("scenario", [TREE, PREEMPTED], ids=["tree", "preempted"])
def test_of_trees_and_after_a_preemption_rows_have_their_own_place(scenario: Scenario) -> None:
    changed = tuple(replace(one, min_tokens=min(4, one.budget), stop_at=3) for one in scenario.requests)
    of = ran(replace(scenario, requests=changed, eos=(1, 2)))
    assert {"minimum_changed_choice", "minimum_in_window"} <= told(of)


def _with_text(of: Evidence, text: TokenIds) -> Evidence:
    """The same with another text of the first request, in rounds of four tokens."""

    return edited(
        of, "accept.emitted", lambda key, _: text[4 * key.round : 4 * key.round + 4], lambda key: not key.request
    )


def test_a_text_that_ends_elsewhere_is_noticed() -> None:
    of = ran(ended(stop_at=5, min_tokens=3))
    text = of.subject.texts[0]
    assert not CONTRACT.check(_with_text(of, text))
    (longer,) = CONTRACT.check(_with_text(of, (*text, 0)))
    assert longer.relation == Resized(1)
    (shorter,) = CONTRACT.check(_with_text(of, text[:-1]))
    assert shorter.relation == Resized(-1)
    (early,) = CONTRACT.check(_with_text(of, (text[0], text[-1], *text[2:])))
    assert early.relation == Different()


def test_the_order_of_ends_at_one_token() -> None:
    scenario, script = ended(budget=3), solve(ended(stop_at=2, budget=3)).requests[0]
    request = scenario.requests[0]
    assert end_of(scenario, request, script, PLAIN[:3]) == "id"
    assert end_of(scenario, request, replace(script, stop=()), PLAIN[:3]) == "budget"
    assert end_of(scenario, request, replace(script, stop=(), sequences=(PLAIN[1:3],)), PLAIN[:3]) == "sequence"
    assert end_of(scenario, request, replace(script, stop=()), PLAIN[:2]) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eos": (99,)}, r"eos 99: expected below model.vocab = "),
        ({"stop_sequences": ((1, 99),)}, r"token in requests\[0\].stop_sequences 99: expected below model.vocab = "),
        ({"min_tokens": 10}, r"requests\[0\].min_tokens 10: expected at most requests\[0\].budget = 9"),
        (
            {"stop_sequences_at": (TokenSpan(first=-8, last=1),)},
            r"requests\[0\].stop_sequences_at\[0\].first -8: expected at least -7, the first token of the prompt",
        ),
        (
            {"stop_sequences_at": (TokenSpan(first=3, last=2),)},
            r"requests\[0\].stop_sequences_at\[0\].last 2: expected at least requests\[0\]\S*first = 3",
        ),
        (
            {"min_tokens": 1, "stops": tuple(range(STATIC.model.vocab))},
            r"requests\[0\].stops and eos of \d+ ids: expected fewer than model.vocab = ",
        ),
        (
            {"min_tokens": 1, "grammar": Grammar(pattern="a*"), "stops": (STATIC.model.vocab - 1,)},
            r"requests\[0\].min_tokens 1: expected 0 beside a grammar, which says when it ends",
        ),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidScenarioError, match=f"invalid {message}"):
        validate(ended(**changes))


def test_shrinking_drops_them() -> None:
    span = TokenSpan(first=2, last=5)
    scenario = ended(
        eos=(1, 2), min_tokens=4, ignore_eos=True, stop_at=7, stop_sequences_at=(span,), stop_sequences=((3,),)
    )
    request = scenario.requests[0]
    smaller = list(fewer_ends(request))
    assert not smaller[0].has_ends
    assert any(one.stop_sequences_at and one.stop_sequences_at[0].last < 5 for one in smaller)
    assert any(one.stop_sequences_at and one.stop_sequences_at[0].first > 2 for one in smaller)
    assert not list(fewer_ends(ended().requests[0]))
    for one in (*smaller, *no_stops(request)):
        made = replace(scenario, requests=(one, *scenario.requests[1:]))
        assert is_valid(made)
        assert size(made) < size(scenario)
    assert [one.eos for one in fewer_eos(scenario)] == [(1,), (2,)]
    for without in (ends.EOS.without, ends.MIN_TOKENS.without, ends.STOP_SEQUENCES.without):
        assert size(without(scenario)) < size(scenario)


def test_a_request_without_any_says_so() -> None:
    assert not Request(arrival=0, prompt=(1,), budget=1, rounds=RIGHT).has_ends
    assert not STATIC.has_ends
    assert ended(eos=(1,)).has_ends
