"""Which mistake explains what was served: each is tried by the oracle, and those that reproduce it are told apart."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from draftproof.tracer.mistakes import every
from draftproof.tracer.oracle import BitRows
from draftproof.tracer.program import BYTES, Program
from draftproof.tracer.sessions import Asked, Session, TracerAnswer
from draftproof.tracer.simulated import (
    RIGHT,
    Drafting,
    EngineMistake,
    Neighbour,
    agrees,
    expected,
    made,
    neighbours_of,
    simulated,
)

_MOST, _LOOKED_AT, _TOLD_APART = 16, 40, 40
"""Wrong requests, the shortest first, with which mistakes are tried; sessions that are looked at for one in which they
differ, and that are served at most."""
_LEAD = 3
"""By how many requests one must lead: what an engine finds where it has written nothing is known to nobody."""


class JudgedRequest(NamedTuple):
    """A request, what came of it, and its neighbours."""

    asked: Asked
    served: TracerAnswer
    neighbours: Sequence[Neighbour] = ()
    is_wrong: bool = True


class Reproduction(NamedTuple):
    """A mistake that reproduces some of what is wrong.

    `wrong` and `right` are the requests that it reproduces, of `of_wrong` and `of_right`; `bits` says how unlikely
    it is that any of the mistakes that were tried does so by chance, as 2 ** -bits.
    """

    name: str
    family: str
    wrong: int
    of_wrong: int
    right: int
    of_right: int
    bits: float


@dataclass
class Explainer:
    """The mistakes of an endpoint that reproduce some wrong request exactly, and the requests that each reproduces.

    `serve` asks the endpoint again.
    """

    program: Program
    drafting: Drafting
    serve: Callable[[Session], Sequence[JudgedRequest]]
    until: float
    evidence: list[JudgedRequest] = field(default_factory=list)
    found: dict[str, tuple[EngineMistake, list[JudgedRequest]]] = field(default_factory=dict)
    tried: int = 0

    def look(self, evidence: Sequence[JudgedRequest]) -> None:
        """Try every mistake with the wrong requests, as far as the time suffices."""
        wrong = sorted((one for one in evidence if one.is_wrong), key=lambda one: len(one.asked.prompt))[:_MOST]
        for one in wrong:
            self.add(one)
            # What explains a request is not looked for again; what explains none of the others is.
            is_explained = any(known and known[-1] is one for _, known in self.found.values())
            for mistake in () if is_explained else self._possible(one):
                if time.monotonic() > self.until:
                    break
                self.tried += 1
                if mistake.name not in self.found and self.reproduces(one, mistake):
                    known = [other for other in self.evidence if other is one or self.reproduces(other, mistake)]
                    self.found[mistake.name] = (mistake, known)
        for one in [one for one in evidence if not one.is_wrong][:_MOST]:
            self.add(one)

    def add(self, one: JudgedRequest) -> None:
        """Hold what was found to one more request."""
        self.evidence.append(one)
        for mistake, known in self.found.values():
            if self.reproduces(one, mistake):
                known.append(one)

    def tell_apart(self, drawn: Iterable[Session]) -> None:
        """Serve sessions in which the best explanations say different things, until one leads or none is drawn."""
        left = iter(drawn)
        for _ in range(_TOLD_APART):
            scores = {name: self._score(name) for name in self.found}
            best = [self.found[name][0] for name, score in scores.items() if score > max(scores.values()) - _LEAD]
            if len(best) < 2 or time.monotonic() > self.until:
                return
            telling = next((one for one in islice(left, _LOOKED_AT) if self._differ(one, best)), None)
            if telling is None:
                return
            for one in self.serve(telling):
                self.add(one)

    def ranked(self) -> list[Reproduction]:
        """Return what reproduces how much, the best first."""
        of_wrong = sum(one.is_wrong for one in self.evidence)
        told = {id(one): surprise(self.program, one, self.drafting) for one in self.evidence if one.is_wrong}
        ranked = []
        for mistake, known in (self.found[name] for name in sorted(self.found, key=self._score, reverse=True)):
            wrong = [one for one in known if one.is_wrong]
            bits = max(sum(told[id(one)] for one in wrong) - math.log2(self.tried), 0.0)
            right, of_right = len(known) - len(wrong), len(self.evidence) - of_wrong
            ranked.append(Reproduction(mistake.name, mistake.family, len(wrong), of_wrong, right, of_right, bits))
        return ranked

    def _score(self, name: str) -> int:
        """Return how many requests a mistake reproduces; a symptom must lead its causes, too."""
        mistake, known = self.found[name]
        return len(known) - _LEAD * mistake.is_symptom

    def reproduces(self, one: JudgedRequest, mistake: EngineMistake) -> bool:
        """Return whether what was served is what the mistake makes, with whatever neighbour it reads."""
        return any(
            agrees(one.asked, simulated(self.program, one.asked.prompt, self.drafting, mistake, near), one.served)
            for near in (one.neighbours if mistake.reads_other else (None,))
        )

    def _possible(self, one: JudgedRequest) -> list[EngineMistake]:
        """Return the mistakes to try: where all tokens are right they are the draft's."""
        is_text = agrees(
            one.asked, simulated(self.program, one.asked.prompt, Drafting(0)), TracerAnswer(tokens=one.served.tokens)
        )
        return every(self.program, len(one.asked.prompt), self.drafting.width, of_draft=is_text)

    def _differ(self, session: Session, best: Sequence[EngineMistake]) -> bool:
        """Return whether the mistakes make different answers, in what this endpoint tells."""
        reads = any(one.reads_other for one in best)
        right = [expected(self.program, one, self.drafting) for one in session.requests] if reads else []
        for number, asked in enumerate(session.requests):
            near = neighbours_of(session.requests, right, number) if reads else []
            first, *others = [one for one in best if near or not one.reads_other] or [RIGHT]
            rounds = simulated(self.program, asked.prompt, self.drafting, first, next(iter(near), None))
            answer = made(asked, rounds, told=self.drafting.width > 0).as_told(self.evidence[0].served)
            one = JudgedRequest(asked, answer, near[:1])
            if not all(self.reproduces(one, mistake) for mistake in others):
                return True
        return False


