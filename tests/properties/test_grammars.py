"""What a request may ask of a grammar, and what strategies, fitting, aims, contracts and shrinking make of it."""

from dataclasses import replace as of_trace

import pytest
from msgspec.structs import replace

from draftproof.fuzz.shrinking.of_requests import plainer_grammar, plainer_tokens
from draftproof.fuzz.shrinking.size import size
from draftproof.harness.lockstep import evidence
from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import is_valid, validate
from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.grammar import Grammar, end_token, token_texts
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key, Observation
from tests.named import named
from tests.properties.evidence import STATIC, TREE
from tests.properties.ideal import IdealSubject

SCENARIO = named("grammar")
VOCAB = SCENARIO.model.vocab


def constrained(pattern: str, scenario: Scenario = SCENARIO) -> Scenario:
    """Return the scenario, whose first request has a grammar of this pattern."""
    first, *others = scenario.requests
    stops = (*first.stops, end_token(scenario.model.vocab))
    return replace(scenario, requests=(replace(first, grammar=Grammar(pattern=pattern), stops=stops), *others))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "d+",
            r"invalid requests\[0\].grammar.pattern 'd\+': expected a pattern with a word of the letters that tokens "
            "spell, a, b, c",
        ),
        ("(a|b)xyz", "expected a pattern with a word of the letters that tokens spell, a, b, c"),
        (
            "(ab",
            r"invalid requests\[0\].grammar.pattern '\(ab': expected \) at place 3, got the end, in the notation of "
            r"letters a .. z, \(\), |, \[\], \*, \+, \?, {m} and {m,n}",
        ),
    ],
)
def test_a_grammar_that_accepts_nothing_or_is_none_is_refused(pattern: str, message: str):
    with pytest.raises(InvalidScenarioError, match=message):
        validate(constrained(pattern))


def test_the_end_token_is_a_stop_token():
    first, *others = constrained("a*").requests
    without = replace(SCENARIO, requests=(replace(first, stops=(1,)), *others))
    message = rf"requests\[0\].stops \[1\]: expected the end token {VOCAB - 1} among them, as there is a grammar"
    with pytest.raises(InvalidScenarioError, match=message):
        validate(without)


def test_a_request_is_shrunk_to_one_without_a_grammar_or_with_a_plainer_one():
    whole = constrained("([ab]|cc?[ab])*")
    request = whole.requests[0]
    tried = list(plainer_grammar(request))
    assert tried[0].grammar is None
    assert all(one.grammar for one in tried[1:])
    assert list(plainer_grammar(replace(request, grammar=None))) == []
    for one in tried:
        made = replace(whole, requests=(one, *whole.requests[1:]))
        assert is_valid(made)
        assert size(made) < size(whole)


def test_a_smaller_vocabulary_has_its_own_end_token():
    whole = constrained("a*", replace(STATIC, draft=Ngram(max_n=2)))
    changed = [one for one in plainer_tokens(whole) if is_valid(one) and one.model.vocab < whole.model.vocab]
    assert changed
    assert all(end_token(one.model.vocab) in one.requests[0].stops for one in changed)


def test_trees_may_have_grammars():
    of = evidence(IdealSubject(), validate(constrained("([ab]|cc?[ab])*", TREE)))
    assert judge(of).passed
    assert counts(of)["grammar_changed_choice"]


CASE = evidence(IdealSubject(), validate(constrained("(ab|c)*", replace(STATIC, requests=STATIC.requests[:2]))))


def emitting(place: int, *tokens: int) -> Evidence:
    """The evidence, in which the first request's round emits other tokens."""
    trace = CASE.subject
    said = [
        Observation(one.channel, one.key, tokens)
        if one.channel == "accept.emitted" and one.key == Key(0, place)
        else one
        for one in trace.observations
    ]
    return of_trace(CASE, subject=of_trace(trace, observations=tuple(said)))


def test_a_text_that_disobeys_is_found_without_the_reference():
    contract, vocab = CONTRACTS_BY_NAME["output.grammar"], CASE.scenario.model.vocab
    assert contract.check(CASE) == []
    spelled = {text: token for token, text in enumerate(token_texts(vocab))}
    found = contract.check(emitting(0, spelled["b"]))
    assert [(one.channel, one.round, one.request) for one in found] == [("accept.emitted", 0, 0)]
    assert "a word of (ab|c)*" in found[0].expected
    # The end token where no word ends; afterwards anything may come.
    assert contract.check(emitting(0, spelled["a"], end_token(vocab)))
    assert not [one for one in contract.check(emitting(0, spelled["ab"], end_token(vocab))) if one.round == 0]
