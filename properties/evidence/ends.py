"""What ended a request, and which stop tokens and sequences in its text did not (docs/semantics/limits.md, S-LIMIT)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Request, Scenario
from draftproof.properties.values.script import RequestScript

EndedBy = Literal["id", "eos", "sequence", "budget", "max_len"]
ENDS: tuple[EndedBy, ...] = get_args(EndedBy)
STOPS: frozenset[EndedBy] = frozenset({"id", "eos", "sequence"})
"""Those that a text ends by, and not by its length."""


def end_of(scenario: Scenario, request: Request, script: RequestScript, text: TokenIds) -> EndedBy | None:
    """Return what ends a request that has emitted a text at its last token; None if it goes on."""
    if text[-1] in script.stop:
        return "id"
    if text[-1] in scenario.eos_of(request):
        return "eos"
    if len(text) > request.min_tokens and sequence_at_end(script, text):
        return "sequence"
    if len(text) >= request.budget:
        return "budget"
    return "max_len" if len(request.prompt) + len(text) >= scenario.memory.max_len else None


def sequence_at_end(script: RequestScript, text: TokenIds) -> TokenIds:
    """Return the shortest stop sequence that a text ends with; none is ()."""
    found = (one for one in script.sequences if len(one) <= len(text) and text[len(text) - len(one) :] == one)
    return min(found, key=len, default=())


def ended_by(scenario: Scenario, index: int, script: RequestScript) -> EndedBy | None:
    """Return what ended request number `index`; None if it was aborted."""
    if script.aborted or not script.tokens:
        return None
    return end_of(scenario, scenario.requests[index], script, script.tokens)


def count_ends(scenario: Scenario, index: int, script: RequestScript) -> Iterator[str]:
    """Yield the facts of the end of request number `index`, by their names."""
    request, text, by = scenario.requests[index], script.tokens, ended_by(scenario, index, script)
    last = script.rounds[-1] if script.rounds else None
    is_cut = last is not None and len(last.emitted) <= last.correct_len
    if by == "eos":
        yield "ends_by_eos"
    if request.ignore_eos and any(token in scenario.eos and token not in script.stop for token in text):
        yield "eos_ignored"
    if by == "sequence":
        yield "ends_by_sequence"
        if last is None or len(sequence_at_end(script, text)) > len(last.emitted):
            yield from ("sequences_across_rounds",) if last else ()
        if is_cut:
            yield "sequences_in_accepted_run"
    early = min(request.min_tokens, len(text) - 1)
    if any(sequence_at_end(script, text[:count]) for count in range(1, early + 1)):
        yield "sequences_before_minimum"
    if _from_prompt(request, script):
        yield "sequences_from_prompt"
    if by in STOPS and is_cut and last and len(text) - len(last.emitted) + last.correct_len + 1 >= request.budget:
        yield "stops_before_budget_in_run"
    if by in ("id", "eos") and request.min_tokens and len(text) == request.min_tokens + 1:
        yield "ends_as_minimum_is_reached"


def _from_prompt(request: Request, script: RequestScript) -> bool:
    """Return whether prompt and text have a sequence that begins in the prompt, after the minimum, and went on."""
    for count in range(request.min_tokens + 1, len(script.tokens)):
        whole = request.prompt + script.tokens[:count]
        if any(len(one) > count and whole[len(whole) - len(one) :] == one for one in script.sequences):
            return True
    return False
