"""Drafts take turns in generated lists, in every form, and each of them meets whatever there is to meet."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import pytest
from hypothesis import given

from draftproof.properties.strategies import scenarios as strategies
from draftproof.properties.strategies.drafts import with_draft, with_steps
from draftproof.properties.strategies.ends import without_ends
from draftproof.properties.strategies.overlap import without_overlap
from draftproof.properties.strategies.profiles import CARDS, SIZES
from draftproof.properties.strategies.scenarios import scenarios
from draftproof.properties.strategies.turns import Turn, turns
from draftproof.properties.values.case import decode, encode
from draftproof.properties.values.drafts import (
    ALGORITHMS,
    BY_NAME,
    Algorithm,
    DFlash,
    Mtp,
    Ngram,
    Standalone,
    algorithm,
)
from draftproof.properties.values.scenario import VARIANTS, Scenario
from draftproof.properties.values.validate import validate
from draftproof.reference.solve import solve
from tests.drawn import generate
from tests.properties.test_strategies import FAST

OTHERS = tuple(name for name in ALGORITHMS if name != "eagle")
COUNT = 66 * len(ALGORITHMS)


class Drawn(NamedTuple):
    """A list with the seed that it is of."""

    seed: int
    scenarios: list[Scenario]


@pytest.fixture(scope="module", params=range(5))
def mixed(request: pytest.FixtureRequest) -> Drawn:
    return Drawn(request.param, generate(request.param, COUNT, ALGORITHMS))


def of_draft(drawn: list[Scenario], name: str) -> list[Scenario]:
    return [scenario for scenario in drawn if algorithm(scenario.draft) == name]


# Of those that share pages or gave them back, and of those with mixed launches: of the whole list all drafts have some,
# of each draft a list of four times its length.
_OF_FEW = {"alone", "unmixed", "unoverlapped"}


def variants_of(name: Algorithm) -> set[str]:
    """What scenarios of a draft are compared with; only some drafts can be trees, and lookups are never overlapped."""
    never = set() if BY_NAME[name].trees else {"chain_as_tree"}
    return {"none", *VARIANTS} - never - ({"unoverlapped"} if BY_NAME[name].proposes == "lookup" else set())


@FAST
@given(scenarios())
def test_scenarios_of_drawn_drafts_are_valid_and_survive_json(scenario: Scenario) -> None:
    assert validate(scenario) == scenario
    assert decode(encode(scenario), Scenario) == scenario


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_named_draft_is_drawn_alone(name: Algorithm) -> None:
    @FAST
    @given(scenarios("limits", name))
    def holds(scenario: Scenario) -> None:
        assert algorithm(scenario.draft) == name
        assert scenario == validate(scenario)

    holds()


def _keeps_its_card(turn: Turn) -> bool:
    """Whether it has the profile that it was dealt: no tree has, and nothing else that takes several requests."""
    others = turn.is_tree or turn.is_preempted or turn.is_handed_over or turn.spread != "alone"
    return not others and turn.variant != "chain_as_tree"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_draft_meets_everything(mixed: Drawn, name: Algorithm) -> None:
    own = of_draft(mixed.scenarios, name)
    assert {scenario.variant for scenario in own} >= variants_of(name) - _OF_FEW
    assert {scenario.variant for scenario in mixed.scenarios} == {"none", *VARIANTS}
    commits = {scenario.states.commit if scenario.model.linear else "dense" for scenario in own}
    assert commits == {"dense", "snapshot", "replay"}
    assert {scenario.adaptive is not None for scenario in own} == {True, False}
    assert any(scenario.schedule.draft_batch for scenario in own)
    own_turns = [turn for turn in turns(mixed.seed, 24 * COUNT, ALGORITHMS) if turn.draft == name]
    assert {turn.variant for turn in own_turns[: 4 * len(own)]} == variants_of(name)
    assert {turn.profile.name for turn in own_turns if _keeps_its_card(turn)} == {card.name for card in CARDS}


def test_any_few_neighbours_hold_every_draft(mixed: Drawn) -> None:
    window = 2 * len(ALGORITHMS)
    for first in range(COUNT - window + 1):
        assert {algorithm(scenario.draft) for scenario in mixed.scenarios[first : first + window]} == set(ALGORITHMS)


def test_scenarios_are_as_their_turns_say(mixed: Drawn) -> None:
    for scenario, turn in zip(mixed.scenarios, turns(mixed.seed, COUNT, ALGORITHMS), strict=True):
        assert (algorithm(scenario.draft), scenario.variant) == (turn.draft, turn.variant)
        assert bool(scenario.model.linear) == turn.profile.hybrid
        assert scenario.states.commit == (turn.commit if turn.profile.hybrid else "snapshot")


@pytest.mark.parametrize("count", range(1, len(ALGORITHMS)))
def test_so_do_lists_of_some_drafts(count: int) -> None:
    for names in combinations(ALGORITHMS, count):
        drawn = list(turns(1, 4 * COUNT, names))
        for name in names:
            own = [turn for turn in drawn if turn.draft == name]
            assert {turn.variant for turn in own} == variants_of(name)
            assert {turn.commit for turn in own if turn.profile.hybrid} == {"snapshot", "replay"}


def test_eagle_alone_is_the_default_and_a_longer_list_begins_with_the_shorter() -> None:
    assert strategies.generate(5, 9) == strategies.generate(5, 9, ("eagle",))
    assert strategies.generate(5, 30, ALGORITHMS)[:9] == strategies.generate(5, 9, ALGORITHMS)
    assert strategies.generate(5, 9, ("mtp",)) == strategies.generate(5, 9, ("mtp",))


@pytest.mark.parametrize("names", [(), ("eagle", "eagle"), ("medusa",)])
def test_other_lists_of_drafts_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"expected some of {', '.join(ALGORITHMS)}, each once"):
        strategies.generate(0, 1, names)  # type: ignore[arg-type]


def test_only_an_eagle_draft_of_a_probe_is_exchanged() -> None:
    scenario = generate(0, 1)[0]
    assert with_draft(scenario, "eagle", 3) == scenario
    with pytest.raises(ValueError, match="invalid draft 'medusa': expected one of eagle, mtp"):
        with_draft(scenario, "medusa", 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"invalid draft\.kind 'mtp': expected eagle"):
        with_draft(with_draft(scenario, "mtp", 0), "dflash", 0)


@pytest.mark.parametrize("name", OTHERS)
def test_every_turn_of_a_draft_is_valid_and_a_function_of_its_arguments(name: Algorithm) -> None:
    for scenario in map(without_overlap, map(without_ends, generate(2, 6, sizes=SIZES[:1]))):
        for turn in range(30):
            made = with_draft(scenario, name, turn)
            assert made == with_draft(scenario, name, turn)
            assert made.graphs == scenario.graphs
            # Only some drafts can be trees.
            assert made.variant in (scenario.variant, "none")
            assert made.steps == (1 if name != "ngram" and turn % 7 == 5 else scenario.steps)


def test_chains_of_one_layer_and_prompts_in_chunks_shorter_than_a_chain_come_up() -> None:
    drawn = generate(4, 60, ("mtp",))
    assert {scenario.draft.layers for scenario in drawn if scenario.steps == 1} == {1, 2}
    short = [scenario for scenario in drawn if scenario.schedule.chunk < scenario.draft.layers - 1]
    assert sum(len(request.prompt) > 2 for scenario in short for request in scenario.requests) > 10


def test_some_histories_are_long() -> None:
    drawn = generate(4, 60, ("ngram",))
    longest = [max(len(one.prompt) + one.budget for one in scenario.requests) for scenario in drawn]
    assert sum(length > 25 for length in longest) > 5


def test_chains_are_long_enough_and_come_in_every_form() -> None:
    drawn = generate(4, 60, ("mtp",))
    drafts = [scenario.draft for scenario in drawn if isinstance(scenario.draft, Mtp)]
    assert len(drafts) == 60
    assert 0.15 < sum(not draft.chain for draft in drafts) / 60 < 0.35
    assert {(draft.chain, draft.handed) for draft in drafts} >= {(True, "after_norm"), (True, "before_norm")}
    spare = {scenario.draft.layers - scenario.steps for scenario in drawn}
    assert spare == {0, 1, 2}


def test_blocks_take_features_of_one_to_three_layers_in_any_order() -> None:
    drafts = [scenario.draft for scenario in generate(4, 60, ("dflash",)) if isinstance(scenario.draft, DFlash)]
    assert {len(draft.features) for draft in drafts} == {1, 2, 3}
    assert {draft.layers for draft in drafts} == {1, 2, 3}
    assert {list(draft.features) == sorted(draft.features) for draft in drafts} == {True, False}


def test_standalone_models_have_one_to_three_layers() -> None:
    drafts = [scenario.draft for scenario in generate(4, 60, ("standalone",))]
    assert {draft.layers for draft in drafts if isinstance(draft, Standalone)} == {1, 2, 3}


def test_tokens_of_ngram_scenarios_come_again() -> None:
    drawn = generate(4, 60, ("ngram",))
    drafts = [scenario.draft for scenario in drawn if isinstance(scenario.draft, Ngram)]
    assert {draft.max_n for draft in drafts} == {1, 2, 3, 4}
    assert {draft.min_n for draft in drafts} >= {1, 2, 3}
    assert any(draft.min_n == draft.max_n > 1 for draft in drafts)
    assert 6 < sum(draft.match == "latest" for draft in drafts) < 18
    assert {scenario.model.vocab for scenario in drawn} == {4, 5, 6, 7}
    plans = [plan for scenario in drawn for request in scenario.requests for plan in request.rounds]
    assert 0.25 < sum(plan.num_correct < 0 for plan in plans) / len(plans) < 0.75
    prompts = [request.prompt for scenario in drawn for request in scenario.requests if len(request.prompt) > 5]
    assert any(prompt[3:] == prompt[:-3] for prompt in prompts)
    assert any(prompt[3:] != prompt[:-3] for prompt in prompts)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_an_ngram_draft_finds_is_accepted_wholly_partly_and_not_at_all(seed: int) -> None:
    solved = [solve(scenario) for scenario in generate(seed, 60, ("ngram",)) if not scenario.dynamic]
    rounds = [round_ for script in solved for request in script.requests for round_ in request.rounds]
    own = [(one.drafts, one.correct_len) for one in rounds if one.forced is None]
    assert any(drafts == accepted > 1 for drafts, accepted in own)
    assert any(0 < accepted < drafts for drafts, accepted in own)
    assert any(drafts > accepted == 0 for drafts, accepted in own)
    assert any(not drafts for drafts, _ in own)


def test_sizes_of_drafts_are_distinct_from_those_of_their_targets() -> None:
    drafts: tuple[Algorithm, ...] = ("mtp", "dflash", "standalone")
    for scenario, turn in zip(generate(4, 40, drafts), turns(4, 40, drafts), strict=True):
        model, draft = scenario.model, scenario.draft
        sizes = [model.key_dim, model.value_dim, draft.key_dim, draft.value_dim, model.lanes, draft.lanes]
        assert (len(set(sizes)) == len(sizes)) == (not {"keys", "widths"} & set(turn.alike)), sizes


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_step_counts_are_cut_with_everything_that_depends_on_them(name: Algorithm, steps: int) -> None:
    for scenario in generate(1, 44, (name,)):
        cut = with_steps(scenario, steps)
        assert validate(cut).steps == min(steps, scenario.steps)
        assert {request.prompt for request in cut.requests} == {request.prompt for request in scenario.requests}


def test_no_steps_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="invalid steps 0: expected 1 or more"):
        with_steps(generate(0, 1)[0], 0)
