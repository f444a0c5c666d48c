"""The scheduler by itself: what no generated scenario comes to often enough."""

import torch

from draftproof.engine.config import EngineConfig
from draftproof.engine.pages import PagePool, PageTable
from draftproof.engine.prefix_cache import PrefixCache
from draftproof.engine.scheduler import Scheduler
from draftproof.engine.stages import GenerationRequest
from draftproof.engine.states.slots import StateSlots

KEPT = 5


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
    for row in plan.prefill:
        scheduler.commit_prefill(row, first=9)
    retired = scheduler.retire(())
    (kept,) = (node for node in cache.nodes() if node.checkpoint)
    owner = next(sequence for sequence in scheduler.live if kept in sequence.cached)
    assert len(plan.prefill) == 2
    assert cache.prefix(kept) == owner.request.prompt == (4, 5, 6)
    assert retired.kept == {KEPT: owner.state_slot}
