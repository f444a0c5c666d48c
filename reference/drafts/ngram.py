"""N-gram drafts by definition (S-NGRAM-1): what followed the longest suffix that occurred before.

t_0 .. t_n are its committed tokens and the pending one, and nothing else. Of the suffixes of max_n down to min_n tokens
the first that also ends at some e < n counts, though it may overlap with itself: the earliest or latest such e, as
`match` says. `place` is e + 1.
Source: Saxena, "Prompt Lookup Decoding" (2023), and transformers' PromptLookupCandidateGenerator, for the earliest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.observed import NgramMatch
from draftproof.properties.values.scenario import Checkpoint, ProbeModel
from draftproof.properties.weights.probe import Weights
from draftproof.reference.drafts.base import ReferenceProposal, Said
from draftproof.reference.memo import Memo, Pass


def probe(spec: Ngram, target: ProbeModel | Checkpoint, memo: Memo, weights: Weights | None = None) -> ReferenceNgram:
    """Return the draft of any scenario: it has no model."""
    return ReferenceNgram(spec)


class ReferenceMatch(NamedTuple):
    """Length of the suffix, and the index of the token that followed it before; (0, -1) if none occurred before."""

    length: int
    place: int


class ReferenceNgram:
    """A draft that looks its proposals up."""

    def __init__(self, spec: Ngram) -> None:
        self.spec = spec

    def config(self) -> tuple[int, int]:
        """See `ReferenceDraft`."""
        return 0, 0

    def propose(self, tokens: tuple[int, ...], whole: Pass, count: int) -> ReferenceProposal:
        """See `ReferenceDraft`. Fewer than `count` if fewer tokens followed."""
        match = self.match(tokens)
        found = tokens[match.place :][:count] if match.length else ()
        return ReferenceProposal(found, (Said("propose.match", NgramMatch(*match)),))

    def extend(self, tokens: tuple[int, ...], whole: Pass, first: int) -> tuple[Said, ...]:
        """See `ReferenceDraft`."""
        return ()

    def carried_states(self, tokens: tuple[int, ...], whole: Pass) -> tuple[tuple[int, np.ndarray], ...]:
        """See `ReferenceDraft`: none."""
        return ()

    def match(self, tokens: tuple[int, ...]) -> ReferenceMatch:
        """Of tokens t_0 .. t_n."""
        spec = self.spec
        for length in range(spec.max_n, spec.min_n - 1, -1):
            suffix = tokens[-length:]
            places = [place for place in range(length, len(tokens)) if tokens[place - length : place] == suffix]
            if places:
                return ReferenceMatch(length, min(places) if spec.match == "earliest" else max(places))
        return ReferenceMatch(0, -1)
