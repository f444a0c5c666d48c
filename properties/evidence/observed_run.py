"""What the reference follows of a subject's run, read from its trace once (S-FOLLOW).

The code that answers a run gets this value and not the trace, so that nothing else of the subject can reach the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from draftproof.properties.evidence.schedule import ObservedSchedule
from draftproof.properties.evidence.waits import waited_steps
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.observed import BatchRow, Datum, StepsInForce, TokenIds
from draftproof.properties.values.scenario import Checkpoint, Scenario, round_plan
from draftproof.properties.values.trace import Key, Trace
from draftproof.properties.values.tree import children

Place = tuple[int, int]
"""A request, and its own round."""
InPlace = Mapping[int, tuple[TokenIds, ...]]
"""request -> for each token that it emitted the drafts that stood in its place: one of a chain, siblings of a tree."""
STORED = ("commit.kv", "extend.kv")
"""The entries of target and draft."""


@dataclass(frozen=True)
class ObservedBatches:
    """How the rounds of a run were batched; two runs of one text may have this in common.

    By (request, round): `rows` has the engine step and K of each decode row, `counts` K of the rounds of a dynamic
    scenario. Rounds that were `resumed` ran the text again. Of requests that may be aborted `ended` says how many
    rounds ended before (S-SCHED-9), the prompt's too. Of an overlap `waited` are the steps of S-OVERLAP-10.
    """

    rows: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    counts: Mapping[Place, int] = field(default_factory=dict)
    resumed: frozenset[Place] = frozenset()
    ended: Mapping[int, int] = field(default_factory=dict)
    waited: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ObservedRun:
    """What a subject did: the drafts that its rounds verified, the parents of a tree's, and the text that came of them.

    `in_place` are the drafts in the place of each token, `cached` the tokens that a prefix cache served, by (request,
    round). Of a real model's subject `stored` are its entries, by channel (S-KV-6), `logprobs` what it told of its
    tokens (S-SAMPLE-15).
    """

    texts: Mapping[int, TokenIds]
    drafts: Mapping[Place, TokenIds] = field(default_factory=dict)
    parents: Mapping[Place, TokenIds] = field(default_factory=dict)
    in_place: InPlace = field(default_factory=dict)
    batches: ObservedBatches = field(default_factory=ObservedBatches)
    cached: Mapping[Place, int] = field(default_factory=dict)
    stored: Mapping[str, Mapping[Key, Datum]] = field(default_factory=dict)
    logprobs: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)

    def batched_as(self, other: ObservedRun) -> ObservedRun:
        """Return this run with the batches of another run."""
        return replace(self, batches=other.batches)


def read_run(scenario: Scenario, trace: Trace, limits: Limits = NO_LIMITS) -> ObservedRun:
    """Return what a subject did in its run of a scenario; `limits` say when its first drafts come.

    With the prompt only a subject that declares it verifies any.
    """
    schedule, reported = ObservedSchedule(trace), _drafts(scenario, trace)
    first = 0 if limits.first_drafts == "with prompt" else 1
    drafts = {place: tokens for place, tokens in reported.items() if place[1] >= first}
    parents = _parents(trace) if scenario.tree else {}
    return ObservedRun(
        texts=trace.texts,
        drafts=drafts,
        parents=parents,
        in_place=_in_place(trace, drafts, parents if scenario.tree else None),
        batches=_batches(scenario, schedule, reported),
        cached=schedule.cached,
        stored={channel: trace.channel(channel) for channel in STORED if isinstance(scenario.model, Checkpoint)},
        logprobs=trace.typed("accept.logprobs", tuple),
    )


def _drafts(scenario: Scenario, trace: Trace) -> dict[Place, TokenIds]:
    """Return the drafts of every round that a subject reports: what it says that it verified.

    Where it does not say so, and nothing was forced, they are what it proposed.
    """
    seen = {
        key[:2]: tokens
        for key, tokens in trace.typed("propose.tokens", TokenIds).items()
        if key.round == 0 or round_plan(scenario.requests[key.request], key.round).num_correct < 0
    }
    return seen | {key[:2]: tokens for key, tokens in trace.typed("round.drafts", TokenIds).items()}


def _parents(trace: Trace) -> dict[Place, TokenIds]:
    return {key[:2]: rows for key, rows in trace.typed("round.parents", tuple).items()}


def _batches(scenario: Scenario, schedule: ObservedSchedule, drafts: Mapping[Place, TokenIds]) -> ObservedBatches:
    """Return the batches of a run; K is what a batch says, or else the number of drafts, none with the prompt.

    Of a tree, which has all its levels or none, K is what was in force.
    """
    rows = schedule.trace.typed("round.rows", BatchRow)
    decoded = {key[:2]: (row.step, row.count) for key, row in rows.items() if row.phase == 1}
    counts: dict[Place, int] = {}
    if scenario.dynamic:
        counts = {place: len(tokens) for place, tokens in drafts.items() if place[1] >= 1}
        counts |= {place: count for place, (_, count) in decoded.items()}
    if scenario.tree:
        in_force = schedule.trace.typed("adaptive_steps.steps", StepsInForce)
        steps = {place: in_force.get(Key(-1, decoded.get(place, (-1, 0))[0])) for place in counts}
        counts = {place: count and (steps[place] or scenario).steps for place, count in counts.items()}
    waited = waited_steps(scenario, schedule)
    return ObservedBatches(decoded, counts, schedule.resumed, _ended(scenario, schedule.trace), waited)


def _ended(scenario: Scenario, trace: Trace) -> dict[int, int]:
    """Return how many rounds ended of each request that may be aborted.

    Where a subject does not say when it ran them, they are all that it reports.
    """
    steps: dict[Place, int] = {}
    for key, row in trace.typed("round.rows", BatchRow).items():
        steps[key[:2]] = max(row.step, steps.get(key[:2], 0))
    emitted = {key[:2] for key in trace.typed("accept.emitted", TokenIds)}
    ended = {}
    for index, request in enumerate(scenario.requests):
        if request.leaves_at is not None:
            own = sorted(number for of, number in emitted if of == index)
            ended[index] = sum(steps.get((index, number), -1) < request.leaves_at for number in own)
    return ended


def _in_place(trace: Trace, drafts: Mapping[Place, TokenIds], parents: Mapping[Place, TokenIds] | None) -> InPlace:
    """Return the drafts that stood in the place of every token; without `parents` they are chains."""
    found: dict[int, tuple[TokenIds, ...]] = {}
    for key, emitted in sorted(trace.typed("accept.emitted", TokenIds).items()):
        own = drafts.get(key[:2], ())
        rows = _in_chain(own) if parents is None else _in_tree(own, parents.get(key[:2], ()), emitted)
        rows = (*rows, *((),) * len(emitted))[: len(emitted)]
        found[key.request] = (*found.get(key.request, ()), *rows)
    return found


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
