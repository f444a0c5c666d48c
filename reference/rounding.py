"""How far rounding carries in a real model: the run of a script once more, in float32 (S-TRACE-10)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import msgspec

from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.script import Finish, Script
from draftproof.properties.values.trace import Key, Trace
from draftproof.reference.build import treed
from draftproof.reference.memo import Memo
from draftproof.reference.protocols import ReferenceTarget
from draftproof.reference.run import Models, trace
from draftproof.reference.stored import Following

_AGAIN = 4


def with_rounded(
    scenario: Scenario, script: Script, exact: Trace, finish: Finish, following: Following | None = None
) -> Trace:
    """Return the reference's trace of a scenario with its run in float32, if the model is a real one.

    The run in float32 verifies what `exact` verified, and emits its text. Where a draft chooses another token, what
    follows is unknown. On demand it is run again, from embeddings with each element moved by a rounding error.
    """
    model = scenario.model
    if not isinstance(model, Checkpoint):
        return exact
    import torch  # probes need none

    from draftproof.reference.checkpoints import load

    given = _given(script, exact)

    def rounded(nudge: int) -> Trace:
        memo = Memo(following=following)
        target, draft = load(model, scenario.draft, memo, torch.float32, nudge)
        return trace(scenario, given, Models(target, treed(draft, scenario), scenario.states, finish, memo))

    again = cache(lambda: tuple(map(rounded, range(1, 1 + _AGAIN))))
    return replace(exact, rounded=rounded(0), rounded_again=again)


def exact_and_rounded(model: Checkpoint, memo: Memo | None = None) -> tuple[ReferenceTarget, ReferenceTarget]:
    """Return the target of a checkpoint in float64, and the one in float32; both follow what `memo` does."""
    import torch  # probes need none

    from draftproof.reference.checkpoints import load

    memos = (memo or Memo(), Memo(following=memo.following if memo else None))
    dtypes = (torch.float64, torch.float32)
    exact, rounded = (load(model, Ngram(max_n=1), *one)[0] for one in zip(memos, dtypes, strict=True))
    return exact, rounded


def _given(script: Script, exact: Trace) -> Script:
    """Return the script with drafts and text given: rounding may propose others, and choose another token."""
    drafts = exact.typed("round.drafts", TokenIds)
    requests = []
    for index, request in enumerate(script.requests):
        rounds = tuple(
            msgspec.structs.replace(round_, verified=drafts[Key(index, number)])
            for number, round_ in enumerate(request.rounds, start=1)
        )
        first = request.first and msgspec.structs.replace(request.first, verified=drafts[Key(index, 0)])
        requests.append(msgspec.structs.replace(request, rounds=rounds, first=first, followed=exact.texts[index]))
    return msgspec.structs.replace(script, requests=tuple(requests))
