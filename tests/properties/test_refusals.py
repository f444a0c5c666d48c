"""Requests that no engine can serve: they end where they come, and nobody else notices (S-LIMIT-18)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from draftproof.engine.stages import GenerationRequest, GrammarParams
from draftproof.engine.stopping import error
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import validate
from draftproof.properties.values.grammar import end_token, token_texts
from draftproof.properties.values.handed import handed
from draftproof.properties.values.observed import BatchRow, Returned
from draftproof.properties.values.relations import Different, Missing, Surplus
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key, Observation
from tests.named import named
from tests.properties.evidence import with_observations

REFUSED = named("refused")
FLAWED = [number for number, request in enumerate(REFUSED.requests) if request.flaw != "none"]
FEATURE = FEATURES_BY_NAME["refusals"]
Told = list[Observation]


def test_each_reason_is_told_and_counted() -> None:
    of = evidence(EngineSubject(), REFUSED)
    assert judge(of).passed
    assert {name: counts(of)[name] for name in ("refused_for_length", "refused_for_token", "refused_for_grammar")} == {
        "refused_for_length": 1,
        "refused_for_token": 1,
        "refused_for_grammar": 1,
    }
    assert counts(of)["refused_beside_others"] == 3
    assert not any(counts(of)[f"aborted_{when}"] for when in ("waiting", "before_others"))


def test_others_are_what_they_are_without() -> None:
    served = [number for number in range(len(REFUSED.requests)) if number not in FLAWED]

    def own(scenario: Scenario) -> Told:
        told = evidence(EngineSubject(), scenario).subject.observations
        return [one for one in told if one.key.request in served or one.channel in ("graph.replay", "pool.owners")]

    assert own(REFUSED) == own(FEATURE.without(REFUSED))


def _changed(one: Observation, **changes: object) -> Observation:
    return one._replace(value=replace(one.value, **changes))  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("change", "relation"),
    [
        (lambda told: [_changed(one, step=one.value.step + 1) for one in told], Different()),
        (lambda told: [_changed(one, error="") for one in told], Different()),
        (lambda told: [_changed(one, finished=False) for one in told], Different()),
        (lambda told: told[1:], Missing()),
        (lambda told: [*told, Observation("round.rows", Key(FLAWED[0], 0, 0), BatchRow(0, 1, 0, 0, 4))], Surplus()),
    ],
    ids=["late", "without a reason", "not at its end", "never", "it runs"],
)
def test_a_refusal_that_is_wrong_is_found(change: Callable[[Told], Told], relation: object) -> None:
    of, contract = evidence(EngineSubject(), REFUSED), find("output.refused")
    mine = [one for one in of.subject.observations if one.channel == "accept.returned" and one.key.request in FLAWED]
    others = [one for one in of.subject.observations if one not in mine]
    assert contract.check(with_observations(of, (*others, *mine))) == []
    assert [one.relation for one in contract.check(with_observations(of, (*others, *change(mine))))] == [relation]


def test_a_refusal_is_no_round_before_others() -> None:
    of = evidence(EngineSubject(), REFUSED)
    more = Observation("accept.returned", Key(FLAWED[0], 1), Returned(5, finished=True))
    wrong = with_observations(of, (*of.subject.observations, more))
    assert [one.relation for one in find("output.returned").check(wrong)] == [Surplus()]


def test_what_is_handed_over_is_just_beyond_what_can_be_served() -> None:
    memory = REFUSED.memory
    by_flaw = {REFUSED.requests[number].flaw: handed(REFUSED, REFUSED.requests[number]) for number in FLAWED}
    assert len(by_flaw["length"].prompt) == min(memory.max_len, memory.pages * memory.page_size + 1)
    assert by_flaw["token"].prompt[-1] == REFUSED.model.vocab
    assert handed(REFUSED, REFUSED.requests[0]) == REFUSED.requests[0]


@pytest.mark.parametrize("pattern", ["(a", "*a", "[ab", "d", "aad"])
def test_a_grammar_without_a_word_is_refused_whether_it_compiles_or_not(pattern: str) -> None:
    asked = GrammarParams(pattern, token_texts(20), end_token(20))
    request = GenerationRequest(0, 0, (1, 19), 4, frozenset(), (1,), grammar=asked)
    assert error(request, 20) == "grammar"
    assert error(request, 19) == "token"


def test_something_runs() -> None:
    with pytest.raises(InvalidScenarioError, match="aborted or refused as they arrive"):
        validate(replace(REFUSED, requests=tuple(REFUSED.requests[number] for number in FLAWED)))
