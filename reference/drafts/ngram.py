"""N-gram drafts by definition: what followed the longest suffix of a request's own tokens that has occurred before.

t_0 .. t_n are its committed tokens and the pending one, and nothing else. Of the suffixes of max_n down to min_n tokens
the first that also ends at some e < n counts, though it may overlap with itself, and the last such e. `place` is e + 1.
Source: Saxena, "Prompt Lookup Decoding" (2023).
"""

from __future__ import annotations

from typing import NamedTuple

from draftproof.properties.values.drafts import Ngram as Spec
from draftproof.properties.values.observed import NgramMatch
from draftproof.properties.values.scenario import Checkpoint, ProbeModel
from draftproof.reference.drafts.base import Proposal, Said
from draftproof.reference.memo import Memo, Pass


def probe(spec: Spec, target: ProbeModel | Checkpoint, memo: Memo) -> Ngram:
    """The draft of any scenario: it has no model."""
    return Ngram(spec.max_n, spec.min_n)


class Match(NamedTuple):
    """Length of the suffix, and the index of the token that followed it before; (0, -1) if none occurred before."""

    length: int
    place: int


class Ngram:
    """A draft that looks its proposals up."""

    def __init__(self, max_n: int, min_n: int) -> None:
        self._max, self._min = max_n, min_n

    def config(self) -> tuple[int, int]:
        """See `Draft`."""
        return 0, 0

    def propose(self, tokens: tuple[int, ...], whole: Pass, count: int) -> Proposal:
        """See `Draft`. Fewer than `count` if fewer tokens followed."""
        match = self.match(tokens)
        found = tokens[match.place :][:count] if match.length else ()
        return Proposal(found, (Said("propose.match", NgramMatch(*match)),))

    def extend(self, tokens: tuple[int, ...], whole: Pass, first: int) -> tuple[Said, ...]:
        """See `Draft`."""
        return ()

    def match(self, tokens: tuple[int, ...]) -> Match:
        """Of tokens t_0 .. t_n."""
        for length in range(self._max, self._min - 1, -1):
            suffix = tokens[-length:]
            for place in range(len(tokens) - 1, length - 1, -1):
                if tokens[place - length : place] == suffix:
                    return Match(length, place)
        return Match(0, -1)
