"""Read how the tokens of a round were chosen: drawn or not, from which weights, under penalties and grammars."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Request


class Choices(NamedTuple):
    """Values of coverpoints of one round, None where the point does not apply."""

    choice: str
    drawn: str | None
    filter: str | None
    temperature: str | None
    penalty: str | None
    grammar: str | None
    logprobs: str | None
    minimum: str | None


def read_choices(request: Request, told: AbstractSet[str], *, drafts: bool, own: bool, beside: bool) -> Choices:
    """Return how a round chose; `beside` says whether rows of its batch choose in the other way, `own` whose drafts."""
    sampling = request.sampling
    is_drawn = sampling is not None and own and sampling.draft == "sampled"
    return Choices(
        choice="sampled" if sampling else "beside sampled" if beside else "greedy",
        drawn=None if sampling is None or not drafts else "yes" if is_drawn else "no",
        filter=_filter(sampling) if sampling else None,
        temperature=_temperature(sampling.temperature) if sampling else None,
        penalty=_penalty(told) if request.penalties else None,
        grammar=_grammar(told) if request.grammar else None,
        logprobs=None if request.logprobs is None else "with others" if request.logprobs else "of the token",
        minimum=_minimum(told) if request.min_tokens else None,
    )


def _filter(sampling: Sampling) -> str:
    if sampling.top_k == 1:
        return "top-k 1"
    used = {"top-k": sampling.top_k is not None, "top-p": sampling.top_p < 1, "min-p": sampling.min_p > 0}
    names = [name for name, is_used in used.items() if is_used]
    return "several" if len(names) > 1 else "".join(names) or "none"


def _temperature(temperature: float) -> str:
    return "1" if temperature == 1 else "below 1" if temperature < 1 else "above 1"


def _penalty(told: AbstractSet[str]) -> str:
    if "penalty_by_draft_in_window" in told:
        return "other by draft"
    return "other choice" if "penalty_changed_choice" in told else "same choice"


def _minimum(told: AbstractSet[str]) -> str:
    """Return the most that a minimum of tokens did: rows of one verify are before it and behind, a choice is other."""
    effects = {
        "minimum_of_first_row": "other by row",
        "minimum_in_window": "in window",
        "minimum_changed_choice": "other choice",
    }
    return next((effect for name, effect in effects.items() if name in told), "same choice")


def _grammar(told: AbstractSet[str]) -> str:
    """Return the most that a grammar did: it left one token, be it the end, it ended, it changed a choice."""
    effects = {"grammar_forces_token": "one token", "grammar_ends": "ends", "grammar_changed_choice": "other choice"}
    return next((effect for name, effect in effects.items() if name in told), "same choice")
