"""Step counts: the controller's, and the drafts that every round got from them."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import equals, listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.relations import off_by
from draftproof.properties.values.scenario import round_plan
from draftproof.properties.values.trace import Key


def _adaptive(evidence: Evidence) -> bool:
    return evidence.scenario.adaptive_steps is not None and _known_steps(evidence)


def _known(evidence: Evidence) -> bool:
    """Return whether the reference knows how many drafts a round has.

    A subject may choose (S-FOLLOW-7), and after a tie its controller averages another continuation.
    """
    return not evidence.limits.chooses_drafts and _known_steps(evidence)


def _known_steps(evidence: Evidence) -> bool:
    return evidence.scenario.adaptive_steps is None or not evidence.ties


def _counts(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield rounds whose K is neither what the plan allows nor, for a lookup, as many drafts as it found."""
    for row in evidence.schedule.rows:
        rounds = evidence.script.requests[row.request].rounds
        if row.phase != 1 or not 0 < row.round <= len(rounds) or row.request in evidence.ties:
            continue
        solved = rounds[row.round - 1]
        drafts = evidence.plans.drafts_allowed(row, solved.context)
        if evidence.scenario.tree:
            # What a real model's text has beyond plain decoding's, nothing is forced for.
            most = evidence.scenario.most_drafts(drafts)
            drafts = most if solved.forced is None else _rows_of_shape(evidence, row, drafts)
        if solved.forced is None:
            found = evidence.plans.num_found(row.request, row.round, solved.context)
            if found is not None and evidence.scenario.tree:
                found = solved.drafts
            drafts = drafts if found is None else min(drafts, found)
        if row.count != drafts:
            key = Key(row.request, row.round, step=row.chunk)
            relation = off_by(drafts, row.count)
            yield Mismatch("round.rows", key, f"{drafts} drafts", f"{row.count} drafts", relation)


def _rows_of_shape(evidence: Evidence, row: Row, depth: int) -> int:
    """Return how many drafts a round has when its plan forces the shape of the tree."""
    shape = round_plan(evidence.scenario.requests[row.request], row.round).shape
    most = evidence.scenario.most_drafts(depth)
    return len(shape.cut(depth, most).parents) if shape and depth else 0


CONTRACTS = (
    equals(
        "adaptive_steps.steps",
        concerns=_adaptive,
        cites="S-ADAPT-1, S-ADAPT-3, S-ADAPT-7, S-ADAPT-8",
        minimum="adaptive_scenarios step_switches_up step_switches_down by_batch_scenarios batches_without_steps "
        "steps_after_none",
    ),
    equals(
        "adaptive_steps.average",
        concerns=_adaptive,
        cites="S-ADAPT-1, S-ADAPT-2, S-ADAPT-7, S-ADAPT-9",
        minimum="adaptive_scenarios step_switches_up by_batch_scenarios",
    ),
    listed(
        "adaptive_steps.num_drafts",
        _counts,
        ("round.rows",),
        partial=("round.rows",),
        concerns=_known,
        cites="S-LIMIT-4, S-ADAPT-3, S-ADAPT-4",
        minimum="decode_rounds step_switches_up step_switches_down "
        "batches_too_large_for_drafts drafts_after_batch_without",
    ),
)
