"""Legal perturbations of a scenario: what changes, and which observations must not.

Every relation runs the same script. `graph_vs_eager` and `padded_vs_exact` compare with a fresh eager run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from draftproof.properties.values.channels import CHANNELS, TAPPED
from draftproof.properties.values.scenario import RELATIONS, Relation, Scenario

_OTHER = {"snapshot": "replay", "replay": "snapshot"}
_REPLACE: dict[str, Callable[[Scenario], dict[str, Any]]] = {
    "graph_vs_eager": lambda s: {"graphs": msgspec.structs.replace(s.graphs, capture=False)},
    "padded_vs_exact": lambda s: {"graphs": msgspec.structs.replace(s.graphs, sizes=())},
    "rows_permuted": lambda s: {"schedule": msgspec.structs.replace(s.schedule, row_seed=s.schedule.row_seed + 1)},
    "pages_permuted": lambda s: {"memory": msgspec.structs.replace(s.memory, page_seed=s.memory.page_seed + 1)},
    "other_poison": lambda s: {"memory": msgspec.structs.replace(s.memory, poison=1 - s.memory.poison)},
    "other_bucket": lambda s: {"graphs": msgspec.structs.replace(s.graphs, sizes=_wider(s.graphs.sizes))},
    "taps_off": lambda s: {"taps": False},
    "other_commit": lambda s: {"states": msgspec.structs.replace(s.states, commit=_OTHER[s.states.commit])},
}
# Which page and state slot a request gets follows from the order of rows, and what names a slot from those.
_PLACED = frozenset(
    {"round.table", "draft.step.slots", "draft.block.slots", "verify.slots", "extend.slots", "commit.written"}
    | {"pool.owners", "round.state", "pool.states"}
)
# What only one of the two ways to commit has, and which memory each of them writes.
_COMMITTED = frozenset(
    {"commit.intermediate", "commit.pending", "commit.base", "commit.unfolded", "commit.written", "graph.replay"}
)
_CHANGED: dict[Relation, frozenset[str]] = {
    "graph_vs_eager": frozenset({"graph.replay"}),
    "padded_vs_exact": frozenset({"graph.replay"}),
    "rows_permuted": _PLACED,
    "pages_permuted": _PLACED,
    "other_poison": frozenset(),
    "other_bucket": frozenset({"graph.replay"}),
    "taps_off": TAPPED,
    "other_commit": _COMMITTED,
}


def related(scenario: Scenario) -> Scenario:
    """The scenario under its drawn relation. Raises ValueError if it has none."""
    if scenario.relation not in RELATIONS:
        raise ValueError(f"relation is {scenario.relation!r}, allowed: {', '.join(RELATIONS)}")
    return msgspec.structs.replace(scenario, relation="none", **_REPLACE[scenario.relation](scenario))


def unchanged(relation: Relation) -> frozenset[str]:
    """The channels that a relation leaves as they are."""
    return frozenset(CHANNELS) - _CHANGED[relation]


def _wider(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes such that every batch that fitted one runs in another, with more padding."""
    return tuple(size + 1 for size in sizes)
