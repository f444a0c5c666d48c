"""Quantities of scenarios: each is put on every boundary, really, and reaches the most that it may be."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from msgspec.structs import replace

from draftproof.properties.choose import SeededChoose
from draftproof.properties.features import FEATURES, FEATURES_BY_NAME
from draftproof.properties.strategies.quantities import (
    QUANTITIES,
    RELATIONS,
    Quantity,
    Relation,
    boundary,
    others_of,
    with_room,
)
from draftproof.properties.validate import is_valid, validate
from draftproof.properties.values.scenario import Graphs, Scenario
from tests.properties.lists import listed

POWERS = {2**power for power in range(4, 13)}
LARGE = {("steps", "above a power"), ("logprobs", "above a power")}
"""Boundaries beyond what a quantity may be."""
READ_APART = {
    "repeats": lambda one: [len(list(same)) for of in one.requests for _, same in groupby(of.prompt)],
    "sequence": lambda one: [1 + span.last - span.first for of in one.requests for span in of.stop_sequences_at],
}


def values(quantity: Quantity, name: str, scenario: Scenario) -> list[int]:
    """What a quantity is in a scenario; of two of them it is no value that others are compared with."""
    return list(READ_APART[name](scenario)) if name in READ_APART else list(quantity.values(scenario))


def stands(value: int, relation: Relation, others: set[int]) -> bool:
    """Return whether a value has the relation to one of the others."""
    match relation:
        case "equal":
            return value in others
        case "one more":
            return value - 1 in others
        case "one less":
            return value + 1 in others
        case "multiple":
            return any(value % other == 0 for other in others if 0 < other < value)
        case "power of two":
            return value in POWERS
        case "below a power":
            return value + 1 in POWERS
        case "above a power":
            return value - 1 in POWERS
    raise AssertionError(relation)


def having(name: str) -> list[Scenario]:
    """Return scenarios that have the quantity."""
    feature = QUANTITIES[name].feature
    made = [one.scenario for one in listed(0)]
    if name == "draft batch":
        # Large ones change something only in large batches, of which a list has few.
        made = [one.scenario for seed in range(3) for one in listed(seed)]
        made.sort(key=lambda one: -one.schedule.max_batch)
    found = [one for one in made if not feature or FEATURES_BY_NAME[feature].has(one)]
    if name == "checkpoint":
        found = [one for one in found if one.states.checkpoint]
    if name == "sequence":
        found = [one for one in found if any(of.stop_sequences_at for of in one.requests)]
    return found[:12]


@pytest.mark.parametrize("name", QUANTITIES)
def test_a_boundary_stands_where_it_was_asked_for(name: str) -> None:
    """Or, where there is no such value, at a power of two."""
    quantity, moved = QUANTITIES[name], Counter[Relation]()
    for number, scenario in enumerate(having(name)):
        for relation in RELATIONS:
            made = boundary(SeededChoose(f"{number} {relation}"), scenario, name, relation)
            if made == scenario:
                continue
            assert validate(made) == made
            others = set(others_of(made, name))
            own = [one for one in values(quantity, name, made) if quantity.least <= one <= quantity.most]
            stood = any(stands(one, relation, others) for one in own)
            assert stood or POWERS & set(own)
            moved[relation] += stood
    assert {(name, relation) for relation in RELATIONS if not moved[relation]} <= LARGE


def test_a_boundary_changes_nothing_where_there_is_none() -> None:
    plain = replace(listed(0)[0].scenario, graphs=Graphs())
    for feature in reversed(FEATURES):
        plain = feature.without(plain)
    for name in ("window", "nodes", "top_k", "logprobs", "image", "token bucket", "checkpoint slots", "bucket"):
        for relation in RELATIONS:
            assert boundary(SeededChoose("0"), plain, name, relation) == plain


def test_rounds_have_as_many_rows_as_their_tree_was_given() -> None:
    made = [
        boundary(SeededChoose(f"{number}"), one, "nodes", "above a power") for number, one in enumerate(having("nodes"))
    ]
    forced = [(one, plan.shape.parents) for one in made for plan in one.requests[0].rounds if plan.shape]
    assert any(one.tree and len(parents) == one.tree.nodes > 32 for one, parents in forced)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_quantity_is_moved_in_a_list(seed: int) -> None:
    moved = Counter(name for one in listed(seed) for name in one.row.quantities)
    assert set(moved) == set(QUANTITIES)
    assert min(moved.values()) >= 3


@pytest.mark.parametrize("name", QUANTITIES)
def test_the_most_that_a_quantity_may_be_can_be_run(name: str) -> None:
    quantity = QUANTITIES[name]
    made = (with_room(quantity.put(one, quantity.most)) for one in having(name))
    assert any(quantity.most in values(quantity, name, one) and is_valid(one) for one in made)
    assert quantity.because
