"""The requests of one run as vLLM serves them: what each has emitted, committed and proposed, round by round."""

from __future__ import annotations

from dataclasses import dataclass, field

from draftproof.properties.values.scenario import Request, Scenario, drafts_allowed, round_plan
from draftproof.properties.values.script import RequestScript, Script, forced


@dataclass
class Served:
    """One request. `round` is the last that ended (-1: prefill goes on), `context` what is committed.

    `proposed` are the drafts that vLLM made for the next round, as many as that may have, `verifies` those that it
    gets: the same, or others that the script forces.
    """

    index: int
    request: Request
    script: RequestScript
    round: int = -1
    context: int = 0
    chunks: int = 0
    emitted: list[int] = field(default_factory=list)
    proposed: tuple[int, ...] = ()
    verifies: tuple[int, ...] = ()
    done: bool = False

    @property
    def name(self) -> str:
        """What vLLM calls it."""
        return str(self.index)


class Serving:
    """All requests of a scenario, and the drafts that their next rounds verify."""

    def __init__(self, scenario: Scenario, script: Script) -> None:
        self._scenario = scenario
        pairs = zip(scenario.requests, script.requests, strict=True)
        self.requests = [Served(index, request, steered) for index, (request, steered) in enumerate(pairs)]
        self.by_name = {one.name: one for one in self.requests}

    def budget(self, one: Served) -> int:
        """Return how many tokens a request may emit, max_len included (S-LIMIT-2, S-LIMIT-3)."""
        return min(one.request.budget, self._scenario.memory.max_len - len(one.request.prompt))

    def next_drafts(self, one: Served, proposed: tuple[int, ...]) -> tuple[int, ...]:
        """Return what the next round of a request verifies: what the script forces, or else the proposals."""
        round_ = one.round + 1
        allowed = drafts_allowed(
            round_plan(one.request, round_).num_drafts,
            context=one.context,
            max_len=self._scenario.memory.max_len,
            budget_left=one.request.budget - len(one.emitted),
        )
        wanted = forced(one.script, round_, len(one.emitted), min(allowed, self._scenario.steps))
        one.proposed = proposed[:allowed]
        return one.proposed if wanted is None else wanted
