"""Windows: layers of the target that slide beside full ones or without any, and a window of the draft's own.

They are seldom longer than a text, at times as long as a page, and mostly of two different lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of, has
from draftproof.properties.features.feature import Feature
from draftproof.properties.values.drafts import Eagle, Mtp
from draftproof.properties.values.scenario import LayerType, ProbeModel, Scenario, least_window

_FULL: LayerType = "full_attention"
_SLIDING: LayerType = "sliding_attention"
# Of all layers of both, so that pages go back while their request runs; of some of the target's, if it has several; of
# the draft's alone.
_WHOSE = ("all", "some", "all", "some", "draft")
# Where pages are too few it matters most what goes back.
_WHOSE_PREEMPTED = ("all", "all", "some")
# How many positions more than a page.
_MORE = (0, 1, 0, 2, 0, 3, 1, 4)
_MORE_PREEMPTED = (0, 0, 1)


def with_windows(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw windows of layers of the target, of the draft, or of both."""
    return with_windows_of(choose, scenario, _WHOSE_PREEMPTED if scenario.schedule.preemption else _WHOSE)


def with_windows_of(choose: Choose, scenario: Scenario, owners: Sequence[str]) -> Scenario:
    """Draw which layers have windows, and how long these are; a pure function of what is drawn.

    Where nothing but a draft's own proposals shows, the carry that drafts go on with stays whole (S-PROBE-18).
    """
    model, draft = scenario.model, scenario.draft
    if not isinstance(model, ProbeModel):
        return scenario
    whole = scenario.variant == "taps_off"
    whose, both = choose.one_of(owners), choose.boolean()
    full = [layer for layer, kind in enumerate(model.types) if kind == _FULL]
    if (whose == "some" and len(full) == 1) or (whose == "draft" and not hasattr(draft, "window")):
        whose = "all"
    kept = choose.integer(0, len(full) - 1) if whose == "some" and not whole else 0
    chosen = [] if whose == "draft" else [layer for place, layer in enumerate(full) if place != kept]
    if whose == "all" and not whole:
        chosen = full
    least = least_window(scenario)
    more = _MORE_PREEMPTED if scenario.schedule.preemption else _MORE
    window, own = (least + choose.one_of(more) for _ in range(2))
    types = tuple(_SLIDING if layer in chosen else kind for layer, kind in enumerate(model.types))
    if chosen:
        model = replace(model, layer_types=types, window=window)
    if hasattr(draft, "window") and (not whole or isinstance(draft, Eagle | Mtp)) and (whose != "some" or both):
        draft = replace(draft, window=own)
    return replace(scenario, model=model, draft=draft)


def large_enough(scenario: Scenario) -> Scenario:
    """Return the scenario with windows that are no smaller than its pages and its schedule let them be."""
    model, draft, least = scenario.model, scenario.draft, least_window(scenario)
    if isinstance(model, ProbeModel) and model.window:
        model = replace(model, window=max(model.window, least))
    if own := getattr(draft, "window", 0):
        draft = replace(draft, window=max(own, least))
    return replace(scenario, model=model, draft=draft)


def without_windows(scenario: Scenario) -> Scenario:
    """Return the scenario with layers that see everything."""
    model, draft = scenario.model, scenario.draft
    if isinstance(model, ProbeModel) and model.window:
        types = tuple(_FULL if kind == _SLIDING else kind for kind in model.types)
        model = replace(model, layer_types=types if "linear_attention" in types else (), window=0)
    if getattr(draft, "window", 0):
        draft = replace(draft, window=0)
    return replace(scenario, model=model, draft=draft)


def _is_longer(one: Any) -> bool:
    """Return whether a prompt is longer than the target's window."""
    return one.is_prefilled and 0 < getattr(one.run.scenario.model, "window", 0) < len(one.request.prompt)


def _are_unequal(run: Any) -> bool:
    target, draft = (getattr(part, "window", 0) for part in (run.scenario.model, run.scenario.draft))
    return target != draft and min(target, draft) > 0


_request, _round = facts_of("request"), facts_of("round")
_FACTS = (
    _round("window_rounds", lambda one: one.window in ("left", "beyond"), "windows: of the target", effect=True),
    _round(
        "window_drafts",
        lambda one: one.beyond_draft_window and one.drafts > 0,
        "windows: of the draft",
        drafts=lambda kind: kind.extends,
        effect=True,
    ),
    _round("windows_left", has(window="left"), "windows: left within a round"),
    _request("window_prompts", _is_longer, "windows: prompt beyond", channels="accept.emitted", effect=True),
    _request("window_pages_freed", lambda one: one.pages_freed, "windows: pages freed", channels="round.table"),
    facts_of("run")("windows_unequal", _are_unequal, "windows: of two lengths", drafts=lambda kind: kind.extends),
)

FEATURE = Feature(
    name="windows",
    what="layers of target or draft see a window of positions",
    has=lambda one: one.has_windows,
    without=without_windows,
    draw=with_windows,
    rule="S-WINDOW-4",
    of_probes=True,
    facts=_FACTS,
)
