"""The scenario that a row begins with: model, requests, batches, memory and captured sizes, before any feature.

Draws shrink toward what a person wants to read: graphs off, one request, a short prompt, page size 1, one layer.
`K` drafts of a round.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.features.adaptive_steps import adaptive
from draftproof.properties.strategies.models import models
from draftproof.properties.strategies.requests import Fit, requests
from draftproof.properties.strategies.rows import ArrayRow
from draftproof.properties.strategies.shapes import MANY_STEPS, SHAPES_BY_NAME, SIZE_BY_NAME, SMALL, WIDE, Shape, Size
from draftproof.properties.values.drafts import kind_of
from draftproof.properties.values.scenario import (
    Graphs,
    Memory,
    ProbeModel,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
    States,
)

_FEW = 4
"""Of more requests than these no others are cut by `max_len`."""
_SEVERAL = frozenset({"overlap", "mixed", "data-parallel", "preemption", "aborts", "token-budget"})
"""Features that show among several requests only."""
_SINGLE = (*(False,) * 29, True)
"""Whether there is one request whatever the shape and the features ask for."""
_SERVICES = (1, 1, 1, 2)
"""How often requests are served. The second time takes time, and shows nothing that depends on sizes."""


def base(choose: Choose, row: ArrayRow) -> Scenario:
    """Draw a scenario with an EAGLE draft and no features but those that come with the model and the requests."""
    shape, size = _shape(choose, row), SIZE_BY_NAME[row.size]
    features = {"two": 2, "three": 3}.get(dict(row.forms).get("features", ""), 1)
    model, head = models(choose, row.layers != "dense", size.layers, features)
    controller = adaptive(choose, shape.pattern, row.steps) if shape.adaptive_steps else None
    steps = max(controller.steps) if controller else _steps(choose, row, shape)
    page_size = choose.one_of(size.pages)
    chunk = max(size.chunks) if shape.name == "oversized" else choose.one_of(size.chunks)
    fit = Fit(model.vocab, steps, page_size, chunk)
    count = _count(choose, shape, size)
    drawn = requests(choose, shape, size, fit, count)
    schedule = _schedule(choose, shape, size, count, chunk)
    if size is SMALL:
        schedule = replace(schedule, services=choose.one_of(_SERVICES))
    return Scenario(
        model=model,
        draft=head,
        steps=steps,
        memory=_memory(choose, shape, drawn, fit, schedule),
        graphs=_captured(choose, row, shape, size, schedule.max_batch),
        schedule=schedule,
        requests=drawn,
        variant=row.variant,
        states=States() if row.layers == "dense" else States(commit=row.layers, checkpoint=_checkpoint(choose, size)),
        adaptive_steps=controller,
    )


def _shape(choose: Choose, row: ArrayRow) -> Shape:
    """Return the row's shape, with what its features ask of the requests."""
    shape, several = SHAPES_BY_NAME[row.shape], 3 if row.features & _SEVERAL else 1
    if "adaptive-steps" in row.features:
        pattern = choose.one_of(("rising", "falling", "rising"))
        shape = shape._replace(adaptive_steps=True, requests=max(2, shape.requests), pattern=pattern, others="")
    if "draft-batch" in row.features:
        # Rows come and go, so that batches are too large for drafts and then are not.
        shape = shape._replace(draft_batch=True, requests=max(3, shape.requests), together=True, crowded=False)
    return shape._replace(requests=max(several, shape.requests))


def _steps(choose: Choose, row: ArrayRow, shape: Shape) -> int:
    if row.steps == "one":
        return 1
    return choose.one_of(MANY_STEPS) if row.steps == "many" else choose.integer(max(2, shape.steps), shape.most_steps)


def unforced(scenario: Scenario) -> Scenario:
    """Return the scenario with rounds that verify the draft's own proposals: without taps it shows only in these.

    Under a controller all of them are, and right ones, so that the step count rises. What an n-gram draft finds is
    seldom right, whatever the model: there some rounds still force what moves the controller.
    """
    own = RoundPlan(num_drafts=scenario.steps, num_correct=-1)
    if scenario.adaptive_steps is None or kind_of(scenario.draft).proposes == "lookup":
        changed = tuple(replace(one, rounds=(own, *one.rounds[1:])) for one in scenario.requests)
        return replace(scenario, requests=changed)
    changed = tuple(replace(one, rounds=(own,)) for one in scenario.requests)
    draft = scenario.draft
    if getattr(draft, "head_vocab", 0) and isinstance(scenario.model, ProbeModel):
        draft = replace(draft, head_vocab=scenario.model.vocab)
    return replace(scenario, model=replace(scenario.model, agreement=256), draft=draft, requests=changed)


