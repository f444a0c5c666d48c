"""Aims: edits of a scenario that push it toward chosen values of coverpoints (properties/coverage).

An aim makes its value likely, not certain: what a run really was is read off its trace. Edits are made in a fixed
order, from what concerns the whole scenario down to lengths, and in the end memory is made to fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from draftproof.properties.coverage.points import OF_TREES
from draftproof.properties.strategies.aborts import without_aborts
from draftproof.properties.strategies.drafts import with_draft
from draftproof.properties.strategies.ends import without_ends
from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.goals_batches import BATCHES, aim_batches
from draftproof.properties.strategies.goals_choices import CHOICES, aim_choices, aim_memory, plain
from draftproof.properties.strategies.goals_models import MODELS, able, aim_model, fitted
from draftproof.properties.strategies.goals_rounds import ROUNDS, aim_rounds
from draftproof.properties.strategies.handovers import without_handover
from draftproof.properties.strategies.mixed import without_mixed
from draftproof.properties.strategies.mutations import mutated
from draftproof.properties.strategies.overlap import without_overlap
from draftproof.properties.strategies.prefix_cache import without_prefix_cache
from draftproof.properties.strategies.profiles import CARDS, LONG, SMALL, WIDE, Profile, Size
from draftproof.properties.strategies.ranks import without_ranks
from draftproof.properties.strategies.scenarios import scenarios, unforced
from draftproof.properties.strategies.step_tokens import without_step_tokens
from draftproof.properties.strategies.trees import without_tree
from draftproof.properties.strategies.windows import without_windows
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm
from draftproof.properties.values.invalid import InvalidScenarioError
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.validate import validate

Draw = st.DrawFn
Wanted = Mapping[str, str]
AIMED = MODELS | BATCHES | ROUNDS | CHOICES | {"length"}
"""The coverpoints that have an aim; the others come by themselves."""


def aim(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Push a scenario of a probe toward these values; return it as it was if what comes of that is not valid.

    Raises ValueError for a point that is unknown.
    """
    unknown = sorted(set(wanted) - AIMED)
    if unknown:
        raise ValueError(f"invalid point {unknown[0]!r}: expected one of {', '.join(sorted(AIMED))}")
    # Which rows run together is aimed at on one rank.
    scenario = without_ranks(scenario)
    if scenario.variant == "chain_as_tree":
        scenario = without_tree(scenario)
    # What is accepted of a sampled request's drafts, nobody can aim at; of a tree's, plans have shapes.
    if (ROUNDS | CHOICES) & set(wanted):
        scenario = plain(scenario, wanted)
    try:
        edited = aim_rounds(draw, aim_batches(draw, aim_model(draw, scenario, wanted), wanted), wanted)
        if edited.variant == "taps_off" and not ROUNDS & set(wanted):
            edited = unforced(edited)
        edited = fitted(aim_choices(draw, edited, wanted), tight="pages" in wanted and wanted["pages"] != "fresh")
        return validate(aim_memory(draw, edited, wanted))
    except InvalidScenarioError:
        return scenario


@st.composite
def near(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Draw the scenario changed a little, pushed toward these values."""
    try:
        changed = validate(fitted(mutated(draw, scenario)))
    except InvalidScenarioError:
        changed = scenario
    return aim(draw, changed, wanted)


@st.composite
def aimed(draw: Draw, wanted: Wanted, drafts: Sequence[Algorithm]) -> Scenario:
    """Draw scenarios of some profile and one of these drafts, pushed toward these values."""
    drawn_scenario = draw(scenarios(draw(sampled(_profiles(wanted))), ALGORITHMS[0], _sizes(wanted), ranks=()))
    # Neither goes with all that may be wanted.
    scenario = without_aborts(without_prefix_cache(without_tree(drawn_scenario)))
    scenario = without_overlap(without_handover(without_mixed(without_step_tokens(without_ends(scenario)))))
    if set(OF_TREES) & set(wanted):
        scenario = without_windows(scenario)
    name: Algorithm = draw(sampled(able(wanted, drafts)))
    scenario = with_draft(scenario, name, draw(integers(0, 59)))
    return aim(draw, scenario, {"draft": name, **wanted})


def _sizes(wanted: Wanted) -> tuple[Size, ...]:
    """Return the sizes of scenarios that may have the wanted length, or batches as large."""
    if wanted.get("length", "to 8") not in ("to 8", "to 16", "to 32"):
        return (LONG,)
    wide = wanted.get("captured", "") in ("to 15", "16 and more") or wanted.get("batch") == "6 and more"
    return (WIDE,) if wide else (SMALL,)


def _profiles(wanted: Wanted) -> tuple[Profile, ...]:
    """Return the profiles that already have the wanted layers and no controller."""
    hybrid = wanted.get("layers", "") in ("snapshot", "replay") or bool({"checkpoint", "state", "start"} & set(wanted))
    any_layers = not hybrid and "layers" not in wanted
    fitting = (one for one in CARDS if one.hybrid == hybrid or any_layers)
    return tuple(one for one in fitting if not (one.adaptive or one.draft_batch))
