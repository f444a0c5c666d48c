"""N-gram drafts: what followed the longest suffix of a request's own tokens that has occurred before.

Nothing is launched and nothing is taken of the target but its tokens. The index of a request grows by the tokens that a
round emits and is dropped with the request.
Sources: Saxena, "Prompt Lookup Decoding" (2023); docs/semantics/ngram.md, S-NGRAM-1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from draftproof.engine.drafts.base import Accepted, Draft, DraftContext, PromptChunks
from draftproof.engine.models.base import NgramSettings
from draftproof.engine.models.probe import ProbeParts
from draftproof.engine.runner import Outputs
from draftproof.engine.stages import DecodeRow, HostDrafts, PrefillRow


class Match(NamedTuple):
    """The length of the matched suffix, and the place of the token that followed the earlier occurrence that counts."""

    length: int = 0
    place: int = -1


class NgramIndex:
    """The tokens of one request, and the place of the token behind each of its n-grams: the first one, or the last."""

    def __init__(self, settings: NgramSettings, tokens: Sequence[int]) -> None:
        self._sizes = range(settings.max_n, settings.min_n - 1, -1)
        self._earliest = settings.match == "earliest"
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self.advance(tokens)

    def advance(self, tokens: Sequence[int]) -> None:
        """Append tokens of the request."""
        known = self._tokens
        note = self._places.setdefault if self._earliest else self._places.__setitem__
        for place, token in enumerate(tokens, start=len(known)):
            for size in self._sizes:
                if size <= place:
                    note(tuple(known[-size:]), place)
            known.append(token)

    def _longest(self) -> tuple[int, int]:
        """Return the length of the longest suffix that has occurred before, and the place behind it; 0 and -1 if none.

        A suffix is noted when the next token comes, so that what is found is never the suffix itself.
        """
        suffix = tuple(self._tokens[-self._sizes.start :])
        for size in self._sizes:
            place = self._places.get(suffix[-size:])
            if place:
                return size, place
        return 0, -1

    def match(self) -> Match:
        """Return the longest suffix that has occurred before, and where it did."""
        return Match(*self._longest())

    def propose(self, most: int) -> list[int]:
        """Return at most `most` tokens after the match, none if there is none."""
        size, place = self._longest()
        return self._tokens[place : place + most] if size else []


class NgramDraft(Draft[NgramSettings]):
    """A `Draft`."""

    looks_up = True
    index: type[NgramIndex] = NgramIndex

    def __init__(self, model: NgramSettings, context: DraftContext) -> None:
        super().__init__(model, context)
        self._indices: dict[int, NgramIndex] = {}
        self._ran: Accepted | None = None

    def match(self, request: int) -> Match:
        """Return the match that a request's next round starts from."""
        return self._indices[request].match()

    def origin(self, request: int) -> Mapping[str, Any]:
        """Return the match."""
        return {"match": self.match(request)._asdict()}

    def look_up(self, batch: tuple[DecodeRow, ...]) -> HostDrafts:
        """Return as many tokens as follow each row's match, within its num_drafts."""
        self._catch_up()
        return HostDrafts([self._indices[row.request.id].propose(row.num_drafts) for row in batch])

    def save_next_round(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """Add the tokens that were emitted, and no others; those that the host does not know yet, when it looks up."""
        self._ran = accepted
        if accepted.tokens or not accepted.requests:
            self._catch_up()

    def _catch_up(self) -> None:
        """Add the tokens of the last rounds, of requests that have not been released since."""
        ran, self._ran = self._ran, None
        if ran is None:
            return
        for request, tokens in zip(ran.requests, ran.tokens or _emitted(ran), strict=True):
            if request in self._indices:
                self._indices[request].advance(tokens)

    def prefill(self, chunks: PromptChunks) -> None:
        """Add the prompt, once it is complete, and the token after it."""
        for row, token in zip(chunks.rows, chunks.next_tokens, strict=True):
            if row.tail < 0:
                self._indices[row.request.id] = self.index(self.model, (*row.text, token))

    def receive(self, row: PrefillRow, rows: Mapping[str, Tensor]) -> None:
        """Begin with the prompt and the token after it: nothing else is transferred."""
        self._indices[row.request.id] = self.index(self.model, row.text)

    def tracked_requests(self) -> tuple[int, ...]:
        """Return those with an index."""
        return tuple(sorted(self._indices))

    def release(self, request: int) -> None:
        """Drop the request's index, if it has one: it does not before its prompt has run."""
        self._catch_up()
        self._indices.pop(request, None)


def _emitted(ran: Accepted) -> list[list[int]]:
    """Return the tokens that rounds emitted, as the device knows them."""
    ends = zip(ran.target_tokens.tolist(), ran.correct_len.tolist(), strict=True)
    return [row[: end + 1] for row, end in ends]


def probe(parts: ProbeParts) -> NgramSettings:
    """Return the settings; there is no model."""
    return NgramSettings(parts.own.max_n, parts.own.min_n, parts.own.match)


ALGORITHM = NgramDraft
