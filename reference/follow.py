"""What the reference takes from a subject's trace: which drafts its rounds verified, and how many (S-FOLLOW-1)."""

from __future__ import annotations

from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.observed import BatchRow, TokenIds
from draftproof.properties.values.scenario import Scenario, round_plan
from draftproof.properties.values.trace import Trace
from draftproof.properties.values.tree import children
from draftproof.reference.solve import Place
from draftproof.reference.text import Given


def drafts_verified(scenario: Scenario, trace: Trace, limits: Limits = NO_LIMITS) -> dict[Place, TokenIds]:
    """Return the drafts of every round that a subject reports: what it says that it verified.

    Where it does not say so, and nothing was forced, they are what it proposed. With the prompt only a subject that
    declares it verifies any.
    """
    first = 0 if limits.first_drafts == "with prompt" else 1
    seen = {
        key[:2]: tokens
        for key, tokens in trace.typed("propose.tokens", TokenIds).items()
        if key.round == 0 or round_plan(scenario.requests[key.request], key.round).num_correct < 0
    }
    seen |= {key[:2]: tokens for key, tokens in trace.typed("round.drafts", TokenIds).items()}
    return {place: tokens for place, tokens in seen.items() if place[1] >= first}


def parents_verified(scenario: Scenario, trace: Trace) -> dict[Place, TokenIds]:
    """Return the parents of the drafts of every round of a tree, as a subject says that it verified them."""
    return {key[:2]: rows for key, rows in trace.typed("round.parents", tuple).items()} if scenario.tree else {}


def rounds_ended(scenario: Scenario, trace: Trace) -> dict[int, int]:
    """Return of every request that may be aborted how many rounds of it ended before (S-SCHED-9), the prompt's too.

    Where a subject does not say when it ran them, they are all that it reports.
    """
    steps: dict[Place, int] = {}
    for key, row in trace.typed("round.rows", BatchRow).items():
        steps[key[:2]] = max(row.step, steps.get(key[:2], 0))
    emitted = {key[:2] for key in trace.typed("accept.emitted", TokenIds)}
    ended = {}
    for index, request in enumerate(scenario.requests):
        if request.abort_at is not None:
            own = sorted(number for of, number in emitted if of == index)
            ended[index] = sum(steps.get((index, number), -1) < request.abort_at for number in own)
    return ended


def drafts_in_place(scenario: Scenario, trace: Trace, limits: Limits = NO_LIMITS) -> Given:
    """Return of every token that a request emitted the drafts that stood in its place, as a subject says."""
    verified, parents = drafts_verified(scenario, trace, limits), parents_verified(scenario, trace)
    given: dict[int, tuple[TokenIds, ...]] = {}
    for key, emitted in sorted(trace.typed("accept.emitted", TokenIds).items()):
        drafts = verified.get(key[:2], ())
        rows = _in_tree(drafts, parents.get(key[:2], ()), emitted) if scenario.tree else _in_chain(drafts)
        rows = (*rows, *((),) * len(emitted))[: len(emitted)]
        given[key.request] = (*given.get(key.request, ()), *rows)
    return given


def _in_chain(drafts: TokenIds) -> tuple[TokenIds, ...]:
    return tuple((draft,) for draft in drafts)


def _in_tree(drafts: TokenIds, parents: TokenIds, emitted: TokenIds) -> tuple[TokenIds, ...]:
    """Return the drafts below each row of the path that was emitted."""
    row, found = 0, list[TokenIds]()
    for token in emitted:
        below = [child for child in children(parents, row) if child <= len(drafts)]
        found.append(tuple(drafts[child - 1] for child in below))
        row = next((child for child in below if drafts[child - 1] == token), -1)
        if row < 0:
            break
    return tuple(found)


def drafts_given(scenario: Scenario, trace: Trace) -> dict[Place, int]:
    """Return K of the rounds of a dynamic scenario: by the rows of its batches, or else by its drafts."""
    if not scenario.dynamic:
        return {}
    counts = {place: len(tokens) for place, tokens in drafts_verified(scenario, trace).items()}
    rows = trace.typed("round.rows", BatchRow)
    return counts | {key[:2]: row.count for key, row in rows.items() if row.phase == 1}
