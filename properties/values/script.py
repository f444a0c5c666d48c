"""Script: what the reference works out from a scenario before any subject runs."""

from __future__ import annotations

from typing import Literal

import msgspec

from draftproof.properties.lib.base import Value
from draftproof.properties.values.scenario import Scenario

Finish = Literal["cut", "uncut", "token"]
"""What the round that ends a request commits: the run cut at the end, all of it (S-LIMIT-11), or what a loop of tokens
has come to (S-LIMIT-19)."""


class RoundScript(Value, frozen=True, kw_only=True):
    """One decode round of a request: context length before it, the number of its drafts, and what must come of them.

    An n-gram draft that finds fewer than it may propose makes `drafts` fewer, unless they are forced. `forced` replaces
    the proposal between propose and verify (None: the draft's own proposals are verified). `verified` are the drafts
    that a subject verified where these were others (S-FOLLOW-1); `correct_len` and `emitted` are what comes of them.
    `parents` are the parent rows of the drafts that were verified, where these are a tree. `depth` is how many drafts
    the round might have, of a tree how many levels. A round that is `resumed` after a preemption runs the whole text
    again and has no drafts (S-SCHED-6).
    """

    context: int
    drafts: int
    forced: tuple[int, ...] | None
    correct_len: int
    emitted: tuple[int, ...]
    verified: tuple[int, ...] | None = None
    parents: tuple[int, ...] = ()
    depth: int = 0
    resumed: bool = False

    @property
    def num_verified(self) -> int:
        """Return how many drafts were verified: `drafts`, unless a subject verified others."""
        return self.drafts if self.verified is None else len(self.verified)


class RequestScript(Value, frozen=True, kw_only=True):
    """What the reference knows of one request before a subject runs: its text and its forced drafts.

    `tokens` is the target's plain greedy decoding after the prompt, cut where the request ends; for a sampled request
    it is what its rounds draw.

    `chains` has the drafts to force at every point where a round may begin, for requests whose rounds depend on what
    the subject does: chains[i][j] is for a request that has emitted i + 1 tokens and whose plan is number j; a round of
    K drafts takes the first K (None: nothing is forced). In a dynamic scenario the rounds are not known before a
    subject ran, and `rounds` is empty; in any other scenario `rounds` are those of a correct subject. `first` is round
    0 of a subject that verifies drafts with the prompt (S-FOLLOW-6), where it did. `followed` is the correct beginning
    of a subject's text that went another way at a tie (S-FOLLOW-8): `tokens` then begin with it. A request that was
    `aborted` (S-SCHED-9) has the rounds that ended before, and no token if its prompt had not been run by then. `stop`
    are the ids of its own that end it, `sequences` the token sequences after which it ends.
    """

    tokens: tuple[int, ...]
    stop: tuple[int, ...]
    rounds: tuple[RoundScript, ...]
    chains: tuple[tuple[tuple[int, ...] | None, ...], ...] = ()
    first: RoundScript | None = None
    followed: tuple[int, ...] = ()
    aborted: bool = False
    sequences: tuple[tuple[int, ...], ...] = ()

    @property
    def ended(self) -> int:
        """Return how many rounds ended, the prompt's included."""
        return 1 + len(self.rounds) if self.tokens else 0

    def context(self, number: int, prompt: int) -> int:
        """Return n of round 1, 2, .. of a request with so long a prompt, or of the one in which it is aborted."""
        return self.rounds[number - 1].context if number <= len(self.rounds) else prompt + len(self.tokens) - 1


class Script(Value, frozen=True, kw_only=True):
    """One entry for each request of the scenario, in its order."""

    requests: tuple[RequestScript, ...]


def script_of_rank(script: Script, scenario: Scenario, rank: int) -> Script:
    """Return the script of the requests that one rank serves: tensor-parallel ranks serve all."""
    if scenario.ranks.tensor > 1:
        return script
    both = zip(scenario.requests, script.requests, strict=True)
    return Script(requests=tuple(of_request for request, of_request in both if request.rank == rank))


def forced(script: RequestScript, number: int, emitted: int, drafts: int) -> tuple[int, ...] | None:
    """Return the drafts that round `number` (1, 2, ..) is forced to verify, after `emitted` tokens of its request.

    `drafts` is how many the round verifies if it is forced. None are where the script had room for fewer, as the text
    went another way: that many are what the round has to verify (S-LIMIT-4).
    """
    if script.chains:
        chains = script.chains[emitted - 1] if 0 < emitted <= len(script.chains) else (None,)
        chain = chains[(number - 1) % len(chains)]
    else:
        chain = script.rounds[number - 1].forced if 0 < number <= len(script.rounds) else None
    return None if chain is None or len(chain) < drafts else chain[:drafts]


def steering(script: Script) -> Script:
    """Return what a subject is given of a script: what ends a text and forced drafts, nothing that it has to observe.

    `tokens` and `emitted` are empty, `context`, `drafts` and `correct_len` -1.
    """
    return Script(requests=tuple(map(_steering, script.requests)))


def _steering(script: RequestScript) -> RequestScript:
    rounds = (
        RoundScript(context=-1, drafts=-1, forced=one.forced, correct_len=-1, emitted=()) for one in script.rounds
    )
    return msgspec.structs.replace(script, tokens=(), rounds=tuple(rounds))
