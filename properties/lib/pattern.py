"""Regular expressions of grammars, and what is left of one after a letter (S-GRAMMAR-1 and -3).

What is left is the derivative of Brzozowski, "Derivatives of Regular Expressions" (1964). Expressions are made by
`then`, `either`, `star` and `letters` only: these leave out whatever matches nothing, so that an expression matches
nothing at all only if it is `NO_STRING`, and an expression has finitely many derivatives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from draftproof.properties.lib.errors import DraftproofError

SPELLED = frozenset("abc")
"""The letters that tokens spell."""
MOST_LETTERS = 256
"""The largest number of letters in an expression after its repetitions are written out."""


class PatternError(DraftproofError, ValueError):
    """A text that is no expression of this notation; the message says where and why."""


@dataclass(frozen=True)
class Expression:
    """The empty string, and nothing else."""


@dataclass(frozen=True)
class Letters(Expression):
    """One letter of some."""

    some: frozenset[str]


@dataclass(frozen=True)
class Then(Expression):
    """One after the other."""

    first: Expression
    rest: Expression


@dataclass(frozen=True)
class Either(Expression):
    """Any of several; of none it matches nothing."""

    of: frozenset[Expression]


@dataclass(frozen=True)
class Star(Expression):
    """Any number of one."""

    of: Expression


EMPTY, NO_STRING = Expression(), Either(frozenset())


def letters(some: Iterable[str]) -> Expression:
    """Return one of these letters, as far as tokens spell them."""
    known = SPELLED & frozenset(some)
    return Letters(known) if known else NO_STRING


def then(first: Expression, rest: Expression) -> Expression:
    """Return one after the other."""
    if NO_STRING in (first, rest):
        return NO_STRING
    if EMPTY in (first, rest):
        return rest if first == EMPTY else first
    return Then(first.first, then(first.rest, rest)) if isinstance(first, Then) else Then(first, rest)


def either(*options: Expression) -> Expression:
    """Return any of these."""
    each = frozenset(one for option in options for one in (option.of if isinstance(option, Either) else (option,)))
    return next(iter(each)) if len(each) == 1 else Either(each)


def star(of: Expression) -> Expression:
    """Return any number of one."""
    return EMPTY if of in (EMPTY, NO_STRING) else of if isinstance(of, Star) else Star(of)


def has_empty(expression: Expression) -> bool:
    """Return whether it matches the empty string."""
    match expression:
        case Then(first, rest):
            return has_empty(first) and has_empty(rest)
        case Either(of):
            return any(map(has_empty, of))
        case Letters():
            return False
        case _:
            return True


@lru_cache(maxsize=1 << 16)
def derivative(expression: Expression, letter: str) -> Expression:
    """Return what may follow the letter where the expression begins with it; NOTHING if it cannot."""
    match expression:
        case Letters(some):
            return EMPTY if letter in some else NO_STRING
        case Then(first, rest):
            after = then(derivative(first, letter), rest)
            return either(after, derivative(rest, letter)) if has_empty(first) else after
        case Either(of):
            return either(*(derivative(one, letter) for one in of))
        case Star(of):
            return then(derivative(of, letter), expression)
        case _:
            return NO_STRING


@lru_cache(maxsize=256)
def parse(text: str) -> Expression:
    """Return the expression of a text: a word of it is a whole match of Python's `re`.

    Raises PatternError for what is no expression, and for one of more than MOST_LETTERS letters when written out.
    """
    return _Parser(text).whole()


class _Parser:
    """Reads from `self._at` on; sizes are letters when repetitions are written out."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def whole(self) -> Expression:
        expression, _ = self._either()
        if self._at < len(self._text):
            self._fail("an expression before it ends")
        return expression

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str) -> None:
        if self._next() != expected:
            self._fail(expected)
        self._at += 1

    def _fail(self, expected: str) -> NoReturn:
        found = repr(self._next()) if self._next() else "the end"
        raise PatternError(f"expected {expected} at place {self._at}, got {found}")

    def _either(self) -> tuple[Expression, int]:
        option, size = self._sequence()
        while self._next() == "|":
            self._at += 1
            other, more = self._sequence()
            option, size = either(option, other), size + more
        return option, size

    def _sequence(self) -> tuple[Expression, int]:
        parts, size = [EMPTY], 0
        while self._next() not in ("", "|", ")"):
            part, more = self._repeated()
            parts.append(part)
            size += more
        made = EMPTY
        for part in reversed(parts):
            made = then(part, made)
        return made, size

    def _repeated(self) -> tuple[Expression, int]:
        one, size = self._one()
        mark = self._next()
        if mark not in ("*", "+", "?", "{") or not mark:
            return one, size
        self._at += 1
        if mark == "{":
            least, most = self._counts()
        else:
            least, most = {"*": (0, 0), "+": (1, 1), "?": (0, 1)}[mark]
        if size * max(most, 1) > MOST_LETTERS:
            raise PatternError(f"expected at most {MOST_LETTERS} letters, with repetitions written out")
        made = star(one) if mark in ("*", "+") else EMPTY
        for number in reversed(range(most)):
            made = then(one, made) if number < least else either(EMPTY, then(one, made))
        return made, size * max(most, 1)

    def _counts(self) -> tuple[int, int]:
        least = self._number()
        most = least
        if self._next() == ",":
            self._at += 1
            most = self._number()
        self._take("}")
        if most < least:
            raise PatternError(f"expected at least {least} as the second number of {{{least},{most}}}")
        return least, most

    def _number(self) -> int:
        digits = ""
        while self._next().isascii() and self._next().isdigit() and len(digits) < 3:
            digits += self._next()
            self._at += 1
        if not digits:
            self._fail("a number")
        return int(digits)

    def _one(self) -> tuple[Expression, int]:
        letter = self._next()
        if letter == "(":
            self._at += 1
            made, size = self._either()
            self._take(")")
            return made, size
        if letter == "[":
            self._at += 1
            some = [self._letter()]
            while self._next() != "]":
                some.append(self._letter())
            self._at += 1
            return letters(some), 1
        return letters(self._letter()), 1

    def _letter(self) -> str:
        letter = self._next()
        if not (letter.isascii() and letter.islower()):
            self._fail("a letter of a .. z")
        self._at += 1
        return letter
