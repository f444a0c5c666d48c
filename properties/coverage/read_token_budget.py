"""Read what a budget of tokens made of engine steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from draftproof.properties.evidence.evidence import Evidence


def read_token_budget(evidence: Evidence) -> Mapping[str, int]:
    """Return how often each of these was in a scenario."""
    counted = Counter[str]()
    if not evidence.scenario.schedule.token_budget:
        return counted
    for step in range(evidence.schedule.last_step + 1):
        decoding = {row.request for row in evidence.schedule.batches.get((step, 1), ())}
        wanted = evidence.plans.tokens_wanted(step)
        for request, got in evidence.plans.tokens_of_step(step).items():
            if got < wanted[request]:
                cut = "drafts_cut_by_token_budget" if request in decoding else "chunks_cut_by_token_budget"
                counted["waits_for_token_budget" if not got else cut] += 1
    return counted
