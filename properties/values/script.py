"""Script: what the reference works out from a scenario before any subject runs."""

from __future__ import annotations

from draftproof.properties.values.base import Value


class RoundScript(Value, frozen=True, kw_only=True):
    """One decode round of a request: context length before it, its drafts, and what must come of them.

    `forced` replaces the proposal between propose and verify (None: the draft's own proposals are verified).
    """

    context: int
    drafts: int
    forced: tuple[int, ...] | None
    correct_len: int
    emitted: tuple[int, ...]


class RequestScript(Value, frozen=True, kw_only=True):
    """`tokens`: plain greedy decoding of the target after the prompt, cut where the request ends."""

    tokens: tuple[int, ...]
    stop: tuple[int, ...]
    rounds: tuple[RoundScript, ...]


class Script(Value, frozen=True, kw_only=True):
    """One entry for each request of the scenario, in its order."""

    requests: tuple[RequestScript, ...]