def explanations(
    program: Program,
    evidence: Sequence[JudgedRequest],
    drafting: Drafting,
    seconds: float,
    serve: Callable[[Session], Sequence[JudgedRequest]],
    drawn: Iterable[Session],
) -> list[Reproduction]:
    """Return the mistakes that reproduce a wrong request exactly, the best first, as far as the seconds suffice.

    Those that explain as much as each other are told apart by sessions of those `drawn` in which they differ.
    """
    explainer = Explainer(program, drafting, serve, time.monotonic() + seconds)
    explainer.look(evidence)
    explainer.tell_apart(drawn)
    return explainer.ranked()


def judged(
    program: Program, session: Session, served: Sequence[TracerAnswer], drafting: Drafting
) -> Iterator[JudgedRequest]:
    """Yield the requests of a session with what came of them."""
    for number, (asked, one) in enumerate(zip(session.requests, served, strict=True)):
        is_wrong = not agrees(asked, simulated(program, asked.prompt, drafting), one)
        yield JudgedRequest(asked, one, neighbours_of(session.requests, served, number), is_wrong)


def surprise(program: Program, one: JudgedRequest, drafting: Drafting) -> float:
    """Return the bits of what was served that is wrong: tokens other than the right ones behind what was served before.

    Accept lengths count where all tokens are right.
    """
    rows, prompt, tokens = BitRows(program), one.asked.prompt, one.served.tokens
    if any(token >= BYTES for token in tokens):
        return 0.0
    rows.extend(prompt + tokens)
    behind = range(len(prompt) - 1, len(prompt) + len(tokens) - 1)
    wrong = sum(rows.emitted(row) != token for row, token in zip(behind, tokens, strict=True))
    if wrong or not drafting.width:
        return wrong * math.log2(BYTES)
    lengths = one.served.lengths
    if lengths is None:
        return math.log2(1 + len(tokens))
    right, places, first = simulated(program, prompt, drafting), set[int](), 0
    for each in right:
        first += len(each.emitted)
        places.add(first)
        if first >= len(tokens):
            break
    begin = len(tokens) - sum(lengths)
    ends = {begin + sum(lengths[: k + 1]) for k in range(len(lengths))}
    return len(ends - places - {len(tokens)}) * math.log2(drafting.width + 1)
