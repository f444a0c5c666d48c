"""Requests with a grammar: patterns that leave many tokens, few or one, and some that only match short texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, requests_put
from draftproof.properties.features.some_requests import with_some
from draftproof.properties.values.grammar import Grammar, end_token
from draftproof.properties.values.scenario import Request, Scenario

# Tokens spell one to six letters. Words of the last three end after a few tokens, where the end token is all that is
# left.
_PATTERNS = (
    "([ab]|cc?[ab])*",
    "(([ab]|c[ab]){2})*",
    "[abc]{9,30}",
    "((a|b|cc){3})*",
    "(abc)*",
    "([abc]{5})*",
    "a*(b|ca)*b",
    "(a+b|c){2,40}",
    "([ab]|c[ab]){4,9}",
    "(a|bc){2,7}c{1,3}",
    "(b[ac]?){3,8}",
)
SHORT = ("([ab]|c[ab]){4,5}", "(a|bc){2,3}c", "(b[ac]?){3,4}")
"""Patterns of words that are so short that the end token is soon all that is left."""


def with_grammars(choose: Choose, scenario: Scenario, patterns: Sequence[str] = _PATTERNS) -> Scenario:
    """Draw which requests have a grammar, and which; the first has."""
    return with_some(choose, scenario, lambda request: _constrained(choose, request, scenario.model.vocab, patterns))


def _constrained(choose: Choose, request: Request, vocab: int, patterns: Sequence[str]) -> Request:
    stops = tuple(dict.fromkeys((*request.stops, end_token(vocab))))
    return replace(request, grammar=Grammar(pattern=choose.one_of(patterns)), stops=stops)


def _is_free_beside(one: Any) -> bool:
    return one.request.run.scenario.is_constrained and one.request.request.grammar is None


_round = facts_of("round", real=False)
_FACTS = (
    facts_of("round")("grammar_changed_choice", shown="grammar: another choice", effect=True),
    _round("grammar_by_draft_in_window", shown="grammar: by a draft of the round"),
    _round("grammar_forces_token", shown="grammar: one token"),
    _round("grammar_rejects_draft", shown="grammar: rejects a draft"),
    _round("grammar_after_partial", shown="grammar: after a part was accepted"),
    _round("grammar_ends", shown="grammar: ends"),
    _round("grammar_sampled_rounds", shown="grammar: sampled", takes="sampling"),
    _round("free_beside_grammar", _is_free_beside, "grammar: none beside one"),
)

FEATURE = Feature(
    name="grammars",
    what="a grammar says which tokens are allowed",
    has=lambda one: one.is_constrained,
    without=requests_put(grammar=None),
    draw=with_grammars,
    rule="S-GRAMMAR-1",
    facts=_FACTS,
)
