"""The scheduler by itself: what no generated scenario comes to often enough."""

from collections.abc import Iterator

import torch
from msgspec.structs import replace

from draftproof.engine.config import EngineConfig
from draftproof.engine.pages import PagePool, PageTable
from draftproof.engine.prefix_cache import PrefixCache
from draftproof.engine.scheduler import Scheduler
from draftproof.engine.stages import GenerationRequest, ImageSpan, KeptState, StepPlan
from draftproof.engine.states.slots import StateSlots

KEPT = 5
IMAGE = ImageSpan(start=0, frames=1, height=2, width=1)


def test_of_two_states_for_one_slot_in_a_step_the_one_that_has_it_is_kept() -> None:
    """Another request takes the only slot in the step in which it was taken: the copy is made of its own state."""
    config = EngineConfig(
        steps=1,
        page_size=1,
        pages=20,
        request_slots=2,
        max_len=10,
        max_batch=2,
        chunk=4,
        prefix_cache=True,
        checkpoint_slots=1,
        checkpoint=1,
    )
    pool, table = PagePool(range(1, 21)), PageTable(torch.zeros(3, 10, dtype=torch.int64))
    cache = PrefixCache(page_size=1, lookahead=0, keeps=True, checkpoints=StateSlots((KEPT,)))
    scheduler = Scheduler(config, pool, table, cache, StateSlots((1, 2)))
    for number, prompt in enumerate(((1, 2, 3), (4, 5, 6))):
        scheduler.add(GenerationRequest(number, 0, prompt, budget=4, stop=frozenset(), num_drafts_wanted=(0,)))
    plan = scheduler.plan(0, lambda rows: 1)
    scheduler.launched(plan)
    for row in plan.prefill:
        scheduler.receive_prompt(row, 9)
    retired = scheduler.retire()
    (kept,) = (node for node in cache.nodes() if node.checkpoint)
    owner = next(sequence for sequence in scheduler.live if kept in sequence.cached)
    assert len(plan.prefill) == 2
    assert cache.prefix(kept) == owner.request.prompt == (4, 5, 6)
    assert retired.kept == (KeptState(KEPT, owner.state_slot, owner.request.id, tokens=3),)


def test_a_resumed_request_has_the_images_of_its_prompt() -> None:
    scheduler = _crowded()
    resumed = [row for plan in _steps(scheduler) for row in plan.prefill if row.emitted]
    assert resumed
    assert all(row.request.images == (IMAGE,) for row in resumed)


def test_a_resumed_request_gives_back_the_pages_that_fell_out_of_its_window() -> None:
    scheduler = _crowded(pages=7, window=3)
    rows = (row for plan in _steps(scheduler) for row in plan.decode if row.request.id == 1)
    owned = [len(scheduler.page_table.owned(row.req_row)) for row in rows]
    # Its last round verifies one position without a draft, and looks at two before it.
    assert owned[-1] == 3


def test_a_request_that_gave_way_and_is_aborted_never_comes_back() -> None:
    scheduler = _crowded(abort_at=5)
    plans = list(_steps(scheduler))
    (preempted,) = (step for step, plan in enumerate(plans) for one in plan.preempted if one.request == 1)
    assert preempted < 5
    assert not any(row.emitted for plan in plans for row in plan.prefill)


def _crowded(pages: int = 12, window: int = 0, abort_at: int | None = None) -> Scheduler:
    """Return two requests with pages for one: the second gives way when it has emitted some tokens."""
    config = EngineConfig(
        steps=1, page_size=1, pages=pages, request_slots=2, max_len=20, max_batch=2, chunk=4, preemption=True
    )
    pool, table = PagePool(range(1, pages + 1)), PageTable(torch.zeros(3, 20, dtype=torch.int64))
    cache = PrefixCache(page_size=1, lookahead=0, keeps=False)
    scheduler = Scheduler(config, pool, table, cache, None, window)
    for number, end in enumerate((None, abort_at)):
        request = GenerationRequest(number, 0, (1, 2, 3), 8, frozenset(), (1,), abort_at=end, images=(IMAGE,))
        scheduler.add(request)
    return scheduler


def _steps(scheduler: Scheduler) -> Iterator[StepPlan]:
    """Yield the steps of an engine whose target always wants another token than its draft."""
    for step in range(40):
        if scheduler.idle:
            return
        scheduler.abort(step)
        plan = scheduler.plan(step, lambda rows: 1)
        scheduler.launched(plan)
        for row in plan.prefill:
            scheduler.receive_prompt(row, 9)
        for row in plan.decode:
            scheduler.receive_round(row, (9,))
        yield plan
        scheduler.retire()


def test_a_request_that_never_fits_is_refused_when_it_comes_and_holds_up_nobody() -> None:
    scheduler = _crowded(pages=12)
    asked = GenerationRequest(2, 3, (1,) * 13, budget=1, stop=frozenset(), num_drafts_wanted=(0,))
    for number, prompt in enumerate(((1,) * 13, (1,) * 12, (1, 50)), start=2):
        scheduler.add(replace(asked, id=number, prompt=prompt), vocab=50)
    assert scheduler.refuse(2) == ()
    assert [(one.request, one.error, one.emitted, one.finished) for one in scheduler.refuse(3)] == [
        (2, "length", (), True),
        (4, "token", (), True),
    ]
    assert scheduler.refuse(4) == ()
    assert len(list(_steps(scheduler))) < 40
    assert scheduler.idle