def _checkpoint(choose: Choose, size: Size) -> int:
    """Draw after how many tokens a state is kept; a long prompt passes whole multiples of more."""
    return choose.one_of((64, 7, 0, 100, 256) if size.shortest > 1 else (2, 3, 0, 4, 1, 7))


def _count(choose: Choose, shape: Shape, size: Size) -> int:
    """Draw how many requests there are; a controller is to see each of them for some rounds."""
    if size is not WIDE and choose.one_of(_SINGLE):
        return 1
    if not size.requests:
        most = 4 if size.shortest > 1 else 5 if shape.adaptive_steps else 7
        return choose.integer(shape.requests, max(shape.requests, most))
    most = 12 if shape.adaptive_steps else max(size.requests)
    return max(shape.requests, choose.one_of([count for count in size.requests if count <= most]))


def _captured(choose: Choose, row: ArrayRow, shape: Shape, size: Size, max_batch: int) -> Graphs:
    """Draw sizes that leave rows of padding; "oversized" leaves the largest batches without any."""
    if row.graphs == "eager":
        return Graphs()
    graphs = partial(Graphs, capture=row.graphs in ("captured", "late"), at_start=row.graphs == "captured")
    if shape.name == "oversized" and max_batch > 1:
        return graphs(sizes=(choose.integer(1, max_batch - 1),))
    if size.captured:
        return graphs(sizes=choose.one_of(size.captured))
    options = [(max_batch,), (max_batch + 1,), (1, max_batch + 1), (2, max_batch + 2)]
    options.append((1, max(2, max_batch - 1), max_batch + 2))
    if max_batch > 2:
        options.append((2, max_batch))
    if shape.name in ("shrinking_batch", "partial_in_padding"):
        options = [(max_batch + 1,), (max_batch,), (2, max_batch + 2)] if max_batch > 1 else [(2,), (3,)]
    return graphs(sizes=choose.one_of(options))


def _schedule(choose: Choose, shape: Shape, size: Size, count: int, chunk: int) -> Schedule:
    """Draw batches of all requests or of some; of few of them if larger ones get no drafts."""
    few = max(2 if count > 1 else 1, count // 2 if size is WIDE else 0)
    least = min(count, 3) if shape.requests > 2 and not shape.crowded else 1
    most = max(count - int(shape.crowded), few, least)
    max_batch = most if size is WIDE and choose.boolean() else choose.integer(max(few, least), most)
    if shape.name in ("reuse", "oversized"):
        max_batch = few if shape.name == "reuse" else count
    draft_batch = choose.integer(1, max(1, max_batch - 1)) if shape.draft_batch else 0
    return Schedule(max_batch=max_batch, chunk=chunk, row_seed=choose.integer(0, 3), draft_batch=draft_batch)


def _memory(choose: Choose, shape: Shape, drawn: tuple[Request, ...], fit: Fit, schedule: Schedule) -> Memory:
    """Draw pages and rows that are few enough that requests wait and reuse them; `max_len` sometimes ends a request."""
    totals = [len(request.prompt) + request.budget for request in drawn]
    longest = max(len(request.prompt) for request in drawn)
    max_len = max(totals) + fit.steps
    if shape.limits or (len(drawn) <= _FEW and choose.one_of((False, False, False, True))):
        # One of: cuts a request and those that are longer, is met exactly, leaves one over; near a page boundary if it
        # can be. Or the longest prompt leaves room for its first token only.
        less = choose.one_of((0, -1, -2, 1, -max(totals)))
        max_len = max(longest + 1, choose.one_of(sorted(totals)[-_FEW:]) + less, 4)
    needs = sorted((-(-min(max_len, total + fit.steps) // fit.page_size) for total in totals), reverse=True)
    ample = sum(needs)
    tight = sum(needs[: max(2, len(needs) // 2)])
    # Who is to be crowded, or under a controller, waits for no pages.
    at_once = shape.together or shape.crowded or shape.adaptive_steps
    # At times just those of the largest request, so that there is not one more than it needs.
    pages = ample if at_once else max(choose.one_of((ample, tight, ample, tight, needs[0])), needs[0])
    arriving = max(Counter(request.arrival for request in drawn).values())
    rows = max(schedule.max_batch, len(drawn) if shape.crowded else arriving)
    return Memory(
        page_size=fit.page_size,
        pages=pages,
        request_slots=rows if shape.name == "reuse" else rows + choose.integer(0, 1),
        max_len=max(max_len, 4),
        page_seed=choose.integer(0, 3),
        poison=choose.integer(0, 1),
    )
