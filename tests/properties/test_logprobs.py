"""What a request may ask of logprobs, and what strategies, fitting, contracts and shrinking make of it."""

import pytest
from msgspec.structs import replace

from draftproof.engine.subject import EngineSubject
from draftproof.fuzz.shrinking.of_requests import fewer_logprobs
from draftproof.fuzz.shrinking.size import size
from draftproof.harness.lockstep import evidence
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.scenario import Graphs, PromptLogprobs, Scenario
from tests.named import named
from tests.properties.evidence import ADAPTIVE, STATIC, TREE
from tests.properties.facts import names_of

SCENARIO = named("logprobs")
NAMES = set(names_of("logprobs", "prompt-logprobs"))


def test_a_request_is_shrunk_to_one_that_asks_for_less():
    request = replace(SCENARIO.requests[0], logprobs=3, prompt_logprobs=None)
    whole = replace(SCENARIO, requests=(request, *SCENARIO.requests[1:]))
    tried = list(fewer_logprobs(request))
    assert tried[0].logprobs is None
    assert {one.logprobs for one in tried[1:]} <= {0, 1, 2}
    assert list(fewer_logprobs(replace(request, logprobs=None))) == []
    asking_of_prompt = replace(request, logprobs=None, prompt_logprobs=PromptLogprobs(top=2, start=3))
    assert next(one.prompt_logprobs for one in fewer_logprobs(asking_of_prompt)) is None
    for one in tried:
        assert size(replace(whole, requests=(one, *whole.requests[1:]))) < size(whole)


def asking(scenario: Scenario, *tops: int | None, **changes: object) -> Scenario:
    pairs = zip(scenario.requests, (*tops, *[None] * len(scenario.requests)), strict=False)
    return validate(replace(scenario, requests=tuple(replace(one, logprobs=top) for one, top in pairs), **changes))


SCENARIOS = {
    "captured": asking(STATIC, 2, 0, 5),
    "eager": asking(STATIC, None, 1, graphs=Graphs()),
    "dynamic": asking(ADAPTIVE, 20, 2),
    "tree": asking(TREE, 3, None, 1),
    "other sizes": asking(TREE, 3, None, 1, variant="graph_vs_eager"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_engine_tells_what_the_reference_does(name: str):
    of = evidence(EngineSubject("cpu"), SCENARIOS[name])
    judged = judge(of)
    assert judged.passed, judged.first
    assert of.subject.channel("accept.logprobs")
