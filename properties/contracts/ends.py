"""The end of a text, held against what was asked for by the text alone: where it ends, and what comes before."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.ends import end_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.relations import Different, Resized
from draftproof.properties.values.trace import Key

_ENDS = """
    ends_by_eos eos_ignored ends_by_sequence sequences_across_rounds sequences_in_accepted_run sequences_before_minimum
    sequences_from_prompt sequences_across_resume stops_before_budget_in_run ends_as_minimum_is_reached
"""


def _wrong_ends(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield texts that have a stop token before their minimum, that go on behind their end, or end too soon."""
    scenario, emitted = evidence.scenario, evidence.subject.typed("accept.emitted", TokenIds)
    for index, (request, script) in enumerate(zip(scenario.requests, evidence.script.requests, strict=True)):
        keys = [key for key in sorted(emitted) if key.request == index for _ in emitted[key]]
        text = evidence.subject.texts.get(index, ())
        stops = {*script.stop, *scenario.eos}
        early = next((place for place, token in enumerate(text[: request.min_tokens]) if token in stops), None)
        if early is not None:
            expected = f"no stop token as number {early} of at least {request.min_tokens}"
            yield Mismatch("accept.emitted", keys[early], expected, text, Different())
            continue
        ends = (count for count in range(1, len(text) + 1) if end_of(scenario, request, script, text[:count]))
        count = next(ends, None)
        if count is None and not script.aborted:
            key = keys[-1] if keys else Key(index, 0)
            yield Mismatch("accept.emitted", key, "more tokens, as nothing ends the text", text, Resized(-1))
        elif count is not None and count < len(text):
            by = end_of(scenario, request, script, text[:count])
            expected = f"{count} tokens, as it ends there ({by})"
            yield Mismatch("accept.emitted", keys[count], expected, text, Resized(len(text) - count))


CONTRACTS = (
    listed(
        "output.ends",
        _wrong_ends,
        ("accept.emitted",),
        by_round=False,
        partial=("accept.emitted",),
        cites="S-LIMIT-13, S-LIMIT-14, S-LIMIT-15, S-LIMIT-16, S-PLAN-9",
        minimum=f"scenarios minimum_changed_choice minimum_in_accepted_run {_ENDS}",
        # A real model's text may go another way at a tie, and is judged by output.lossless.
        concerns=lambda evidence: evidence.exact,
    ),
)
