"""Scenarios fitted to what a subject can run: runnable, no further from what was drawn than needed, refused by name."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, features_of
from draftproof.properties.fit import UnfitError, _require_model, fit, fit_generated, fitted, within
from draftproof.properties.validate import is_valid
from draftproof.properties.values.drafts import Eagle, algorithm
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import Checkpoint, Scenario
from tests.named import named, names
from tests.properties.configs import LLAMA

DRAWN = [named(name) for name in names()]
OF_MODEL = {one.name for one in FEATURES if one.of_model}
TAKEN = [name for name in FEATURES_BY_NAME if name not in OF_MODEL]
"""Features that a subject may lack."""
TIGHT = Limits(
    max_rows=2,
    max_drafts=2,
    arrivals="together",
    steering="none",
    page_sizes=(4, 16),
    variants=("other_batches",),
    persistent=True,
)


def test_without_limits_nothing_changes() -> None:
    assert fitted(DRAWN, NO_LIMITS) == DRAWN


def test_what_is_fitted_can_be_run_and_stays_as_it_is() -> None:
    for scenario in DRAWN:
        made = fit(scenario, TIGHT)
        assert is_valid(made)
        assert fit(made, TIGHT) == made


def _within(one: Scenario) -> dict[str, bool]:
    plans = [plan for request in one.requests for plan in request.rounds]
    return {
        "max_rows": one.schedule.max_batch <= 2,
        "max_drafts": one.steps <= 2,
        "arrivals": all(request.arrival == 0 for request in one.requests),
        "steering": all(plan.num_correct == -1 and plan.num_drafts == one.steps for plan in plans),
        "features": set(features_of(one)) <= OF_MODEL,
        "page_sizes": one.memory.page_size in (4, 16),
        "variants": one.variant in ("none", "other_batches"),
        "persistent": one.schedule.services == 1,
    }


@pytest.mark.parametrize("field", list(_within(DRAWN[0])))
def test_each_limit_alone_is_kept(field: str) -> None:
    """And each is needed: some scenario is beyond it."""
    alone = replace(NO_LIMITS, **{field: getattr(TIGHT, field)})
    assert not all(_within(one)[field] for one in DRAWN)
    assert all(_within(fit(one, alone))[field] for one in DRAWN)


def test_a_subject_that_names_no_feature_gets_none() -> None:
    assert {name for one in DRAWN for name in features_of(fit(one, Limits()))} == OF_MODEL


@pytest.mark.parametrize("name", TAKEN)
def test_a_subject_that_names_one_feature_gets_that_alone(name: str) -> None:
    """And what needs no other feature it gets as often as it was drawn, but for what was beside it."""
    limits = Limits(features=(name,))
    made = [fit(one, limits) for one in DRAWN]
    assert {one for scenario in made for one in features_of(scenario)} <= OF_MODEL | {name}
    had = [fitted_ for one, fitted_ in zip(DRAWN, made, strict=True) if FEATURES_BY_NAME[name].has(one)]
    assert had
    assert any(map(FEATURES_BY_NAME[name].has, had)) == (not FEATURES_BY_NAME[name].needs)
    assert all(map(is_valid, made))


@pytest.mark.parametrize("name", TAKEN)
def test_a_subject_that_lacks_one_feature_gets_all_others(name: str) -> None:
    limits = Limits(features=tuple(one for one in TAKEN if one != name))
    for one in DRAWN:
        made = fit(one, limits)
        if not FEATURES_BY_NAME[name].has(one):
            continue
        lost = set(features_of(one)) - set(features_of(made))
        assert lost == {name} | {other.name for other in FEATURES if name in other.needs and other.has(one)}


def test_a_feature_that_there_is_not_is_told() -> None:
    with pytest.raises(UnfitError, match=r"invalid limits\.features 'windos': expected some of .*windows"):
        fit(DRAWN[0], Limits(features=("windos",)))


def test_what_cannot_be_fitted_is_none() -> None:
    assert within(DRAWN[0], NO_LIMITS) is DRAWN[0]
    assert within(DRAWN[0], Limits(models=("checkpoint",))) is None


def test_serial_means_one_row() -> None:
    limits = replace(NO_LIMITS, arrivals="serial")
    assert {fit(one, limits).schedule.max_batch for one in DRAWN} == {1}


def test_steering_of_counts_keeps_the_counts() -> None:
    for one in DRAWN:
        plans = [plan.num_drafts for request in one.requests for plan in request.rounds]
        made = fit(one, replace(NO_LIMITS, steering="counts"))
        assert [plan.num_drafts for request in made.requests for plan in request.rounds] == plans


def test_a_dtype_is_exchanged() -> None:
    plain = fit(next(one for one in DRAWN if one.model.vocab < 64 and not one.model.linear), Limits(variants=()))
    real = replace(plain, model=Checkpoint(path="m", vocab=64), draft=next(_ngram()))
    made = fit(real, Limits(dtypes=("float64",)))
    assert made.model.dtype == "float64"  # type: ignore[union-attr]
    assert fit(real, Limits(dtypes=("bfloat16", "float32"))) == real


def _ngram() -> Any:
    return (one.draft for one in DRAWN if algorithm(one.draft) == "ngram")


def test_a_model_or_a_draft_is_refused_by_name() -> None:
    with pytest.raises(UnfitError, match=r"invalid model 'probe': expected checkpoint, for this subject$"):
        fit(DRAWN[0], Limits(models=("checkpoint",)))
    other = next(one for one in DRAWN if algorithm(one.draft) == "mtp")
    with pytest.raises(UnfitError, match="invalid draft 'mtp': expected one that the subject has, eagle, ngram"):
        fit(other, Limits(drafts=("eagle", "ngram")))


def _crosses(one: Scenario) -> bool:
    """Return whether decoding crosses the end of a page in some request."""
    size, most = one.memory.page_size, one.memory.max_len
    spans = ((len(of.prompt), min(most, len(of.prompt) + of.budget)) for of in one.requests)
    return any(first < edge < last for first, last in spans for edge in range(size, most, size))


def test_larger_pages_are_crossed_as_well() -> None:
    """Page 32 is longer than most generated contexts; what decodes across a page's end still does in half of them."""
    limits = replace(NO_LIMITS, page_sizes=(32,))
    pairs = [(one, fit(one, limits)) for one in DRAWN if _crosses(one) and one.memory.page_size < 32]
    moved = [made for one, made in pairs if one.memory.page_seed % 2]
    assert moved
    assert all(_crosses(made) for made in moved)
    assert all(made.requests == one.requests for one, made in pairs if not one.memory.page_seed % 2)
    for one, made in pairs:
        more = {len(late.prompt) - len(early.prompt) for early, late in zip(one.requests, made.requests, strict=True)}
        assert more == {made.memory.max_len - one.memory.max_len}


