"""What a sampled request may ask for, and what shrinking and fitting make of it."""

import pytest
from msgspec.structs import replace

from draftproof.fuzz.shrinking.of_requests import plainer_sampling
from draftproof.fuzz.shrinking.size import size
from draftproof.properties.features.sampling import unplanned
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import validate
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import RoundPlan, Scenario
from tests.named import named

SCENARIO = named("sampled_eagle")


def sampling(**fields: object) -> Scenario:
    """Return the scenario, whose first request draws its tokens so."""
    first, *others = SCENARIO.requests
    return replace(SCENARIO, requests=(replace(first, sampling=Sampling(**fields)), *others))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 0.7}, r"requests\[0\].sampling.temperature 0.7: expected a multiple of 1/16"),
        ({"temperature": float("nan")}, r"requests\[0\].sampling.temperature nan: expected a multiple of 1/16"),
        ({"top_p": 0.9}, r"requests\[0\].sampling.top_p 0.9: expected a multiple of 1/65536"),
        ({"min_p": 0.1}, r"requests\[0\].sampling.min_p 0.1: expected a multiple of 1/65536"),
    ],
)
def test_a_value_that_is_not_exact_is_named(fields, message):
    with pytest.raises(InvalidScenarioError, match=message):
        validate(sampling(**fields))


def test_a_sampled_request_of_a_dynamic_scenario_plans_nothing():
    dynamic = replace(SCENARIO, schedule=replace(SCENARIO.schedule, draft_batch=1))
    first = replace(dynamic.requests[0], rounds=(RoundPlan(num_drafts=2, num_correct=1),), stop_at=-1)
    for changed, message in (
        (first, r"requests\[0\].rounds num_correct 1: expected -1, as its rounds depend on the schedule"),
        (replace(unplanned(first), stop_at=3), r"requests\[0\].stop_at 3: expected -1"),
    ):
        with pytest.raises(InvalidScenarioError, match=message):
            validate(replace(dynamic, requests=(changed, *map(unplanned, dynamic.requests[1:]))))
    validate(replace(dynamic, requests=tuple(map(unplanned, dynamic.requests))))


def test_a_sampled_request_is_shrunk_to_a_greedy_one_or_a_plainer_one():
    request = sampling(temperature=2.0, top_k=3, seed=7).requests[0]
    tried = list(plainer_sampling(request))
    assert [one.sampling for one in tried] == [
        None,
        Sampling(temperature=2.0, seed=7),
        Sampling(top_k=3, seed=7),
        Sampling(temperature=2.0, top_k=3),
    ]
    assert list(plainer_sampling(replace(request, sampling=None))) == []
    whole = sampling(temperature=2.0, top_k=3, seed=7)
    for one in tried:
        assert size(replace(whole, requests=(one, *whole.requests[1:]))) < size(whole)
