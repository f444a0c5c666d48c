"""What a feature of scenarios is, as a value: the one place that says of it what the rest of the project asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import Fact
from draftproof.properties.lib.paths import get, put
from draftproof.properties.values.drafts import DraftKind
from draftproof.properties.values.scenario import VARIANTS, Request, Scenario, Variant

Draw = Callable[[Choose, Scenario], Scenario]

ROUNDS_OF_ITS_SCHEDULE = (
    "what a request's rounds have hangs there on which others run, so that another schedule changes it"
)

NOTHING_OF_RANKS: Mapping[str, str] = dict.fromkeys(
    VARIANTS, "ranks serve their requests once, and nothing of them is compared (S-RANK-6)"
)


def _every_draft(_kind: DraftKind) -> bool:
    return True


@dataclass(frozen=True)
class Feature:
    """A feature: its name in `check --with`, limits, reports and documents, and a line about it.

    `rule` is its definition in docs/semantics/. `has` tells whether a scenario has it and `without` takes it
    away, as shrinking, bisection and subjects that lack it need; `draw` adds it to a scenario (None: it is drawn
    with the model or the requests), `beside` has what draws features behind it otherwise where it is, by their names,
    `behind` changes every scenario by what this feature and those before it have left, and `finish` changes what goes
    by all the rest, when that has been drawn.
    `refuses` names features that it is not defined beside, each pair in one of its two rows, with the reason.
    `needs` are features that it adds something to. `drafts` tells which drafts can have it, and `because` why
    others cannot. It is `of_probes` if it is not defined for a checkpoint; what is `of_model` is chosen with the
    model, and no subject lacks it. `facts` are what can happen where it is, and `lacks` names others that scenarios
    with it never reach. `weight` is the share of rows that have it where nothing else decides: lower for what
    leaves others less to do.
    `not_compared` names variants (variants.py) whose two runs differ beside it, each with the reason.
    """

    name: str
    what: str
    has: Callable[[Scenario], bool]
    without: Callable[[Scenario], Scenario]
    draw: Draw | None = None
    beside: Mapping[str, Draw] = field(default_factory=dict)
    behind: Callable[[Scenario], Scenario] | None = None
    finish: Draw | None = None
    rule: str = ""
    refuses: Mapping[str, str] = field(default_factory=dict)
    not_compared: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    drafts: Callable[[DraftKind], bool] = _every_draft
    because: str = ""
    of_probes: bool = False
    of_model: bool = False
    facts: tuple[Fact, ...] = ()
    lacks: tuple[str, ...] = ()
    weight: float = 0.6


def field_is_not(path: str, off: object) -> Callable[[Scenario], bool]:
    """Return a predicate: the field at this path has another value than the one that means off."""
    return lambda scenario: get(scenario, path) not in (off, None)


def field_put(path: str, off: object, *, variant: Variant = "none") -> Callable[[Scenario], Scenario]:
    """Return a function that gives the field at this path the value that means off; this variant goes with it."""

    def without(scenario: Scenario) -> Scenario:
        if get(scenario, path) in (off, None):
            return scenario
        made = put(scenario, path, off)
        return replace(made, variant="none") if made.variant == variant else made

    return without


def requests_put(**off: object) -> Callable[[Scenario], Scenario]:
    """Return a function that gives these fields of every request the values that mean off."""

    def without(scenario: Scenario) -> Scenario:
        requests = tuple(replace(one, **off) for one in scenario.requests)
        return scenario if requests == scenario.requests else replace(scenario, requests=requests)

    return without


def in_turn(*changes: Callable[[Scenario], Scenario]) -> Callable[[Scenario], Scenario]:
    """Return a function that makes these changes one after the other."""
    return lambda scenario: reduce(lambda made, change: change(made), changes, scenario)


def any_request(holds: Callable[[Request], object]) -> Callable[[Scenario], bool]:
    """Return a predicate: something holds of a request of a scenario."""
    return lambda scenario: any(holds(request) for request in scenario.requests)
