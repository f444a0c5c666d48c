"""Read which requests one engine handed over to another, and with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from draftproof.properties.evidence.evidence import Evidence

OF_HANDOVERS = (
    "handovers",
    "handovers_of_chunks",
    "handovers_of_several_pages",
    "handovers_of_partial_pages",
    "handovers_waiting",
    "handovers_of_draft_entries",
    "handovers_of_hidden_states",
    "handovers_of_states",
    "handovers_of_checkpoints",
    "handovers_of_codes",
    "handovers_of_sampled",
    "handovers_of_penalties",
    "handovers_of_grammars",
    "handovers_of_images",
)
"""Requests that were handed over; of them those whose prompt ran in chunks, took several pages, or part of its last
one; that waited for the decode engine; with entries of a draft, hidden states for it, recurrent states, checkpoints of
these, codes and scales; and those that draw their tokens, with penalties, a grammar, or images."""


def handover_of(evidence: Evidence, request: int) -> str | None:
    """Return how a request came to the engine that ran its rounds; None if it had none."""
    first = evidence.schedule.decode_steps.get((request, 1))
    if first is None:
        return None
    if not evidence.scenario.schedule.handover:
        return "no"
    return "after a wait" if first > evidence.schedule.ends.get((request, 0), first) + 1 else "at once"


def read_handovers(evidence: Evidence) -> Mapping[str, int]:
    """Return how often each of these was in a scenario."""
    counted = Counter[str]()
    if not evidence.scenario.schedule.handover:
        return counted
    scenario = evidence.scenario
    hidden = {key.request for key in evidence.reference.channel("handover.hidden")}
    of_draft = {key.request for key in evidence.reference.channel("handover.draft_kv")}
    codes = evidence.has_codes or getattr(scenario.draft, "kv_bits", 64) < 64
    for index, _ in evidence.schedule.installed:
        request, page = scenario.requests[index], evidence.page_size
        length = len(request.prompt)
        told = {
            "handovers": True,
            "handovers_of_chunks": length > scenario.schedule.chunk,
            "handovers_of_several_pages": length > page,
            "handovers_of_partial_pages": length % page > 0,
            "handovers_waiting": handover_of(evidence, index) == "after a wait",
            "handovers_of_draft_entries": index in of_draft,
            "handovers_of_hidden_states": index in hidden,
            "handovers_of_states": evidence.hybrid,
            "handovers_of_checkpoints": evidence.hybrid and 0 < scenario.states.checkpoint <= length,
            "handovers_of_codes": codes,
            "handovers_of_sampled": request.sampling is not None,
            "handovers_of_penalties": request.penalties is not None,
            "handovers_of_grammars": request.grammar is not None,
            "handovers_of_images": bool(request.images),
        }
        counted.update({name: 1 for name, holds in told.items() if holds})
    return counted
