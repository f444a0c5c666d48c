"""N-gram drafts by definition (S-NGRAM-1): what followed the longest suffix that occurred before.

t_0 .. t_n are its committed tokens and the pending one, and nothing else. Of the suffixes of max_n down to min_n tokens
the first that also ends at some e < n counts, though it may overlap with itself, and the last such e. `place` is e + 1.
Source: Saxena, "Prompt Lookup Decoding" (2023).
"""

from __future__ import annotations

from typing import NamedTuple

from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.observed import NgramMatch
from draftproof.properties.values.scenario import Checkpoint, ProbeModel
from draftproof.reference.drafts.base import ReferenceProposal, Said
from draftproof.reference.memo import Memo, Pass


def probe(spec: Ngram, target: ProbeModel | Checkpoint, memo: Memo) -> ReferenceNgram:
    """The draft of any scenario: it has no model."""
    return ReferenceNgram(spec.max_n, spec.min_n)


class ReferenceMatch(NamedTuple):
    """Length of the suffix, and the index of the token that followed it before; (0, -1) if none occurred before."""

    length: int
    place: int


class ReferenceNgram:
    """A draft that looks its proposals up."""

    def __init__(self, max_n: int, min_n: int) -> None:
        self._max, self._min = max_n, min_n

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

    def match(self, tokens: tuple[int, ...]) -> ReferenceMatch:
        """Of tokens t_0 .. t_n."""
        for length in range(self._max, self._min - 1, -1):
            suffix = tokens[-length:]
            for place in range(len(tokens) - 1, length - 1, -1):
                if tokens[place - length : place] == suffix:
                    return ReferenceMatch(length, place)
        return ReferenceMatch(0, -1)
