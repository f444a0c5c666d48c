"""Rows of a covering array: what one scenario is to be, and which values of its dimensions go together.

A **point** is a value of a dimension, such as "draft eagle", "size long" or the name of a feature. Two points are
allowed together if no definition speaks against it; what three or more ask for follows from their pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, cast

from draftproof.properties.features import FEATURES_BY_NAME, features_of, refusal
from draftproof.properties.strategies.drafts import FormName, forms_of, read_forms
from draftproof.properties.strategies.quantities import QUANTITIES
from draftproof.properties.strategies.shapes import SHAPES, SIZES, ShapeName, SizeName, Steps
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS_BY_NAME, Algorithm, KvBits, algorithm
from draftproof.properties.values.scenario import VARIANTS, Scenario, Variant
from draftproof.properties.variants import needed_by_variant, refused_by_variant

Layers = Literal["dense", "snapshot", "replay"]
"""Whether a target has linear layers, and how a round commits their states."""
Launches = Literal["captured", "late", "padded", "eager"]
"""Whether launches replay graphs, captured at first or late, run eagerly at the sizes of graphs, or at their own."""


@dataclass(frozen=True)
class ArrayRow:
    """What one scenario is to be; what it leaves open is drawn.

    `entries` and `draft_entries` are the bits of an entry of target and draft; `quantities` names those that are put on
    a boundary.
    """

    draft: Algorithm = ALGORITHMS[0]
    forms: tuple[tuple[FormName, str], ...] = ()
    shape: ShapeName = "any"
    size: SizeName = "small"
    steps: Steps = "several"
    layers: Layers = "dense"
    variant: Variant = "none"
    graphs: Launches = "captured"
    entries: KvBits = 64
    draft_entries: KvBits = 64
    features: frozenset[str] = frozenset()
    quantities: tuple[str, ...] = ()


class Point(NamedTuple):
    """A value of a dimension. Features and quantities are dimensions of their own, with one value."""

    dimension: str
    value: str

    def __str__(self) -> str:
        """Return the point in words."""
        return self.value if self.dimension in ("feature", "quantity") else f"{self.dimension} {self.value}"


_ONE_OF_ROW = ("shape", "size", "steps", "layers", "variant", "graphs", "entries", "draft_entries")
DIMENSIONS: dict[str, dict[str, float]] = {
    "shape": {one.name: 1.0 for one in SHAPES},
    "size": {one.name: 6.0 / one.cost**2 for one in SIZES},
    "steps": {"one": 0.7, "several": 10.0, "many": 1.0},
    "layers": {"dense": 1.5, "snapshot": 1.0, "replay": 1.0},
    "variant": {"none": 60.0, **dict.fromkeys(VARIANTS, 1.0)},
    "graphs": {"captured": 20.0, "late": 10.0, "padded": 0.5, "eager": 0.7},
    "entries": {"64": 8.0, "16": 0.5, "8": 1.0},
    "draft_entries": {"64": 8.0, "16": 0.5, "8": 1.0},
}
"""Dimensions with the values that they have, and how often each is taken where nothing else decides."""
CHOSEN = tuple(name for name, one in FEATURES_BY_NAME.items() if name not in ("hybrid", "kv-quantization"))
"""Features that are points of their own; "hybrid" and "kv-quantization" follow from layers and entries."""
_OUTSIDE = frozenset({"shape", "quantity"})
"""Dimensions that no promise is made of: every pair of the others meets in a list."""


def _points() -> Iterator[Point]:
    yield from (Point("draft", name) for name in ALGORITHMS)
    named = {form: values for name in ALGORITHMS for form, values in forms_of(name).items()}
    yield from (Point(f"form {form}", value) for form, values in named.items() for value in values)
    for dimension, values in DIMENSIONS.items():
        yield from (Point(dimension, value) for value in values)
    yield from (Point("feature", name) for name in CHOSEN)
    yield from (Point("quantity", name) for name in QUANTITIES)


POINTS: tuple[Point, ...] = tuple(_points())
"""All points."""
PROMISED = tuple(point for point in POINTS if point.dimension not in _OUTSIDE)
"""The points whose allowed pairs all occur in a list that is long enough."""


@lru_cache(maxsize=1 << 15)
def allowed(one: Point, other: Point) -> bool:
    """Return whether two points can be in one row."""
    if one.dimension == other.dimension and one.dimension not in ("feature", "quantity"):
        return False
    return one != other and _go_together(one, other) and _go_together(other, one)


def _go_together(one: Point, other: Point) -> bool:
    """Return whether nothing that the first of two points asks for speaks against the other."""
    match one.dimension, other.dimension:
        case "draft", "feature":
            return FEATURES_BY_NAME[other.value].drafts(DRAFT_KINDS_BY_NAME[cast(Algorithm, one.value)])
        case "draft", "variant" if other.value == "chain_as_tree":
            return DRAFT_KINDS_BY_NAME[cast(Algorithm, one.value)].trees
        case "steps", "feature":
            return one.value != "one" or other.value != "adaptive-steps"
        case "draft", "draft_entries":
            return other.value == "64" or DRAFT_KINDS_BY_NAME[cast(Algorithm, one.value)].extends
        case "draft", form if form.startswith("form "):
            own = forms_of(cast(Algorithm, one.value))
            return other.value in own.get(cast(FormName, form.removeprefix("form ")), ())
        case "variant", "layers":
            return one.value != "other_commit" or other.value != "dense"
        case "variant", "graphs":
            return one.value != "graph_vs_eager" or other.value in ("captured", "late")
        case "variant", "feature":
            needed = needed_by_variant(cast(Variant, one.value))
            beside = not (needed and needed in CHOSEN and other.value != needed and refusal(needed, other.value))
            return beside and not refused_by_variant(cast(Variant, one.value), other.value)
        case "variant", "draft" if needed := needed_by_variant(cast(Variant, one.value)):
            return FEATURES_BY_NAME[needed].drafts(DRAFT_KINDS_BY_NAME[cast(Algorithm, other.value)])
        case "feature", "feature":
            return not refusal(one.value, other.value) and all(
                need == other.value or not refusal(need, other.value) for need in FEATURES_BY_NAME[one.value].needs
            )
        case "quantity", "feature":
            needed = QUANTITIES[one.value].feature
            beside = not needed or needed == other.value or not refusal(needed, other.value)
            return beside and other.value not in QUANTITIES[one.value].without
        case "quantity", "layers" | "graphs":
            return other.value not in QUANTITIES[one.value].without
        case "quantity", "draft" if needed := QUANTITIES[one.value].feature:
            return FEATURES_BY_NAME[needed].drafts(DRAFT_KINDS_BY_NAME[cast(Algorithm, other.value)])
        case "quantity", "variant" if needed := QUANTITIES[one.value].feature:
            return not refused_by_variant(cast(Variant, other.value), needed)
        case form, dimension if form.startswith("form ") and dimension != "draft":
            return any(
                allowed(Point("draft", name), one) and allowed(Point("draft", name), other) for name in ALGORITHMS
            )
    return True


def needed_by(point: Point) -> tuple[Point, ...]:
    """Return the points without which one means nothing."""
    if point.dimension == "feature":
        return tuple(Point("feature", name) for name in FEATURES_BY_NAME[point.value].needs)
    if point.dimension == "variant" and (needed := needed_by_variant(cast(Variant, point.value))) in CHOSEN:
        return (Point("feature", needed),)
    if point.dimension == "quantity" and (feature := QUANTITIES[point.value].feature):
        return (Point("feature", feature),)
    return ()


def points_of(scenario: Scenario) -> tuple[Point, ...]:
    """Return the promised points that a scenario has, as it shows them."""
    graphs = scenario.graphs
    captured = "captured" if graphs.at_start else "late"
    launches = (captured if graphs.capture else "padded") if graphs.sizes else "eager"
    present = features_of(scenario)
    return (
        Point("draft", algorithm(scenario.draft)),
        *(Point(f"form {form}", value) for form, value in read_forms(scenario).items()),
        Point("size", _size(scenario)),
        Point("steps", "one" if scenario.steps == 1 else "several" if scenario.steps <= _SEVERAL else "many"),
        Point("layers", scenario.states.commit if "hybrid" in present else "dense"),
        Point("variant", scenario.variant),
        Point("graphs", launches),
        Point("entries", str(getattr(scenario.model, "kv_bits", 64))),
        Point("draft_entries", str(getattr(scenario.draft, "kv_bits", 64))),
        *(Point("feature", name) for name in present if name in CHOSEN),
    )


def outside(row: ArrayRow) -> tuple[Point, ...]:
    """Return the points of a row that nothing is promised of, and that a scenario does not show."""
    return (Point("shape", row.shape), *(Point("quantity", name) for name in row.quantities))


_SEVERAL, _LONG, _MANY = 5, 48, 8
"""The most drafts that are several, the longest prompt that is short, and the fewest requests of a wide scenario."""


def _size(scenario: Scenario) -> SizeName:
    if max(len(one.prompt) for one in scenario.requests) > _LONG:
        return "long"
    return "wide" if sum(one.flaw == "none" for one in scenario.requests) >= _MANY else "small"


def row_of(points: frozenset[Point]) -> ArrayRow:
    """Return the row of points that are allowed together, one of each dimension."""
    given = {dimension: value for dimension, value in points if dimension not in ("feature", "quantity")}
    forms = tuple((cast(FormName, name[5:]), value) for name, value in sorted(given.items()) if name[:5] == "form ")
    fields: dict[str, object] = {name: given[name] for name in ("draft", *_ONE_OF_ROW) if name in given}
    fields |= {name: int(given[name]) for name in ("entries", "draft_entries") if name in given}
    return ArrayRow(
        **fields,  # type: ignore[arg-type]  # by name, each value of its dimension
        forms=forms,
        features=frozenset(value for dimension, value in points if dimension == "feature"),
        quantities=tuple(sorted(value for dimension, value in points if dimension == "quantity")),
    )
