"""The script of one request: what its rounds verify, and what must come of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Self

import msgspec

from draftproof.properties.values.drafts import is_free
from draftproof.properties.values.limits import FirstDrafts
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import (
    Checkpoint,
    Request,
    RoundPlan,
    Scenario,
    Wrong,
    drafts_allowed,
    drafts_if_forced,
    round_plan,
)
from draftproof.properties.values.script import RequestScript, RoundScript, forced
from draftproof.reference.choose import best
from draftproof.reference.decode import Greedy, RequestLimits, likeliest, verify
from draftproof.reference.drafts.base import ReferenceDraft, ReferenceProposal, propose
from draftproof.reference.protocols import ReferenceTarget, last_logits
from draftproof.reference.request_target import target_of

_NOTHING = ReferenceProposal((), ())
Chains = tuple[tuple[tuple[int, ...] | None, ...], ...]


class RequestSolver:
    """One request on its own; no other request can change its tokens."""

    def __init__(self, scenario: Scenario, request: Request, target: ReferenceTarget, draft: ReferenceDraft) -> None:
        """`target` is the model's, as it is for every request."""
        self._scenario, self._request, self._plain, self._draft = scenario, request, target, draft
        self._followed: TokenIds = ()
        self._end_with(tuple(sorted({*request.stops})), request.stop_sequences)

    def with_end(self) -> Self:
        """Let a greedy request end where its own text is to be cut, and return its solver."""
        request = self._request
        if request.sampling is None:
            if request.stop_at >= 0:
                stop = {*request.stops, self._truth.token(request.stop_at)}
                self._end_with(tuple(sorted(stop)), request.stop_sequences)
            self._end_with(self._limits.stop, self._sequences(self._truth.token))
        return self

    def _end_with(self, stop: TokenIds, sequences: tuple[TokenIds, ...]) -> None:
        """Let the request end after any of these, none of which comes before its minimum, and at its limits."""
        request, eos = self._request, self._scenario.eos
        own = self._scenario.eos_of(request)
        self._limits = RequestLimits.of(request, self._scenario.memory.max_len, stop, sequences, own)
        self._target = target_of(self._plain, request, {*stop, *eos})
        self._truth = Greedy(self._target, request.prompt)
        self._misled: dict[tuple[int, int], int] = {}

    def _sequences(self, token: Callable[[int], int]) -> tuple[TokenIds, ...]:
        """Return the sequences that end the request, some of them cut from the text that it would emit without them."""
        found = list(self._request.stop_sequences)
        for span in self._request.stop_sequences_at:
            before = self._request.prompt[len(self._request.prompt) + span.first :] if span.first < 0 else ()
            numbers = range(max(span.first, 0), span.last + 1)
            found.append((*before, *(token(number) for number in numbers)))
        return tuple(found)

    def solve(self, first: FirstDrafts) -> RequestScript:
        solved = self._solve(first)
        if self._request.sampling is None:
            return solved
        request = self._request
        if 0 <= request.stop_at < len(solved.tokens):
            self._end_with(tuple(sorted({*request.stops, solved.tokens[request.stop_at]})), self._limits.sequences)
            solved = self._solve(first)
        known = [span for span in request.stop_sequences_at if span.last < len(solved.tokens)]
        if known:
            self._request = msgspec.structs.replace(request, stop_sequences_at=tuple(known))
            self._end_with(self._limits.stop, self._sequences(solved.tokens.__getitem__))
            solved = self._solve(first)
        return solved

    def _solve(self, first: FirstDrafts) -> RequestScript:
        emitted: tuple[int, ...] = (self._first_token(),)
        rounds: list[RoundScript] = []
        while not self._limits.ended(emitted):
            plan, count = round_plan(self._request, len(rounds) + 1), self._allowed(len(rounds) + 1, len(emitted))
            rounds.append(self._round(len(rounds) + 1, emitted, count, self._asked(emitted, count, plan)))
            emitted += rounds[-1].emitted
        if self._request.sampling is None and (first == "with prompt" or self._is_open()):
            return self.chained(tuple(rounds))
        return self._script(tokens=emitted, rounds=tuple(rounds))

    def _first_token(self) -> int:
        """Return the token that the prompt's round emits."""
        if self._request.sampling is None:
            return self._truth.token(0)
        return verify(self._target, self._request.prompt, (), sampling=self._request.sampling).emitted[0]

    def _asked(self, emitted: TokenIds, count: int, plan: RoundPlan) -> TokenIds | None:
        """Return the drafts that a plan forces after these tokens; None if it forces none."""
        if self._request.sampling is None or plan.num_correct < 0:
            return self._chain(len(emitted), count, plan)
        tokens = self._request.prompt + emitted
        for place in range(count):
            right, wrong = likeliest(self._target, tokens, self._request.sampling, partial(self._kinds, plan.wrong))
            tokens += (wrong if place == plan.num_correct else right,)
        return tokens[len(tokens) - count :] if count else ()

    def _is_open(self) -> bool:
        """Whether a proposal that is not forced, or a tie of a real model, can move what is forced after it."""
        forces = {plan.num_correct >= 0 for plan in self._request.rounds if plan.num_drafts}
        return forces == {True, False} or (True in forces and isinstance(self._scenario.model, Checkpoint))

    def chained(self, rounds: tuple[RoundScript, ...]) -> RequestScript:
        """Return a script with the chain of `steps` drafts for every number of emitted tokens and every plan.

        A sampled request has no such chain, and its text is not known (S-SAMPLE-8).
        """
        if self._request.sampling is not None:
            return self._script(tokens=(self._first_token(),), rounds=rounds, chains=((None,),))
        emitted = self._truth.first(1)
        while not self._limits.ended(emitted):
            emitted = self._truth.first(len(emitted) + 1)
        chains: Chains = tuple(map(self._chains, range(1, len(emitted))))
        return self._script(tokens=emitted, rounds=rounds, chains=chains)

    def _chains(self, emitted: int) -> tuple[TokenIds | None, ...]:
        """Return the chain of each plan after `emitted` tokens; equal plans have equal ones."""
        plans = self._request.rounds
        chains = {plan: self._chain(emitted, self._longest(emitted, plan), plan) for plan in set(plans)}
        return tuple(chains[plan] for plan in plans)

    def _script(self, tokens: TokenIds, rounds: tuple[RoundScript, ...], chains: Chains = ()) -> RequestScript:
        limits = self._limits
        return RequestScript(tokens=tokens, stop=limits.stop, rounds=rounds, chains=chains, sequences=limits.sequences)

    def _longest(self, emitted: int, plan: RoundPlan) -> int:
        """Return the most drafts that a round of a plan can have after `emitted` tokens."""
        return self._scenario.steps

    def resolve(
        self,
        solved: RequestScript,
        drafts: Mapping[int, int],
        verified: Mapping[int, TokenIds],
        chosen: Mapping[int, int],
        resumed: Collection[int] = (),
        ended: int | None = None,
    ) -> RequestScript:
        """Return a solved script with its rounds as they ran.

        By round, `drafts` has how many drafts it was given, `verified` the tokens that it verified, and `chosen` how
        many it chose to verify; rounds `resumed` had none. `ended` is how many rounds ended before the abort, of a
        request that has one.
        """
        self._end_with(solved.stop, solved.sequences)
        self._followed = self._request.prompt + solved.followed
        if ended == 0:
            return msgspec.structs.replace(solved, tokens=(), rounds=(), aborted=True)
        first = self._first(verified.get(0, ()), chosen.get(0, 0))
        emitted, rounds = first.emitted if first else (solved.followed or solved.tokens)[:1], list[RoundScript]()
        while not (is_over := self._limits.ended(emitted)) and len(rounds) + 1 != ended:
            number = len(rounds) + 1
            allowed = self._allowed(number, len(emitted))
            count = chosen.get(number, max(0, min(drafts.get(number, allowed), allowed)))
            plan = round_plan(self._request, number)
            chain = forced(solved, number, len(emitted), drafts_if_forced(self._scenario, plan, count))
            round_ = self._round(number, emitted, count, chain, verified.get(number))
            rounds.append(msgspec.structs.replace(round_, resumed=number in resumed))
            emitted += rounds[-1].emitted
        return msgspec.structs.replace(solved, tokens=emitted, rounds=tuple(rounds), first=first, aborted=not is_over)

    def _first(self, verified: TokenIds, chosen: int) -> RoundScript | None:
        """Return round 0 of a subject that verified drafts with the prompt: the last prompt token is pending.

        How many drafts these are is up to the subject, within the limits (S-FOLLOW-6), or else is `chosen`.
        """
        request, limits = self._request, self._limits
        context = len(request.prompt) - 1
        allowed = drafts_allowed(
            self._scenario.steps, context=context, max_len=limits.max_len, budget_left=request.budget
        )
        count = chosen or min(len(verified), allowed)
        return self._round(0, (), count, None, verified) if verified and is_free(self._scenario.draft) else None

    def _allowed(self, number: int, emitted: int) -> int:
        """Return K of a round after `emitted` tokens, the last of them pending, if other requests took none of it."""
        return self._fitting(round_plan(self._request, number).num_drafts, emitted)

    def _fitting(self, wanted: int, emitted: int) -> int:
        """Return how many of the wanted drafts the limits allow after `emitted` tokens."""
        request, max_len = self._request, self._limits.max_len
        context, left = len(request.prompt) + emitted - 1, request.budget - emitted
        return drafts_allowed(wanted, context=context, max_len=max_len, budget_left=left)

    def _round(
        self, number: int, emitted: TokenIds, count: int, chain: TokenIds | None, reported: TokenIds | None = None
    ) -> RoundScript:
        tokens = self._request.prompt + emitted
        own = propose(self._draft, self._target, tokens, count) if chain is None else _NOTHING
        asked = own.tokens if chain is None else chain
        drafts = asked if reported is None or not self._can_run(tokens, reported, len(reported)) else reported
        verified = verify(self._target, tokens, drafts, self._followed, self._request.sampling, own.weights)
        return RoundScript(
            context=len(tokens) - 1,
            drafts=len(asked),
            forced=chain,
            correct_len=verified.correct_len,
            emitted=self._limits.cut(emitted, verified.emitted),
            verified=None if drafts == asked else drafts,
            depth=count,
        )

    def _can_run(self, tokens: TokenIds, drafts: TokenIds, depth: int) -> bool:
        """Whether the target has a row for each of these drafts: known tokens, within the longest sequence."""
        fits = len(tokens) + depth <= self._limits.max_len
        return fits and all(0 <= token < self._scenario.model.vocab for token in drafts)

    def _chain(self, emitted: int, count: int, plan: RoundPlan) -> tuple[int, ...] | None:
        """Return `count` drafts after `emitted` tokens; exactly those that the plan wants right are accepted.

        A draft behind the first wrong one matches the target, and must not be accepted. None: the plan forces nothing.
        A chain of fewer drafts is the beginning of a longer one.
        """
        right = plan.num_correct
        if right < 0:
            return None
        drafts = list(self._truth.first(emitted + count)[emitted:])
        if right < count:
            drafts[right] = self._wrong(emitted + right, plan.wrong)
        if right + 1 < count:
            drafts[right + 1] = self._after_wrong(emitted + right, drafts[right])
        return tuple(drafts)

    def _wrong(self, number: int, kind: Wrong) -> int:
        """Return a token that the target does not emit as this number (S-PLAN-3)."""
        return self._kinds(kind, self._truth.token(number))

    def _kinds(self, kind: Wrong, true: int) -> int:
        vocab = self._scenario.model.vocab
        after = (true + 1) % vocab
        lowest = min(self._limits.stop if self._request.sampling is None else self._request.stops, default=after)
        kinds = {"next": after, "zero": 0, "last": vocab - 1, "stop": lowest, "far": (true + vocab // 2) % vocab}
        return kinds[kind] if kinds[kind] != true else after

    def _after_wrong(self, number: int, wrong: int) -> int:
        """Return the target's choice after the true tokens before this number and a wrong one in its place."""
        if (number, wrong) not in self._misled:
            misled = (*self._request.prompt, *self._truth.first(number), wrong)
            self._misled[number, wrong] = best(last_logits(self._target, misled))
        return self._misled[number, wrong]
