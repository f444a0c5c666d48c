"""Batches that are too large for drafts: vLLM's `speculative_disable_by_batch_size`."""

from __future__ import annotations

from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import ROUNDS_OF_ITS_SCHEDULE, Feature, field_is_not, field_put

FEATURE = Feature(
    name="draft-batch",
    not_compared=dict.fromkeys(("alone", "unoverlapped"), ROUNDS_OF_ITS_SCHEDULE),
    weight=0.15,
    what="batches above a number of rows get no drafts",
    has=field_is_not("schedule.draft_batch", 0),
    without=field_put("schedule.draft_batch", 0),
    rule="S-LIMIT-5",
    facts=(
        facts_of("batch")(
            "batches_too_large_for_drafts",
            lambda one: one.is_too_large_for_drafts,
            "adaptive steps: a batch too large for drafts",
            real=False,
            effect=True,
        ),
    ),
)
