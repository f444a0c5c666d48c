"""The public strategy: rows and scenarios that Hypothesis draws, and shrinks."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import assume
from hypothesis import strategies as st

from draftproof.properties.choose import DrawnChoose
from draftproof.properties.lib.errors import require_input
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.strategies.rows import CHOSEN, DIMENSIONS, POINTS, Point, allowed, needed_by, row_of
from draftproof.properties.strategies.scenarios import scenario_of
from draftproof.properties.strategies.shapes import SIZES, Size
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm
from draftproof.properties.values.scenario import Scenario

_MOST_QUANTITIES = 2
_PLAINEST = {"graphs": "eager"}
"""The simplest value to read of dimensions where that is not the first value."""


def scenarios(draft: Algorithm | None = None, sizes: Sequence[Size] = SIZES) -> st.SearchStrategy[Scenario]:
    """Return a Hypothesis strategy for scenarios of one draft, or of drawn ones, each of one of these sizes.

    It makes what lists are made of, with everything that features and boundaries allow. Raises InputError for another
    draft.
    """
    require_input(draft is None or draft in ALGORITHMS, "draft", draft, f"None, or one of {', '.join(ALGORITHMS)}")
    return _drawn(draft, sizes)


@st.composite
def _drawn(draw: st.DrawFn, draft: Algorithm | None, sizes: Sequence[Size]) -> Scenario:
    """Draw a row, point by point, of what is allowed beside the points before; then its scenario."""
    choose = DrawnChoose(draw)
    points = [Point("draft", draft or choose.one_of(ALGORITHMS))]
    for name in draw(st.lists(st.sampled_from(CHOSEN), unique=True)):
        _add(points, Point("feature", name))
    names = [size.name for size in sizes]
    forms = {point.dimension: None for point in POINTS if point.dimension.startswith("form ")}
    for dimension in (*DIMENSIONS, *forms):
        values = [one for one in POINTS if one.dimension == dimension and _fits(points, one)]
        values = [one for one in values if dimension != "size" or one.value in names]
        # The plainest comes first: that is what Hypothesis shrinks toward.
        values.sort(key=lambda one: one.value != _PLAINEST.get(one.dimension, one.value))
        if values:
            _add(points, choose.one_of(values))
    quantities = [one for one in POINTS if one.dimension == "quantity" and _fits(points, one)]
    quantities = [one for one in quantities if all(need in points for need in needed_by(one))]
    points += draw(st.lists(st.sampled_from(quantities), unique=True, max_size=_MOST_QUANTITIES))
    try:
        return scenario_of(choose, row_of(frozenset(points)))[0]
    except InvalidScenarioError:
        assume(False)
        raise


def _fits(points: Sequence[Point], one: Point) -> bool:
    """Return whether a point, and what it needs, is allowed beside all of these."""
    return all(other == new or allowed(new, other) for new in (one, *needed_by(one)) for other in points)


def _add(points: list[Point], one: Point) -> None:
    if _fits(points, one):
        points += [new for new in (one, *needed_by(one)) if new not in points]
