"""From a scenario to its script: true tokens, stop tokens, the drafts of every round and what must come of them."""

from __future__ import annotations

from draftproof.properties.values.scenario import Request, Scenario, wish
from draftproof.properties.values.script import RequestScript, RoundScript, Script
from draftproof.reference.decode import Greedy, Limits, round_drafts, verify
from draftproof.reference.eagle import draft
from draftproof.reference.memo import Memo
from draftproof.reference.model import Head, Target, build


def solve(scenario: Scenario, memo: Memo | None = None) -> Script:
    """A function of the scenario only: the same scenario always gives the same script."""
    target, head = build(scenario, memo or Memo())
    solved = (_Request(scenario, request, target, head).solve() for request in scenario.requests)
    return Script(requests=tuple(solved))


class _Request:
    """One request on its own; no other request can change its tokens."""

    def __init__(self, scenario: Scenario, request: Request, target: Target, head: Head) -> None:
        self._scenario, self._request, self._target, self._head = scenario, request, target, head
        self._truth = Greedy(target, request.prompt)
        stop = (self._truth.token(request.stop_at),) if request.stop_at >= 0 else ()
        self._limits = Limits.of(request, scenario.memory.max_len, stop)

    def solve(self) -> RequestScript:
        emitted: tuple[int, ...] = (self._truth.token(0),)
        rounds: list[RoundScript] = []
        while not self._limits.ended(emitted):
            rounds.append(self._round(len(rounds) + 1, emitted))
            emitted += rounds[-1].emitted
        return RequestScript(tokens=emitted, stop=self._limits.stop, rounds=tuple(rounds))

    def _round(self, number: int, emitted: tuple[int, ...]) -> RoundScript:
        wished = wish(self._request, number)
        count = round_drafts(self._request, wished.drafts, len(emitted), self._limits.max_len)
        tokens = self._request.prompt + emitted
        forced = None if wished.accept < 0 else self._forced(emitted, count, min(wished.accept, count))
        drafts = self._own(tokens, count) if forced is None else forced
        verified = verify(self._target, tokens, drafts)
        return RoundScript(
            context=len(tokens) - 1,
            drafts=count,
            forced=forced,
            correct_len=verified.correct_len,
            emitted=self._limits.cut(emitted, verified.emitted),
        )

    def _own(self, tokens: tuple[int, ...], count: int) -> tuple[int, ...]:
        return draft(self._head, tokens, self._target.forward(tokens[:-1]).hidden, count).proposals

    def _forced(self, emitted: tuple[int, ...], count: int, right: int) -> tuple[int, ...]:
        """`count` drafts of which the first `right` are accepted and no more, though one behind them matches."""
        drafts = [self._truth.token(len(emitted) + place) for place in range(count)]
        if right < count:
            drafts[right] = (drafts[right] + 1) % self._scenario.model.vocab
        if right + 1 < count:
            wrong = (*self._request.prompt, *emitted, *drafts[: right + 1])
            drafts[right + 1] = verify(self._target, wrong, ()).emitted[0]
        return tuple(drafts)
