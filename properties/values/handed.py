"""What an engine is given of a request: one with a flaw is none that it could serve (S-LIMIT-18)."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.values.grammar import Grammar
from draftproof.properties.values.scenario import Request, Scenario

_BROKEN = Grammar(pattern="(a")


def handed(scenario: Scenario, request: Request) -> Request:
    """Return a request as it is handed to an engine, with its flaw."""
    memory, prompt = scenario.memory, request.prompt
    if request.flaw == "length":
        length = min(memory.max_len, memory.pages * memory.page_size + 1)
        return replace(request, prompt=(prompt * length)[:length], images=(), prompt_logprobs=None)
    if request.flaw == "token":
        return replace(request, prompt=(*prompt[:-1], scenario.model.vocab))
    return replace(request, grammar=_BROKEN) if request.flaw == "grammar" else request
