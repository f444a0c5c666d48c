"""Read what a budget of tokens made of engine steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.scenario import drafts_within


def read_token_budget(evidence: Evidence) -> Mapping[str, int]:
    """Return how often each of these was in a scenario."""
    counted = Counter[str]()
    if not evidence.scenario.schedule.token_budget:
        return counted
    for step in range(evidence.schedule.last_step + 1):
        decoding = {row.request: row for row in evidence.schedule.batches.get((step, 1), ())}
        wanted = evidence.plans.tokens_wanted(step)
        for request, got in evidence.plans.tokens_of_step(step).items():
            if row := decoding.get(request):
                fitting = evidence.plans.drafts_fitting(row, evidence.contexts[request, row.round])
                counted["drafts_cut_by_token_budget"] += drafts_within(evidence.scenario, fitting, got) < fitting
            elif got < wanted[request]:
                counted["chunks_cut_by_token_budget" if got else "waits_for_token_budget"] += 1
    return counted
