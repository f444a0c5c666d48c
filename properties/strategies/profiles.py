"""What scenarios are about: each profile is a trigger that real bugs needed."""

from __future__ import annotations

from typing import NamedTuple


class Profile(NamedTuple):
    """A trigger.

    `requests` and `steps` (K) are the least of them that a scenario takes; `shape` names the profile whose batches and
    memory it has. `hybrid`: the target has linear layers; `adaptive`: a controller chooses the step count;
    `draft_batch`: larger batches get no drafts.
    """

    name: str
    requests: int = 1
    steps: int = 1
    graphs: bool = False
    pattern: str = "any"
    limits: bool = False
    long: bool = False
    together: bool = False
    most_steps: int = 5
    hybrid: bool = False
    adaptive: bool = False
    draft_batch: bool = False
    shape: str = ""


def _hybrid(name: str, **other: object) -> Profile:
    """Return the same trigger on a target with linear layers."""
    return BY_NAME[name]._replace(**{"name": f"hybrid_{name}", "hybrid": True, "shape": name, **other})  # type: ignore[arg-type]


_ANY = Profile("any")
_DENSE = (
    Profile("shrinking_batch", requests=3, steps=2, graphs=True, pattern="uneven", together=True),
    Profile("partial_in_padding", requests=1, steps=3, graphs=True, pattern="partial"),
    Profile("alternating", requests=2, steps=2, graphs=True, pattern="alternating"),
    Profile("switching", requests=2, steps=3, graphs=True, pattern="switching"),
    Profile("oversized", requests=3, steps=2, graphs=True, pattern="partial", together=True, most_steps=3),
    Profile("reuse", requests=3, steps=2, graphs=True, pattern="any", long=True),
    Profile("limits", requests=2, steps=3, graphs=True, pattern="all", limits=True),
    Profile("boundaries", requests=2, steps=4, graphs=True, pattern="uneven", limits=True),
)
BY_NAME: dict[str, Profile] = {profile.name: profile for profile in _DENSE}
_HYBRID = (
    _hybrid("partial_in_padding", requests=2),
    _hybrid("reuse"),
    _hybrid("shrinking_batch"),
    _hybrid("alternating"),
    _hybrid("switching"),
    _hybrid("limits", requests=3, shape="reuse"),
    _hybrid("oversized"),
)
_ADAPTIVE = Profile("adaptive", requests=2, graphs=True, pattern="falling", adaptive=True)
_DYNAMIC = (
    _ADAPTIVE._replace(name="adaptive_rising", pattern="rising", hybrid=True),
    _ADAPTIVE,
    _ADAPTIVE._replace(name="adaptive_falling", hybrid=True),
    _ADAPTIVE._replace(
        name="adaptive_oversized", pattern="rising", hybrid=True, requests=3, together=True, shape="oversized"
    ),
    _ADAPTIVE._replace(name="adaptive_draft_batch", pattern="rising", draft_batch=True),
    _ADAPTIVE._replace(name="adaptive_limits", pattern="rising", hybrid=True, limits=True),
    Profile(
        "draft_batch", requests=3, steps=2, graphs=True, pattern="partial", together=True, hybrid=True, draft_batch=True
    ),
)
PROFILES = (_ANY, *_DENSE, *_HYBRID, *_DYNAMIC)
BY_NAME = {profile.name: profile for profile in PROFILES}

# Scenarios in one list take turns at profiles, so that a few examples have seen every trigger; any few neighbours hold
# dense, hybrid and adaptive ones.
_ORDER = """
    shrinking_batch hybrid_partial_in_padding adaptive_rising oversized hybrid_reuse draft_batch alternating
    hybrid_shrinking_batch adaptive hybrid_alternating partial_in_padding hybrid_switching switching
    adaptive_falling limits hybrid_limits adaptive_oversized reuse hybrid_oversized adaptive_draft_batch boundaries
    adaptive_limits
"""
ROTATION = tuple(BY_NAME[name] for name in _ORDER.split())
