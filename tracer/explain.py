"""Which mistake explains what was served: each is tried by the oracle, and those that reproduce it are ranked."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from draftproof.tracer.mistakes import every
from draftproof.tracer.oracle import BitRows
from draftproof.tracer.program import BYTES, Program
from draftproof.tracer.sessions import Asked, TracerAnswer
from draftproof.tracer.simulated import EngineMistake, Neighbour, agrees, simulated

_MOST = 16
"""Wrong requests, the shortest first, with which mistakes are tried."""


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


def explanations(
    program: Program, evidence: Sequence[JudgedRequest], width: int, seconds: float = 60.0
) -> list[Reproduction]:
    """Return the mistakes that reproduce a wrong request exactly, the best first, as far as the seconds suffice."""
    wrong = sorted((one for one in evidence if one.is_wrong), key=lambda one: len(one.asked.prompt))[:_MOST]
    right = [one for one in evidence if not one.is_wrong][:_MOST]
    told = {id(one): surprise(program, one, width) for one in wrong}
    until, tried = time.monotonic() + seconds, 0
    found = dict[str, tuple[EngineMistake, list[JudgedRequest]]]()
    for one in wrong:
        known = [name for name, (mistake, _) in found.items() if _reproduces(program, one, width, mistake)]
        for name in known:
            found[name][1].append(one)
        # What explains a request is not looked for again; what explains none of the others is.
        for mistake in () if known else _possible(program, one, width):
            if time.monotonic() > until:
                break
            tried += 1
            if mistake.name not in found and _reproduces(program, one, width, mistake):
                found[mistake.name] = (mistake, [one])
    ranked = []
    for mistake, of_wrong in found.values():
        of_right = sum(_reproduces(program, one, width, mistake) for one in right)
        bits = sum(told[id(one)] for one in of_wrong) - math.log2(tried)
        ranked.append(
            Reproduction(mistake.name, mistake.family, len(of_wrong), len(wrong), of_right, len(right), max(bits, 0.0))
        )
    return sorted(ranked, key=lambda one: (one.wrong + one.right, one.bits), reverse=True)


def _possible(program: Program, one: JudgedRequest, width: int) -> list[EngineMistake]:
    """Return the mistakes to try: where all tokens are right they are the draft's."""
    is_text = agrees(one.asked, simulated(program, one.asked.prompt, 0), TracerAnswer(tokens=one.served.tokens))
    others = range(1, len(one.neighbours) + 1)
    return every(program, len(one.asked.prompt), others, width, of_draft=is_text)


def _reproduces(program: Program, one: JudgedRequest, width: int, mistake: EngineMistake) -> bool:
    if mistake.other is not None and mistake.other > len(one.neighbours):
        return False
    return agrees(one.asked, simulated(program, one.asked.prompt, width, mistake, one.neighbours), one.served)


def surprise(program: Program, one: JudgedRequest, width: int) -> float:
    """Return the bits of what was served that is wrong: tokens other than the right ones behind what was served before.

    Accept lengths count where all tokens are right.
    """
    rows, prompt, tokens = BitRows(program), one.asked.prompt, one.served.tokens
    if any(token >= BYTES for token in tokens):
        return 0.0
    rows.extend(prompt + tokens)
    behind = range(len(prompt) - 1, len(prompt) + len(tokens) - 1)
    wrong = sum(rows.emitted(row) != token for row, token in zip(behind, tokens, strict=True))
    if wrong or not width:
        return wrong * math.log2(BYTES)
    lengths = one.served.lengths
    if lengths is None:
        return math.log2(1 + len(tokens))
    right, places, first = simulated(program, prompt, width), set[int](), 0
    for each in right:
        first += len(each.emitted)
        places.add(first)
        if first >= len(tokens):
            break
    ends = {1 + sum(lengths[: k + 1]) for k in range(len(lengths))}
    return len(ends - places - {len(tokens)}) * math.log2(width + 1)


def is_right(program: Program, asked: Asked, served: TracerAnswer, width: int) -> bool:
    """Return whether what was served is right."""
    return agrees(asked, simulated(program, asked.prompt, width), served)
