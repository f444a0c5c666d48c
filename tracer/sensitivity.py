"""How soon a mistake shows in a tracer's text, and in its accept lengths: by the oracle alone."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from draftproof.tracer.architectures import BACK_ENDS
from draftproof.tracer.generate import generated
from draftproof.tracer.mistakes import every
from draftproof.tracer.oracle import Round
from draftproof.tracer.program import BOS, BYTES, Program
from draftproof.tracer.simulated import Drafting, EngineMistake, Neighbour, simulated

WITHIN, DRAFTS_A_ROUND = (4, 16, 32), 3
DRAFTED = (("F", "eagle"), ("F", "standalone"), ("LF", "eagle"))
"""The mixers of programs, and their drafts."""
_PROMPT, _LENGTH = (33, 100), 4096


class Noticed(NamedTuple):
    """In how many of `cases` a mistake shows within each number of tokens, in the text or in accept lengths."""

    cases: int
    text: tuple[int, ...]
    lengths: tuple[int, ...]


def tables(cases: int, advance: Callable[[], object] = lambda: None) -> dict[str, dict[str, Noticed]]:
    """Return for each kind of program how soon each family of mistakes shows; `advance` is called for each case.

    Of a standalone draft these are the mistakes that a head does not have.
    """
    architectures: dict[str, list[str]] = {}
    for name, back in BACK_ENDS.items():
        architectures.setdefault(back.mixers, []).append(name)
    found: dict[str, dict[str, Noticed]] = {}
    for mixers, draft in DRAFTED:
        names = ", ".join(architectures[mixers])
        is_head = draft != "standalone"
        known = frozenset[str]() if is_head else frozenset(found[names])
        title = names if is_head else f"{names}, with a standalone draft"
        found[title] = noticed(mixers, draft, cases, known, advance)
    return found


def noticed(
    mixers: str, draft: str, cases: int, known: frozenset[str], advance: Callable[[], object]
) -> dict[str, Noticed]:
    """Return how soon each family of mistakes but the `known` shows; each case has its own program and prompt."""
    places: dict[str, list[tuple[int, int]]] = {}
    for seed in range(cases):
        program, chance = generated(seed, _LENGTH, mixers, draft), random.Random(seed)
        prompt, other = [(BOS, *chance.choices(range(BYTES), k=chance.randint(*_PROMPT))) for _ in range(2)]
        right = list(_until(simulated(program, prompt, Drafting(DRAFTS_A_ROUND)), WITHIN[-1]))
        neighbour = _neighbour(program, other)
        for family, mistakes in _families(program, len(prompt)).items():
            if family not in known:
                rounds = simulated(program, prompt, Drafting(DRAFTS_A_ROUND), chance.choice(mistakes), neighbour)
                places.setdefault(family, []).append(_differ(right, rounds))
        advance()
    return {
        family: Noticed(
            len(found),
            tuple(sum(text < most for text, _ in found) for most in WITHIN),
            tuple(sum(length < most for _, length in found) for most in WITHIN),
        )
        for family, found in places.items()
    }


def _families(program: Program, prompt: int) -> dict[str, list[EngineMistake]]:
    found: dict[str, list[EngineMistake]] = {}
    for of_draft in (False, True):
        for one in every(program, prompt, DRAFTS_A_ROUND, of_draft=of_draft):
            found.setdefault(one.family, []).append(one)
    return found


def _neighbour(program: Program, prompt: tuple[int, ...]) -> Neighbour:
    rounds = _until(simulated(program, prompt, Drafting(0)), WITHIN[-1] + DRAFTS_A_ROUND)
    text = [token for one in rounds for token in one.emitted]
    return Neighbour((*prompt, *text), len(prompt))


def _until(rounds: Iterator[Round], count: int) -> Iterator[Round]:
    """Yield rounds up to one that reaches so many tokens."""
    emitted = 0
    for one in rounds:
        yield one
        emitted += len(one.emitted)
        if emitted >= count:
            return


def _differ(right: Sequence[Round], rounds: Iterator[Round]) -> tuple[int, int]:
    """Return behind how many tokens the text differs, and the rounds do; what never does is far away."""
    text, never = [token for one in right for token in one.emitted], 1 << 30
    emitted, of_rounds = 0, never
    ends, first = set[int](), 0
    for one in right:
        ends.add(first := first + len(one.emitted))
    for one in rounds:
        for token in one.emitted:
            if emitted >= WITHIN[-1]:
                return never, of_rounds
            if token != text[emitted]:
                return emitted, of_rounds
            emitted += 1
        begun = emitted - len(one.emitted)
        if of_rounds == never and (emitted not in ends or any(begun < end < emitted for end in ends)):
            of_rounds = begun
    return never, of_rounds


def markdown(tables: Mapping[str, Mapping[str, Noticed]], commit: str) -> str:
    """Return the page."""
    cases = max(one.cases for table in tables.values() for one in table.values())
    told = (
        f"Made by `draftproof tracer sensitivity --cases {cases}` at commit {commit}, by the oracle alone: of every"
        " mistake that `tracer run` knows, in how many of a hundred cases the text differs within"
        f" {', '.join(map(str, WITHIN))} tokens, and before it does, the accept lengths. Each case is a program,"
        f" a prompt of {_PROMPT[0]} to {_PROMPT[1]} tokens, a neighbour, {DRAFTS_A_ROUND} drafts a round, and one of"
        " the mistakes of its kind. Architectures with the same layers have the same programs."
    )
    lines = ["# What a tracer checkpoint notices", "", *textwrap.wrap(told, 120, break_on_hyphens=False)]
    for names, table in tables.items():
        heads = [f"{what} in {most}" for what in ("text", "lengths") for most in WITHIN]
        lines += ["", f"## {names}", "", f"| mistake | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
        for family, one in table.items():
            cells = (f"{100 * count / one.cases:.0f}" for count in (*one.text, *one.lengths))
            lines.append(f"| {family} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
