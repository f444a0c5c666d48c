"""The token budget of an engine step: how many of its tokens each request gets (S-SCHED-10)."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.relations import Missing, Surplus, off_by
from draftproof.properties.values.trace import Key


def _shared(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield rows with fewer or more tokens than are left for them, and those that are there or lack against that.

    A round of a draft that looks for a match may have fewer, and so may one with the shape of a tree.
    """
    schedule = evidence.schedule
    fewer = evidence.form.proposes == "lookup" or evidence.scenario.tree is not None
    for step in range(schedule.last_step + 1):
        rows = {row.request: row for phase in (0, 1) for row in schedule.batches.get((step, phase), ())}
        for request, tokens in evidence.plans.tokens_of_step(step).items():
            row = rows.get(request)
            if row and row.phase and row.round > len(evidence.script.requests[request].rounds) and schedule.overlap:
                # Of a round after the end overlap.discarded knows the drafts.
                continue
            if row and row.phase and tokens:
                # Its batch may be one that gets fewer drafts.
                allowed = evidence.plans.drafts_allowed(row, evidence.contexts[request, row.round])
                tokens = 1 + evidence.scenario.most_drafts(allowed)
            expected = f"{tokens} tokens in step {step}"
            if row is None:
                if tokens:
                    yield Mismatch("round.rows", _later(evidence, request, step), expected, None, Missing())
                continue
            key, got = Key(row.request, row.round, step=row.chunk), row.count + row.phase
            if not tokens:
                yield Mismatch("round.rows", key, f"none in step {step}", f"{got} tokens", Surplus())
            elif got > tokens or (got < tokens and not (fewer and row.phase)):
                yield Mismatch("round.rows", key, expected, f"{got} tokens", off_by(tokens, got))


def _later(evidence: Evidence, request: int, step: int) -> Key:
    """Return what a request runs next behind a step; of one that runs no more the round in which it was aborted."""
    keys = (Key(row.request, row.round, step=row.chunk) for row in evidence.schedule.rows if row.step > step)
    ended = Key(request, evidence.script.requests[request].ended, step=0)
    return next((key for key in keys if key.request == request), ended)


CONTRACTS = (
    listed(
        "schedule.token_budget",
        _shared,
        ("round.rows",),
        partial=("round.rows",),
        cites="S-SCHED-10, S-SCHED-12",
        minimum="scenarios drafts_cut_by_token_budget chunks_cut_by_token_budget waits_for_token_budget",
        concerns=lambda evidence: evidence.scenario.schedule.token_budget > 0,
    ),
)
