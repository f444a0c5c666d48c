"""Prompts with images, for models whose tokens have three positions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, any_request, field_put, in_turn, requests_put
from draftproof.properties.features.lasting import with_pages_of
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.scenario import Image, ProbeModel, Request, Scenario, delta_of

# Frames, height, width. All but one take more tokens than positions, so that what follows is behind its index.
# Each of frames, rows and columns is the largest number of some: positions behind an image go by that.
_GRIDS = ((1, 2, 2), (3, 1, 1), (2, 1, 2), (1, 2, 3), (4, 1, 1), (1, 3, 2), (2, 2, 1), (1, 1, 3), (3, 1, 2), (2, 2, 2))
_SMALLEST = 4
# How many images a prompt has at most; a short prompt has room for fewer.
_COUNTS = (1, 2, 3, 2, 5, 9)
# Every third request has none, so that rows of both kinds run beside each other; with preemption all have one.
_NONE = (False, True, False)


def with_mrope(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw the places and grids of images in prompts; the first request has at least one."""
    if not isinstance(scenario.model, ProbeModel):
        return scenario
    all_have_one = scenario.schedule.preemption
    first, *others = scenario.requests
    missing = max(0, _SMALLEST - len(first.prompt))
    longer = replace(first, prompt=(*first.prompt, *first.prompt[-1:] * missing))
    requests = tuple(
        _with_images(choose, one) if all_have_one or not number or not choose.one_of(_NONE) else one
        for number, one in enumerate((longer, *others))
    )
    made = replace(scenario, model=replace(scenario.model, mrope=True), requests=requests)
    return with_pages_of(put_in(made, "memory", max_len=made.memory.max_len + missing), scenario)


def _with_images(choose: Choose, request: Request) -> Request:
    images, length, behind = list[Image](), len(request.prompt), 0
    count = choose.one_of(_COUNTS)
    while behind + _SMALLEST <= length and len(images) < count:
        fitting = [grid for grid in _GRIDS if behind + grid[0] * grid[1] * grid[2] <= length]
        frames, height, width = choose.one_of(fitting)
        spare = length - behind - frames * height * width
        start = behind + choose.integer(0, min(spare, 3))
        images.append(Image(start=start, frames=frames, height=height, width=width))
        behind = images[-1].end
    return replace(request, images=tuple(images))


def _delta(one: Any) -> int:
    """Return how far the positions of a request's tokens are from their indices."""
    return delta_of(len(one.request.prompt), one.request.images)


def _cuts(one: Any) -> bool:
    """Return whether a chunk of a prompt ends within an image."""
    chunk = one.run.scenario.schedule.chunk
    ends = range(chunk, len(one.request.prompt), chunk)
    return one.is_prefilled and any(image.start < end < image.end for image in one.request.images for end in ends)


_request = facts_of("request", channels="accept.emitted")
_FACTS = (
    _request(
        "mrope_prompts",
        lambda one: one.is_prefilled and bool(one.request.images),
        "M-RoPE: image",
        effect=True,
    ),
    _request(
        "mrope_prompts_of_several_images",
        lambda one: one.is_prefilled and len(one.request.images) > 1,
        "M-RoPE: several images",
    ),
    _request("mrope_images_cut", _cuts, "M-RoPE: image in two chunks"),
    facts_of("round")("mrope_rounds", lambda one: _delta(one.request) != 0, "M-RoPE: behind an image"),
    facts_of("batch")("mrope_deltas_beside_each_other", lambda one: one.has_deltas, "M-RoPE: rows of two deltas"),
)

FEATURE = Feature(
    name="mrope",
    weight=0.38,
    what="a prompt has images, and tokens three positions (M-RoPE)",
    has=any_request(lambda one: one.images),
    without=in_turn(requests_put(images=()), field_put("model.mrope", False)),
    draw=with_mrope,
    rule="S-MROPE-1",
    of_probes=True,
    facts=_FACTS,
)
