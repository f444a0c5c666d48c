"""What a request may ask of penalties, and what strategies, fitting, aims and shrinking make of it."""

import pytest
from msgspec.structs import replace

from draftproof.fuzz.shrinking.of_requests import fewer_penalties, plainer_tokens
from draftproof.fuzz.shrinking.size import size
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import is_valid, validate
from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.penalties import Penalties, TokenBias
from draftproof.properties.values.scenario import Scenario
from tests.named import named
from tests.properties.evidence import STATIC, TREE
from tests.properties.ideal import IdealSubject

SCENARIO = named("penalized")
VOCAB = SCENARIO.model.vocab


def penalised(own: Penalties | None, scenario: Scenario = SCENARIO) -> Scenario:
    """Return the scenario, whose first request has these penalties."""
    first, *others = scenario.requests
    return replace(scenario, requests=(replace(first, penalties=own), *others))


def bias(*pairs: tuple[int, int]) -> tuple[TokenBias, ...]:
    return tuple(TokenBias(token=token, amount=amount) for token, amount in pairs)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (Penalties(repetition=1.1), r"penalties.repetition 1.1: expected a multiple of 1/16"),
        (Penalties(repetition=float("nan")), r"penalties.repetition nan: expected a multiple of 1/16"),
        (Penalties(repetition=float("inf")), r"penalties.repetition inf: expected a multiple of 1/16"),
        (
            Penalties(bias=bias((VOCAB, 1))),
            rf"invalid token in requests\[0\].penalties.bias {VOCAB}: expected below model.vocab = {VOCAB}",
        ),
        (
            Penalties(bias=bias((1, 1), (2, 1), (1, 3))),
            r"invalid token in requests\[0\].penalties.bias 1 twice: expected each token once",
        ),
    ],
)
def test_what_does_not_fit_together_is_named(own: Penalties, message: str):
    with pytest.raises(InvalidScenarioError, match=message):
        validate(penalised(own))


def test_a_request_is_shrunk_to_one_without_penalties_or_with_fewer():
    own = Penalties(bias=bias((1, 5), (0, -3)), repetition=1.5, frequency=7)
    whole = penalised(own)
    request = whole.requests[0]
    tried = list(fewer_penalties(request))
    assert [one.penalties for one in tried] == [
        None,
        replace(own, bias=()),
        replace(own, repetition=1.0),
        replace(own, frequency=0),
        replace(own, bias=bias((0, -3))),
        replace(own, bias=bias((1, 5))),
    ]
    assert list(fewer_penalties(replace(request, penalties=None))) == []
    for one in tried:
        assert size(replace(whole, requests=(one, *whole.requests[1:]))) < size(whole)


def test_a_smaller_vocabulary_keeps_biases_of_tokens_that_it_has():
    vocab = STATIC.model.vocab
    whole = penalised(Penalties(bias=bias((vocab - 1, 5))), replace(STATIC, draft=Ngram(max_n=2)))
    changed = [one for one in plainer_tokens(whole) if is_valid(one) and one.model.vocab < vocab]
    assert changed
    for one in changed:
        assert one.requests[0].penalties == Penalties(bias=bias(((vocab - 1) % one.model.vocab, 5)))


def test_trees_may_have_penalties():
    made = validate(penalised(Penalties(frequency=-(1 << 23), repetition=2.0), TREE))
    of = evidence(IdealSubject(), made)
    assert judge(of).passed
    assert counts(of)["penalty_by_draft_in_window"]


def test_biases_are_spread_over_a_larger_vocabulary_and_a_smaller_one():
    own = Penalties(bias=(TokenBias(token=8, amount=1), TokenBias(token=9, amount=2), TokenBias(token=1, amount=3)))
    assert [one.token for one in own.spread(10, 40).bias] == [32, 36, 4]
    assert {one.token: one.amount for one in own.spread(10, 5).bias} == {4: 2, 0: 3}
