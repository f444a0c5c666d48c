"""Drafts in every form, with step counts that are cut together with everything that depends on them."""

from functools import cache
from itertools import product

import pytest

from draftproof.cli.check import CHECK_EXAMPLES
from draftproof.properties.choose import SeededChoose
from draftproof.properties.features.adaptive_steps import with_steps
from draftproof.properties.strategies.drafts import forms_of, with_draft
from draftproof.properties.strategies.scenarios import Listed
from draftproof.properties.strategies.scenarios import listed as listed_anew
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import (
    ALGORITHMS,
    DRAFT_KINDS_BY_NAME,
    Algorithm,
    DFlash,
    Eagle3,
    Mtp,
    Ngram,
    Standalone,
    algorithm,
)
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.reference.solve import solve
from tests.named import named

COUNT = 160


@cache
def listed(*drafts: Algorithm) -> list[Listed]:
    return list(listed_anew(1, COUNT if len(drafts) == 1 else CHECK_EXAMPLES, drafts))


def generate(*drafts: Algorithm) -> list[Scenario]:
    return [one.scenario for one in listed(*drafts)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_draft_comes_in_every_form(name: Algorithm) -> None:
    met = {form for one in listed(name) for form in one.row.forms}
    assert met == {(form, value) for form, values in forms_of(name).items() for value in values}


def test_a_draft_is_a_function_of_its_choices_and_only_known_ones_are_made() -> None:
    scenario = named("eagle_padded")
    for name in ALGORITHMS:
        made = with_draft(SeededChoose("4"), scenario, name, {})
        assert made == with_draft(SeededChoose("4"), scenario, name, {})
        assert algorithm(made.draft) == name
        assert made.graphs == scenario.graphs
    with pytest.raises(ValueError, match="invalid draft 'medusa': expected one of eagle, mtp"):
        with_draft(SeededChoose("4"), scenario, "medusa", {})  # type: ignore[arg-type]


def test_chains_have_a_layer_a_draft_and_some_to_spare() -> None:
    drafts = [(one, one.draft) for one in generate("mtp") if isinstance(one.draft, Mtp)]
    assert len(drafts) == COUNT
    assert {draft.chain for _, draft in drafts} == {True, False}
    assert {min(2, draft.layers - one.steps) for one, draft in drafts} == {0, 1, 2}
    assert any(draft.layers >= 4 and one.schedule.chunk < draft.layers for one, draft in drafts)


def test_blocks_and_heads_take_features_of_layers_in_any_order() -> None:
    for name, kind in (("dflash", DFlash), ("eagle3", Eagle3)):
        drafts = [one.draft for one in generate(name) if isinstance(one.draft, kind)]  # type: ignore[arg-type]
        assert {len(draft.features) for draft in drafts} == {1, 2, 3}
        assert {list(draft.features) == sorted(draft.features) for draft in drafts} == {True, False}


def test_models_of_their_own_have_one_layer_and_more() -> None:
    for name, kind in (("standalone", Standalone), ("dflash", DFlash)):
        drafts = [one.draft for one in generate(name) if isinstance(one.draft, kind)]  # type: ignore[arg-type]
        assert {draft.layers for draft in drafts} == {1, 2, 3}


def test_tokens_of_ngram_scenarios_come_again() -> None:
    made = generate("ngram")
    drafts = [scenario.draft for scenario in made if isinstance(scenario.draft, Ngram)]
    assert {draft.max_n for draft in drafts} == {1, 2, 3, 4}
    assert any(draft.min_n == draft.max_n > 1 for draft in drafts)
    assert {draft.match for draft in drafts} == {"earliest", "latest"}
    few = [one for one in listed("ngram") if "vocabulary" not in one.row.quantities]
    assert {one.scenario.model.vocab for one in few} == {4, 5, 6, 7}
    plans = [plan for scenario in made for request in scenario.requests for plan in request.rounds]
    assert 0.25 < sum(plan.num_correct < 0 for plan in plans) / len(plans) < 0.75


def test_what_an_ngram_draft_finds_is_accepted_wholly_partly_and_not_at_all() -> None:
    made = [scenario for scenario in generate("ngram") if not scenario.dynamic]
    rounds = [round_ for scenario in made[:60] for request in solve(scenario).requests for round_ in request.rounds]
    own = [(one.drafts, one.correct_len) for one in rounds if one.forced is None]
    assert any(drafts == accepted > 1 for drafts, accepted in own)
    assert any(0 < accepted < drafts for drafts, accepted in own)
    assert any(drafts > accepted == 0 for drafts, accepted in own)
    assert any(not drafts for drafts, _ in own)


def test_sizes_of_drafts_are_distinct_from_those_of_their_targets_in_most() -> None:
    drafts: tuple[Algorithm, ...] = ("mtp", "dflash", "standalone")
    made = generate(*drafts)
    distinct = 0
    for scenario in made:
        model, draft = scenario.model, scenario.draft
        assert isinstance(model, ProbeModel)
        assert isinstance(draft, Mtp | DFlash | Standalone)
        sizes = [model.key_dim, model.value_dim, draft.key_dim, draft.value_dim, model.lanes, draft.lanes]
        distinct += len({*sizes[:4]}) == 4 and draft.lanes != model.lanes
    assert 0.6 < distinct / len(made) < 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_step_counts_are_cut_with_everything_that_depends_on_them(name: Algorithm) -> None:
    made = (one.scenario for one in listed_anew(1, 44, (name,)))
    for scenario, steps in product(made, (1, 2, 3)):
        cut = with_steps(scenario, steps)
        assert validate(cut).steps == min(steps, scenario.steps)
        assert {request.prompt for request in cut.requests} == {request.prompt for request in scenario.requests}


def test_no_steps_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="invalid steps 0: expected 1 or more"):
        with_steps(named("eagle_padded"), 0)


def test_only_some_drafts_have_trees_and_all_have_rounds_that_force_nothing() -> None:
    made = generate(*ALGORITHMS)
    assert {algorithm(one.draft) for one in made if one.tree} == {
        name for name in ALGORITHMS if DRAFT_KINDS_BY_NAME[name].trees
    }
    for name in ALGORITHMS:
        plans = [plan for one in made if algorithm(one.draft) == name for of in one.requests for plan in of.rounds]
        assert {min(plan.num_correct, 1) for plan in plans} == {-1, 0, 1}
