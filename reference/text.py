"""The text contract (docs/semantics.md, S-TEXT): how far each token that a subject emitted is from the target's best.

One pass over the subject's own text; nothing is decoded, so that it goes on behind a token that rounding made another.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import TokenGap
from draftproof.reference.memo import Memo, Pass

TokenGaps = Mapping[int, tuple[TokenGap, ...]]


def token_gaps(scenario: Scenario, script: Script, texts: Mapping[int, tuple[int, ...]]) -> TokenGaps:
    """Return the gaps, by request, of every text of a real model that is not the script's.

    `texts` are the tokens that each request emitted. Ids outside of the vocabulary, and what follows them, have none.
    """
    if not isinstance(scenario.model, Checkpoint):
        return {}
    others = {at: text for at, text in texts.items() if text != script.requests[at].tokens and text}
    if not others:
        return {}
    import torch  # probes need none

    from draftproof.reference.checkpoints import load

    exact, rounded = (
        load(scenario.model, Ngram(max_n=1), Memo(), dtype)[0] for dtype in (torch.float64, torch.float32)
    )
    gaps = {}
    for at, text in others.items():
        known = _known(text, scenario.model.vocab)
        tokens = (*scenario.requests[at].prompt, *known)
        first = len(tokens) - len(known)
        if known:
            gaps[at] = _gaps(exact.forward(tokens[:-1]), rounded.forward(tokens[:-1]), known, first)
    return gaps


def _known(text: tuple[int, ...], vocab: int) -> tuple[int, ...]:
    """Return the text up to the first id that is none of the vocabulary."""
    beyond = next((place for place, token in enumerate(text) if not 0 <= token < vocab), len(text))
    return text[:beyond]


def _gaps(exact: Pass, rounded: Pass, text: tuple[int, ...], first: int) -> tuple[TokenGap, ...]:
    """Return a gap a token; `first` is the position of the first of them, whose logits are a row before it."""
    below, other = (_below_best(one, text, first) for one in (exact, rounded))
    closest = min(exact.gap, rounded.gap)
    return tuple(TokenGap(float(a), float(abs(a - b)), closest) for a, b in zip(below, other, strict=True))


def _below_best(whole: Pass, text: tuple[int, ...], first: int) -> np.ndarray:
    """Return [T]: by how much each token's logit is below the highest of its row."""
    logits = whole.logits[first - 1 : first - 1 + len(text)]
    return logits.max(axis=1) - logits[np.arange(len(text)), list(text)]
