"""From a scenario to its script: true tokens, stop tokens, the drafts of every round and what must come of them.

In a dynamic scenario the drafts of a round depend on which requests ran together, which is the subject's affair. Its
script says what is forced at every place, and `resolve` fills in the rounds once a subject ran.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, Wrong, drafts_allowed, round_plan
from draftproof.properties.values.script import RequestScript, RoundScript, Script, forced
from draftproof.reference.build import build
from draftproof.reference.decode import Greedy, RequestLimits, verify
from draftproof.reference.drafts.base import ReferenceDraft
from draftproof.reference.memo import Memo
from draftproof.reference.protocols import ReferenceTarget

Chains = tuple[tuple[tuple[int, ...] | None, ...], ...]


def solve(scenario: Scenario, memo: Memo | None = None) -> Script:
    """A function of the scenario only: the same scenario always gives the same script."""
    target, draft = build(scenario, memo or Memo())
    requests = [_RequestSolver(scenario, request, target, draft) for request in scenario.requests]
    return Script(requests=tuple(one.chained() if scenario.dynamic else one.solve() for one in requests))


def resolve(
    scenario: Scenario, script: Script, drafts: Mapping[tuple[int, int], int], memo: Memo | None = None
) -> Script:
    """The script of a dynamic scenario with its rounds: `drafts` is the K that a subject gave to (request, round).

    K is kept within what the plan and the limits allow, and what the draft finds; a round that `drafts` lacks gets all
    of that. Any other script is returned as it is.
    """
    if not scenario.dynamic:
        return script
    target, draft = build(scenario, memo or Memo())
    requests = []
    for index, (request, solved) in enumerate(zip(scenario.requests, script.requests, strict=True)):
        given = {round_: count for (of, round_), count in drafts.items() if of == index}
        requests.append(_RequestSolver(scenario, request, target, draft).resolve(solved, given))
    return Script(requests=tuple(requests))


class _RequestSolver:
    """One request on its own; no other request can change its tokens."""

    def __init__(self, scenario: Scenario, request: Request, target: ReferenceTarget, draft: ReferenceDraft) -> None:
        self._scenario, self._request, self._target, self._draft = scenario, request, target, draft
        self._truth = Greedy(target, request.prompt)
        self._misled: dict[tuple[int, int], int] = {}
        stop = {*request.stops, *((self._truth.token(request.stop_at),) if request.stop_at >= 0 else ())}
        self._limits = RequestLimits.of(request, scenario.memory.max_len, tuple(sorted(stop)))

    def solve(self) -> RequestScript:
        emitted: tuple[int, ...] = (self._truth.token(0),)
        rounds: list[RoundScript] = []
        while not self._limits.ended(emitted):
            plan, count = round_plan(self._request, len(rounds) + 1), self._allowed(len(rounds) + 1, len(emitted))
            rounds.append(self._round(emitted, count, self._chain(len(emitted), count, plan)))
            emitted += rounds[-1].emitted
        return RequestScript(tokens=emitted, stop=self._limits.stop, rounds=tuple(rounds))

    def chained(self) -> RequestScript:
        """Without rounds; with the chain of `steps` drafts for every number of emitted tokens and every plan."""
        emitted: tuple[int, ...] = (self._truth.token(0),)
        while not self._limits.ended(emitted):
            emitted += (self._truth.token(len(emitted)),)
        steps, plans = self._scenario.steps, self._request.rounds
        chains: Chains = tuple(
            tuple(self._chain(done, steps, plan) for plan in plans) for done in range(1, len(emitted))
        )
        return RequestScript(tokens=emitted, stop=self._limits.stop, rounds=(), chains=chains)

    def resolve(self, solved: RequestScript, drafts: Mapping[int, int]) -> RequestScript:
        """The same with its rounds, `drafts` by round."""
        emitted, rounds = solved.tokens[:1], list[RoundScript]()
        while not self._limits.ended(emitted):
            number = len(rounds) + 1
            allowed = self._allowed(number, len(emitted))
            count = max(0, min(drafts.get(number, allowed), allowed))
            rounds.append(self._round(emitted, count, forced(solved, number, len(emitted), count)))
            emitted += rounds[-1].emitted
        return RequestScript(tokens=emitted, stop=solved.stop, rounds=tuple(rounds), chains=solved.chains)

    def _allowed(self, number: int, emitted: int) -> int:
        """K of a round after `emitted` tokens, the last of them pending, but for what other requests take from it."""
        request, max_len = self._request, self._limits.max_len
        context, wanted = len(request.prompt) + emitted - 1, round_plan(request, number).num_drafts
        return drafts_allowed(wanted, context=context, max_len=max_len, budget_left=request.budget - emitted)

    def _round(self, emitted: tuple[int, ...], count: int, chain: tuple[int, ...] | None) -> RoundScript:
        tokens = self._request.prompt + emitted
        drafts = self._own(tokens, count) if chain is None else chain
        verified = verify(self._target, tokens, drafts)
        return RoundScript(
            context=len(tokens) - 1,
            drafts=len(drafts),
            forced=chain,
            correct_len=verified.correct_len,
            emitted=self._limits.cut(emitted, verified.emitted),
        )

    def _own(self, tokens: tuple[int, ...], count: int) -> tuple[int, ...]:
        return self._draft.propose(tokens, self._target.forward(tokens[:-1]), count).tokens

    def _chain(self, emitted: int, count: int, plan: RoundPlan) -> tuple[int, ...] | None:
        """`count` drafts after `emitted` tokens of which those that are to be right are accepted and no more, though
        one behind them matches; None if nothing is forced. A chain of fewer drafts is the beginning of a longer one."""
        right = plan.num_correct
        if right < 0:
            return None
        drafts = [self._truth.token(emitted + place) for place in range(count)]
        if right < count:
            drafts[right] = self._wrong(emitted + right, plan.wrong)
        if right + 1 < count:
            drafts[right + 1] = self._after_wrong(emitted + right, drafts[right])
        return tuple(drafts)

    def _wrong(self, number: int, kind: Wrong) -> int:
        """A token that the target does not emit as this number (S-PLAN-3)."""
        true, vocab = self._truth.token(number), self._scenario.model.vocab
        after = (true + 1) % vocab
        lowest = min(self._limits.stop, default=after)
        kinds = {"next": after, "zero": 0, "last": vocab - 1, "stop": lowest, "far": (true + vocab // 2) % vocab}
        return kinds[kind] if kinds[kind] != true else after

    def _after_wrong(self, number: int, wrong: int) -> int:
        """The target's choice after true tokens up to this number and a wrong one in its place."""
        if (number, wrong) not in self._misled:
            true = tuple(self._truth.token(before) for before in range(number))
            tokens = (*self._request.prompt, *true, wrong)
            self._misled[number, wrong] = verify(self._target, tokens, ()).emitted[0]
        return self._misled[number, wrong]
