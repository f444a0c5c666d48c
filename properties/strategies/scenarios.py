"""Scenarios of probe models: valid by construction, in lists in which every pair of points meets (covering.py).

A row says what a scenario is to be (rows.py). The rest is chosen through one protocol: for a list as a function of its
seed, in `scenarios()` by Hypothesis (drawn.py), which shrinks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from draftproof.properties.choose import Choose, SeededChoose, require_seeded
from draftproof.properties.features import FEATURES, draw, features_of
from draftproof.properties.features.trees import beside_tree
from draftproof.properties.lib.errors import require_input
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put
from draftproof.properties.strategies.base import base, unforced
from draftproof.properties.strategies.cost import cost_of
from draftproof.properties.strategies.covering import Array, Met
from draftproof.properties.strategies.drafts import with_draft
from draftproof.properties.strategies.quantities import MOST_WORK, RELATIONS, boundary, work_of
from draftproof.properties.strategies.rows import ArrayRow, Point, outside, points_of, row_of
from draftproof.properties.strategies.shapes import SIZES, Size
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, KvBits
from draftproof.properties.values.scenario import Scenario

_TRIES = 4
"""How often a row is drawn where what was drawn cannot be run; then it loses something that makes it large."""
_LEAST = {"quantities": ((),), "steps": ("several", "one"), "variant": ("none",)}
"""What makes a row large and is taken away before its features, with the values that do not."""
_FIRST, _DRAWN = 24, 3
"""The first scenarios of a list are the largest of so many that were drawn, because short runs see these only.

Others are the cheapest of as many: they meet the same. Every _AS_IT_COMES-th is the only one that was drawn, so that
what is dear, such as many requests or long texts, still comes up in a list.
"""
_AS_IT_COMES = 5


class Listed(NamedTuple):
    """A scenario of a list, the row that it was made of, and what has met by then."""

    scenario: Scenario
    row: ArrayRow
    met: Met


def generate(
    seed: int, count: int, drafts: Sequence[Algorithm] = ALGORITHMS[:1], sizes: Sequence[Size] = SIZES
) -> list[Scenario]:
    """Return `count` scenarios, a function of the arguments and of the version only; several drafts take turns.

    The list is the same on every release of Python and Hypothesis. A longer one begins with the shorter one.
    Raises InputError, a ValueError, for a seed, a count or drafts that cannot be.
    """
    require_seeded(seed, count)
    return list(generated(seed, count, drafts, sizes))


def generated(
    seed: int,
    count: int,
    drafts: Sequence[Algorithm] = ALGORITHMS[:1],
    sizes: Sequence[Size] = SIZES,
    features: Sequence[str] = (),
) -> Iterator[Scenario]:
    """Yield what `generate` returns, each made when it is asked for. Raises InputError for bad drafts at once.

    With `features` it is another list, in which most scenarios have all of them.
    """
    return (one.scenario for one in listed(seed, count, drafts, sizes, features))


def listed(
    seed: int,
    count: int,
    drafts: Sequence[Algorithm] = ALGORITHMS[:1],
    sizes: Sequence[Size] = SIZES,
    features: Sequence[str] = (),
) -> Iterator[Listed]:
    """Yield the scenarios of a list with their rows. Raises InputError for bad drafts at once."""
    is_sequence = isinstance(drafts, Sequence) and not isinstance(drafts, str)
    known = is_sequence and len(drafts) and all(drafts.count(one) == 1 and one in ALGORITHMS for one in drafts)
    require_input(bool(known), "drafts", drafts, f"a tuple of some of {', '.join(ALGORITHMS)}, each once")
    without = frozenset(Point("size", one.name) for one in SIZES if one not in sizes)
    name = " ".join((str(seed), *drafts, *features))
    return _listed(name, count, Array(name, drafts, without, features))


def _listed(name: str, count: int, array: Array) -> Iterator[Listed]:
    for number in range(count):
        row = row_of(array.next())
        scenario, row = _chosen(f"{name} {number}", number, row, array)
        array.meet((*points_of(scenario), *outside(row)))
        yield Listed(scenario, row, array.met)


def _chosen(name: str, number: int, row: ArrayRow, array: Array) -> tuple[Scenario, ArrayRow]:
    """Return one of a few scenarios that a row is made into: the largest, the only one, or one that is cheap.

    Of those that meet as many pairs that are new, and have as many features, the cheapest is taken.
    """
    is_first = number < _FIRST
    count = _DRAWN if is_first or number % _AS_IT_COMES else 1
    drawn = [_made(f"{name} {one}", row) for one in range(count)]
    if is_first:
        return max(drawn, key=lambda made: work_of(made[0]))
    return min(
        drawn, key=lambda made: (-array.new_pairs(points_of(made[0])), -len(features_of(made[0])), cost_of(made[0]))
    )


def _made(name: str, row: ArrayRow) -> tuple[Scenario, ArrayRow]:
    """Return the scenario of a row, and the row as it came out.

    What cannot be run, or takes too long, is drawn again, and with less at last.
    """
    while True:
        wanted = [feature.name for feature in FEATURES if feature.name in row.features]
        for number in range(_TRIES):
            try:
                made = scenario_of(SeededChoose(f"{name} {len(wanted)} {number}"), row)
            except InvalidScenarioError:
                continue
            if work_of(made[0]) <= MOST_WORK:
                return made
        row = _with_less(row, wanted)


def _with_less(row: ArrayRow, wanted: list[str]) -> ArrayRow:
    """Return the row with less that makes it large, or without its last feature, or at last small."""
    for field, least in _LEAST.items():
        if getattr(row, field) not in least:
            return replace(row, **{field: least[0]})  # type: ignore[arg-type]  # by name, a value of its field
    assert wanted or row.size != "small", f"no scenario of {row} can be run"
    return replace(row, features=frozenset(wanted[:-1]), size=row.size if wanted else "small")


def scenario_of(choose: Choose, row: ArrayRow) -> tuple[Scenario, ArrayRow]:
    """Draw what a row leaves open; return the scenario and the row, without quantities that found no boundary.

    Raises InvalidScenarioError where what was drawn cannot be run.
    """
    made = with_draft(choose, base(choose, row), row.draft, dict(row.forms))
    made = unforced(made) if row.variant == "taps_off" else made
    for feature in FEATURES:
        if feature.name in row.features:
            made = draw(choose, made, feature.name)
        made = feature.behind(made) if feature.behind else made
    made = put(made, "schedule.services", 1) if made.ranks.size > 1 else made
    made = _with_entries(made, row.entries, row.draft_entries)
    made = beside_tree(made) if row.variant == "chain_as_tree" else made
    validate(made)
    found = list[str]()
    for name in row.quantities:
        changed = boundary(choose, made, name, choose.one_of(RELATIONS))
        if changed is not made:
            made, found = changed, [*found, name]
    for feature in FEATURES:
        if feature.finish is not None and feature.name in row.features:
            made = feature.finish(choose, made)
    return validate(made), replace(row, quantities=tuple(found))


def _with_entries(scenario: Scenario, target: KvBits, draft: KvBits) -> Scenario:
    """Return the scenario with KV entries of target and draft in these numbers of bits."""
    made = put(scenario, "model.kv_bits", target)
    return put(made, "draft.kv_bits", draft) if hasattr(made.draft, "kv_bits") else made