def test_pages_taken_ahead_are_there_for_all() -> None:
    """Nobody waits for a page that another has taken ahead and does not give back."""
    for one in DRAWN:
        made = fit(one, replace(NO_LIMITS, allocation="ahead"))
        longest = [min(one.memory.max_len, len(of.prompt) + of.budget) + 2 * one.steps + 1 for of in one.requests]
        assert made.memory.pages >= sum(-(-tokens // one.memory.page_size) for tokens in longest)
        assert fit(one, replace(NO_LIMITS, allocation="ahead", own_preemption=True)) == one


def test_no_models_and_no_drafts_named_are_any():
    assert Limits(models=(), drafts=()) == Limits()


def test_an_architecture_that_a_subject_does_not_take_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    scenario = replace(DRAWN[0], model=Checkpoint(path=str(tmp_path), vocab=67))
    _require_model(scenario, Limits(architectures=("LlamaForCausalLM",)))
    with pytest.raises(UnfitError, match=r"'LlamaForCausalLM' of .*: expected Nothing or Other, for this subject"):
        fit(scenario, Limits(architectures=("Nothing", "Other")))


SERVED = Limits(models=("probe",), page_sizes=(8,), own_prefix_cache=True, steering="none", arrivals="together")


def _common(one: Scenario) -> int:
    """How many tokens all prompts begin with."""
    columns = zip(*(of.prompt for of in one.requests), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda at: len(set(at)) == 1, columns))


def test_for_a_prefix_cache_every_other_scenario_has_more_than_a_page_in_common() -> None:
    even = [one for one in DRAWN if not one.memory.page_seed % 2]
    assert 10 < len(even) < 110
    assert all(_common(fit_generated(one, SERVED)) > 8 for one in even)
    odd = [one for one in DRAWN if one.memory.page_seed % 2]
    assert all(fit_generated(one, SERVED) == fit(one, SERVED) for one in odd)
    assert [fit_generated(one, SERVED) for one in DRAWN] == fitted(DRAWN, SERVED)


def test_behind_what_prompts_have_in_common_they_stay_as_they_were() -> None:
    for one in DRAWN:
        plain, made = fit(one, SERVED), fit_generated(one, SERVED)
        more = made.memory.max_len - plain.memory.max_len
        assert more in (0, 9)
        for before, after in zip(plain.requests, made.requests, strict=True):
            assert after.prompt[more:] == before.prompt
            assert replace(after, prompt=before.prompt) == before
        assert set(made.requests[0].prompt) == set(plain.requests[0].prompt)
        assert replace(made, requests=plain.requests, memory=plain.memory) == plain


def test_there_are_pages_for_what_prompts_have_in_common() -> None:
    """As many for each request, since nobody knows what a cache keeps."""
    for one in DRAWN:
        plain, made = fit(one, SERVED), fit_generated(one, SERVED)
        grown = made.memory.max_len > plain.memory.max_len
        assert made.memory.pages - plain.memory.pages == 2 * len(one.requests) * grown
        assert is_valid(made)


def test_a_scenario_that_was_fitted_for_a_prefix_cache_stays_as_it_is() -> None:
    """A campaign goes on from scenarios that it has fitted before."""
    for one in DRAWN:
        made = fit_generated(one, SERVED)
        assert fit_generated(made, SERVED) == fit(made, SERVED) == made


def test_prompts_of_somebodys_own_stay_as_they_are() -> None:
    """Those of an audit, or of a case: `fit` alone leaves them what they are."""
    assert all(fit(one, SERVED).requests == fit(one, replace(SERVED, own_prefix_cache=False)).requests for one in DRAWN)


def test_without_a_prefix_cache_nothing_is_made_common() -> None:
    none = replace(SERVED, own_prefix_cache=False)
    assert all(fit_generated(one, none) == fit(one, none) for one in DRAWN)


def test_fixed_number_of_drafts() -> None:
    """Every round has that many, and no limit of length comes near them (S-FOLLOW-7)."""
    for made in (fit(one, Limits(fixed_drafts=3)) for one in DRAWN if isinstance(one.draft, Eagle)):
        assert made.steps == 3
        assert {plan.num_drafts for request in made.requests for plan in request.rounds} == {3}
        assert all(len(one.prompt) + one.budget + 3 <= made.memory.max_len for one in made.requests)


def test_pool_of_its_own() -> None:
    assert {fit(one, Limits(pages=777)).memory.pages for one in DRAWN} == {777}
