"""The result of an audit in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from draftproof.harness.audit.statistics import LEAST_PROMPTS
from draftproof.properties.formats.audit import Explanation
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.audit.mistakes import AS_DEFINED

_OUTSIDE = 0.05
"""Counts that are less probable with a mistake are outside of its 95 % interval."""


class Uncounted(NamedTuple):
    """Rounds that were counted and the tokens that they emit, and those that are played; `with_idle`: of all rounds."""

    rounds: int
    tokens: int
    rounds_played: int
    tokens_played: int
    with_idle: bool

    def __str__(self) -> str:
        kind = "rounds" if self.with_idle else "rounds with drafts"
        why = "" if self.with_idle else 'rounds without drafts (give all rounds as "rounds" of --observed), '
        return (
            f"the engine counted {self.rounds} {kind} that emit {self.tokens} tokens, and a right one has"
            f" {self.rounds_played} of {self.tokens_played} tokens after these prompts: {why}other prompts or other"
            " --tokens"
        )


class Unnoticed(NamedTuple):
    """What a shortfall would be at most, the least that is noticed, and how many such prompts notice that much.

    Where counts differ by less than is noticed, and yet hardly by chance, it is the prompts that notice `differs`.
    """

    expected: float
    noticeable: float
    differs: float | None
    enough: int | None

    def __str__(self) -> str:
        told = f"only a shortfall of {self.noticeable:.2f} would have been noticed, "
        told += (
            f"and there is no more than {self.expected:.2f} to fall short of"
            if self.differs is None
            else f"which leaves the difference of {self.differs:.2f} open"
        )
        if self.enough is None:
            return f"{told}: this draft is right too seldom for counts of these prompts; give other prompts, or a log"
        return f"{told}: give {self.enough} such prompts, or a log"


class UnnoticedInLog(NamedTuple):
    """A log without the tokens of drafts, in which it would go unnoticed if nothing were accepted."""

    expected: float

    def __str__(self) -> str:
        return (
            "the log does not have the drafts, and an engine that gets none accepted would not be told from one that"
            f" gets {self.expected:.2f}: log the drafts of each round, or give other prompts"
        )


class Unrejected(NamedTuple):
    """A log without a rejected draft, though its rounds do not all have the `steps` drafts that one has at most."""

    steps: int

    def __str__(self) -> str:
        return (
            f"no draft of the log was rejected, and not every round has {self.steps}: it may have the accepted ones"
            " alone; log all drafts of each round, or their number, before any is rejected, or neither"
        )


class Result(NamedTuple):
    """Drafts accepted a round, as expected and as observed, and how probable the difference is; prompts, and copies.

    Of a log: its rounds, how many of them were `off`, and how probable it is that they side with a mistake, if that is
    an alarm, and whether it shows no draft. Of counts that are of another number of tokens: of how many; of what
    would have shown no shortfall: which one. Of a log: how many of its tokens are not the target's.
    """

    expected: float
    observed: float | None
    p: float | None
    prompts: int
    copies: int = 0
    rounds: int = 0
    off: int = 0
    sided: float | None = None
    uncounted: Uncounted | None = None
    unnoticed: Unnoticed | UnnoticedInLog | Unrejected | None = None
    other_texts: int = 0
    is_without_drafts: bool = False
    idle: int = 0


def says(result: Result, outcome: Outcome | None, found: Sequence[Explanation], *, falls_short: bool) -> str:
    """Return the result; `falls_short`: as much as was observed is accepted hardly ever."""
    if result.observed is None or result.p is None:
        return f"a right engine gets {result.expected:.2f} drafts accepted a round"
    told = f"observed {result.observed:.2f} accepted a round, expected {result.expected:.2f}"
    if outcome is Outcome.PASS:
        others = (
            f", but tokens of the log that are not the target's: {result.other_texts}" if result.other_texts else ""
        )
        return f"{told}: as it should be{others}"
    if outcome is Outcome.INCONCLUSIVE and result.is_without_drafts:
        return f"{told}: no draft was seen in the log, so nothing is said of drafting"
    off = f"{result.off} of {result.rounds} rounds went otherwise"
    if outcome is Outcome.INCONCLUSIVE and result.prompts < LEAST_PROMPTS:
        return f"{told}: no difference that {_prompts(result)} could show; give at least {LEAST_PROMPTS}"
    if outcome is Outcome.INCONCLUSIVE and result.unnoticed is not None:
        return f"{told}: {result.unnoticed}"
    if outcome is Outcome.INCONCLUSIVE and result.uncounted is not None:
        return f"{told}: as many as there should be, but {result.uncounted}"
    if outcome is Outcome.INCONCLUSIVE and result.idle:
        return (
            f"{told}: {result.idle} of {result.rounds} rounds have no drafts, and all others went as they should, which"
            " is right of an engine that drafts only where it is sure, and wrong of one that always does"
        )
    if outcome is Outcome.INCONCLUSIVE:
        why = f"{told}: no difference that {_prompts(result)} could show, but {off}"
        return f"{why}; {_explanation(result, found)}"
    if falls_short:
        told += f" ({chance(result.p)})"
    elif result.sided is not None:
        told += f", and {off} ({chance(result.sided)})"
    else:
        told += f", but {off}, more than rounding explains"
    return f"{told}; {_explanation(result, found)}"


def _prompts(result: Result) -> str:
    """Return how many prompts say something, without copies of others: a text that is there twice says nothing more."""
    noun = "prompt" if result.prompts == 1 else "prompts"
    return f"{result.prompts} {noun}" + (f", {result.copies} copies of them left out," if result.copies else "")


def _explanation(result: Result, found: Sequence[Explanation]) -> str:
    """Return what explains it: of a log what explains half of the rounds that went otherwise, if there are any.

    A mistake that is less likely than none is no explanation.
    """
    likelier = takewhile(lambda one: one.name != AS_DEFINED, found)
    possible = [one for one in (likelier if result.off else found) if not one.ruled_out and one.name != AS_DEFINED]
    if not result.off:
        return _of_counts(possible)
    known = [one for one in possible if one.explains]
    named = [f"{one.name} ({one.expected:.2f}; {_rounds(one)})" for one in known if 2 * _of(one) >= result.off]
    if named:
        return f"explained by: {', '.join(named[:3])}"
    told = "none of the known mistakes explains it"
    return f"{told}; likeliest: {known[0].name} ({_rounds(known[0])})" if known else told


def _of_counts(possible: Sequence[Explanation]) -> str:
    """Return which mistakes would explain counts: the counts are in their 95 % intervals. Others may, too."""
    fitting = [one for one in possible if (one.p or 0.0) >= _OUTSIDE]
    if fitting:
        return f"{', '.join(f'{one.name} ({one.expected:.2f})' for one in fitting[:3])} would explain the counts"
    told = "none of the known mistakes explains the counts"
    if not possible:
        return told
    best = possible[0]
    return f"{told}; likeliest: {best.name} ({best.expected:.2f}, {chance(best.p or 0.0)})"


def _rounds(one: Explanation) -> str:
    return "1 round" if one.explains == 1 else f"{one.explains} rounds"


def _of(one: Explanation) -> int:
    return one.explains or 0


def chance(p: float) -> str:
    """Return a probability as it is told."""
    return "p < 1e-12" if p < 1e-12 else f"p = {p:.2g}"
