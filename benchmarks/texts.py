"""What requests emitted, two ways: the same tokens, or others only where the model hardly prefers either.

Launches of equal shapes give equal bits. Those of other shapes round otherwise, and of random weights the best two
logits are often closer than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from decode_model import DecodeLoop, Setup
from server import Text, Timed

from draftproof.engine.models.llama import Llama

# Of the largest logit: bf16 logits of sixteen layers differ by a few per cent of their own, smaller, size.
NEAR = 0.1


def texts(steps: Iterable[Timed]) -> list[Text]:
    """Return what each request gained in these steps, in the order in which requests were added."""
    gained: dict[int, Text] = {}
    for commit in (commit for step in steps for commit in step.commits):
        gained[commit.request] = (*gained.get(commit.request, ()), *commit.emitted)
    return [gained[request] for request in sorted(gained)]


def check_same(one: Sequence[Text], other: Sequence[Text]) -> None:
    """Raise RuntimeError unless the texts are the same."""
    for number, (own, its) in enumerate(zip(one, other, strict=True)):
        place = _first_difference(own, its)
        if place is not None:
            raise RuntimeError(_differs(number, own, its, place))


def check_near(given: Setup, dense: Llama, prompts: Sequence[Text], one: Sequence[Text], other: Sequence[Text]) -> int:
    """Return how many texts differ. Raise RuntimeError where a first difference is not between near logits."""
    pairs = enumerate(zip(one, other, strict=True))
    found = [(number, _first_difference(*pair)) for number, pair in pairs]
    differing = [(number, place) for number, place in found if place is not None]
    if differing:
        loop = DecodeLoop(dense, replace(given, prompt=max(map(len, prompts)), new=max(map(len, one))), 1)
    for number, place in differing:
        own, its = one[number], other[number]
        if place >= min(len(own), len(its)):
            raise RuntimeError(_differs(number, own, its, place))
        loop.prefill(torch.tensor([(*prompts[number], *own[:place])], device=given.device))
        logits = loop.logits[0].float()
        if logits[[own[place], its[place]]].min() < logits.max() - NEAR * logits.abs().max():
            raise RuntimeError(_differs(number, own, its, place))
    return len(differing)


def _first_difference(one: Text, other: Text) -> int | None:
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (own, its) in pairs if own != its), min(len(one), len(other)))


def _differs(number: int, one: Text, other: Text, place: int) -> str:
    own, its = (text[place] if place < len(text) else "nothing" for text in (one, other))
    return f"token {place} of request {number} is {own} one way and {its} the other; their speed means nothing"
