"""Legal perturbations of a scenario: what changes, and which observations must not.

Every variant runs the same script. `graph_vs_eager` compares with a fresh eager run.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from draftproof.properties.features import FEATURES_BY_NAME, refusal
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.chain_tree import as_tree
from draftproof.properties.values.channels import CHANNELS, DISAGGREGATION_CHANNELS, OVERLAP_CHANNELS, TAPPED
from draftproof.properties.values.drafts import TREE_CHANNELS
from draftproof.properties.values.scenario import VARIANTS, Scenario, Variant
from draftproof.properties.values.served_alone import served_alone

_OTHER = {"snapshot": "replay", "replay": "snapshot"}
_VARIED: dict[str, Callable[[Scenario], Scenario]] = {
    "graph_vs_eager": lambda s: put_in(s, "graphs", capture=False),
    "other_memory": lambda s: put_in(s, "memory", page_seed=s.memory.page_seed + 1, poison=1 - s.memory.poison),
    # Every other row seed reverses the order of the one below it; a batch that fitted one size runs in another.
    "other_batches": lambda s: put_in(
        put_in(s, "schedule", row_seed=s.schedule.row_seed ^ 1),
        "graphs",
        sizes=tuple(size + 1 for size in s.graphs.sizes),
        tokens=tuple(size + 1 for size in s.graphs.tokens),
    ),
    "taps_off": lambda s: replace(s, taps=False),
    "other_commit": lambda s: put_in(s, "states", commit=_OTHER[s.states.commit]),
    "chain_as_tree": as_tree,
    "alone": served_alone,
    "unoverlapped": lambda s: put_in(s, "schedule", overlap=()),
    "unmixed": lambda s: put_in(put_in(s, "schedule", mixed=False), "graphs", tokens=()),
}
# Which page and state slot a request gets follows from the order of rows, and what names a slot from those.
_PLACED = frozenset(channel.name for channel in CHANNELS.values() if channel.is_placed)
# What only one of the two ways to commit has, and which memory each of them writes.
_COMMITTED = frozenset(channel.name for channel in CHANNELS.values() if channel.commit or channel.is_of_launches)
# What shows the captured size of a launch, or counts captures among launches.
_SIZED = frozenset({"graph.replay", "graph.work", "draft.discarded", "verify.discarded", "extend.discarded"})
# What shows which rows share a launch, and counts launches of a step.
_LAUNCHED = _SIZED | {"commit.written", "verify.packed"}
# What a tree writes once more, and what a chain or its tree has not: a controller, states, pages kept for others,
# another engine.
_OF_ONE = TREE_CHANNELS | {
    "graph.work",
    "propose.weights",
    "pool.cached",
    "pool.checkpoints",
    "pool.states",
    "round.state",
}
_OF_ONE |= {name for name in CHANNELS if name.startswith(("draft.block.", "adaptive_steps."))}
_OF_ONE |= {f"commit.{name}" for name in ("base", "checkpoint", "final", "intermediate", "pending", "state")}
_OF_ONE |= {"commit.step_index", "commit.unfolded", "verify.packed"} | DISAGGREGATION_CHANNELS | OVERLAP_CHANNELS
# What tells of a request's own work, and not of where or beside whom.
_OF_REQUESTS = frozenset(
    channel.name
    for channel in CHANNELS.values()
    if channel.scope == "request" and channel.phase != "plan" and not channel.is_placed
)
# Channels that an engine with a host a step behind lacks, or reports at another time.
_OF_OTHERS = TREE_CHANNELS | {"propose.match", "verify.allowed", "commit.allowed", "commit.final", "commit.unfolded"}
_CHANGED: dict[Variant, frozenset[str]] = {
    "graph_vs_eager": _SIZED | {"verify.packed"},
    "unmixed": _LAUNCHED | TREE_CHANNELS | DISAGGREGATION_CHANNELS | OVERLAP_CHANNELS,
    "other_memory": _PLACED,
    "other_batches": _PLACED | _SIZED | {"verify.packed"},
    "taps_off": TAPPED | {"config.index_bytes"},
    "other_commit": _COMMITTED,
    "chain_as_tree": _OF_ONE,
    "alone": frozenset(CHANNELS) - _OF_REQUESTS | {"accept.returned"},
    "unoverlapped": frozenset(CHANNELS) - (_OF_REQUESTS - _OF_OTHERS) | {"accept.returned"},
}

_NEEDED: dict[Variant, str] = {"other_commit": "hybrid", "unmixed": "mixed", "unoverlapped": "overlap"}


def refused_by_variant(variant: Variant, feature: str) -> str:
    """Return why a variant's run cannot be compared beside a feature (features/), "" if it can."""
    if variant == "chain_as_tree" and (because := refusal("trees", feature)):
        return because
    return FEATURES_BY_NAME[feature].not_compared.get(variant, "")


def needed_by_variant(variant: Variant) -> str:
    """Return the feature without which a variant is the base run again, "" if there is none."""
    return _NEEDED.get(variant, "")


RESHAPED: frozenset[Variant] = frozenset({"other_batches", "other_commit"})
"""Variants in which batches have other shapes, or sums another order: floats of a real model round otherwise."""


def varied(scenario: Scenario) -> Scenario:
    """Return the scenario under its drawn variant. Raises ValueError if it has none."""
    if scenario.variant not in VARIANTS:
        raise ValueError(f"invalid variant {scenario.variant!r}: expected one of {', '.join(VARIANTS)}")
    changed = put_in(_VARIED[scenario.variant](scenario), "schedule", services=1)
    return replace(changed, variant="none")


_OF_STEPS = frozenset({"pool.reachable", "pool.kept", "rank.collectives", "commit.cached"})
"""Channels that go by engine steps, which no variant leaves as they are."""


def unchanged(variant: Variant) -> frozenset[str]:
    """Return the channels that a variant leaves as they are. Its run serves the requests once, and on one rank."""
    return frozenset(CHANNELS) - _CHANGED[variant] - _OF_STEPS
