"""From a scenario to its script: true tokens, stop tokens, the drafts of every round and what must come of them.

What a subject verified in a round that is not forced, and in a dynamic scenario how many drafts a round has, shows when
it has run. So a script says what is forced wherever a round may begin, and `resolve` works out the rounds by what was
verified (docs/semantics/follow.md, S-FOLLOW).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec

from draftproof.properties.evidence.observed_run import Place
from draftproof.properties.values.limits import FirstDrafts
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Request, Scenario
from draftproof.properties.values.script import Script
from draftproof.reference.build import build
from draftproof.reference.drafts.base import ReferenceDraft, draft_for_request
from draftproof.reference.memo import Memo
from draftproof.reference.protocols import ReferenceTarget
from draftproof.reference.request_solver import RequestSolver
from draftproof.reference.tree_solver import TreeSolver

_NOTHING: Mapping[Place, TokenIds] = MappingProxyType({})
UNCHANGED: Mapping[int, TokenIds] = MappingProxyType({})
UNENDED: Mapping[int, int] = MappingProxyType({})


def solve(scenario: Scenario, memo: Memo | None = None, first: FirstDrafts = "own round") -> Script:
    """Return the script of a scenario for a subject that verifies its `first` drafts there.

    The same arguments give the same script.
    """
    target, draft = build(scenario, memo or Memo())
    requests = [_solver(scenario, request, target, draft).with_end() for request in scenario.requests]
    if scenario.dynamic:
        return Script(requests=tuple(one.chained(()) for one in requests))
    return Script(requests=tuple(one.solve(first) for one in requests))


def resolve(
    scenario: Scenario,
    script: Script,
    drafts: Mapping[Place, int],
    memo: Memo | None = None,
    verified: Mapping[Place, TokenIds] = _NOTHING,
    resumed: Collection[Place] = (),
    *,
    chooses: bool = False,
    followed: Mapping[int, TokenIds] = UNCHANGED,
    parents: Mapping[Place, TokenIds] = _NOTHING,
    ended: Mapping[int, int] = UNENDED,
) -> Script:
    """Return the script with its rounds as a subject ran them, by (request, round) (S-FOLLOW-1).

    `drafts` is the K that the subject gave to a round of a dynamic scenario: it is kept within the plan, the limits and
    what the draft finds; a round that `drafts` lacks gets the most that these allow. Rounds that are `resumed` have
    none. With `chooses` every round has as many drafts as the subject verified (S-FOLLOW-7). `verified` are the drafts
    that it verified, `parents` their parents in a tree; without them it verified what was forced, or else what the
    draft proposes by its definition. `followed` are texts, by request, that go another right way (S-FOLLOW-8). `ended`
    says of requests that may be aborted how many rounds ended before (S-SCHED-9). A script of a scenario that is not
    dynamic stays as it is without these.
    """
    if not scenario.dynamic and not verified and not resumed and not followed and not ended:
        return script
    memo = memo or Memo()
    target, draft = build(scenario, memo)
    requests = []
    counts = {**(drafts if scenario.dynamic else {}), **dict.fromkeys(resumed, 0)}
    own = {place: min(len(tokens), scenario.steps) for place, tokens in verified.items()} if chooses else {}
    for index, (request, solved) in enumerate(zip(scenario.requests, script.requests, strict=True)):
        given = {round_: count for (of, round_), count in counts.items() if of == index}
        seen = {round_: tokens for (of, round_), tokens in verified.items() if of == index}
        chosen = {round_: count for (of, round_), count in own.items() if of == index}
        solved = msgspec.structs.replace(solved, followed=followed.get(index, ()))
        rows = {round_: of_round for (of, round_), of_round in parents.items() if of == index}
        again = {round_ for of, round_ in resumed if of == index}
        memo.follow(index)
        solver = _solver(scenario, request, target, draft, rows)
        requests.append(solver.resolve(solved, given, seen, chosen, again, ended.get(index)))
    return Script(requests=tuple(requests))


def _solver(
    scenario: Scenario,
    request: Request,
    target: ReferenceTarget,
    draft: ReferenceDraft,
    parents: Mapping[int, TokenIds] = UNCHANGED,
) -> RequestSolver:
    """Return the solver of one request; no other request can change its tokens."""
    draft = draft_for_request(draft, scenario, request)
    if scenario.tree:
        return TreeSolver(scenario, request, target, draft, parents)
    return RequestSolver(scenario, request, target, draft)
