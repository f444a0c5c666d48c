"""Grammars: the mask of every verify row, the state that a round leaves, and texts that obey."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import equals, listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.lib.pattern import NO_STRING, derivative, has_empty, parse
from draftproof.properties.values.grammar import end_token, token_texts
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.relations import Different


def _constrained(evidence: Evidence) -> bool:
    return evidence.scenario.is_constrained


def _disobeys(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield the first round of each request that emits tokens which its grammar forbids, judged by the text alone."""
    vocab = evidence.scenario.model.vocab
    left = {
        index: parse(request.grammar.pattern)
        for index, request in enumerate(evidence.scenario.requests)
        if request.grammar
    }
    texts = token_texts(vocab)
    emitted = evidence.subject.typed("accept.emitted", TokenIds)
    for key in sorted(emitted):
        for place, token in enumerate(emitted[key]):
            state = left.get(key.request)
            if state is None:
                break
            is_end = token == end_token(vocab)
            for letter in texts[token] if 0 <= token < vocab else ():
                state = derivative(state, letter)
            if not 0 <= token < vocab or state == NO_STRING or (is_end and not has_empty(state)):
                del left[key.request]
                pattern = evidence.scenario.requests[key.request].grammar
                assert pattern is not None
                expected = f"a token by which the text may become a word of {pattern.pattern}, as number {place}"
                yield Mismatch("accept.emitted", key, expected, emitted[key], Different())
                break
            left[key.request] = state


CONTRACTS = (
    equals(
        "verify.allowed",
        cites="S-GRAMMAR-3, S-GRAMMAR-4, S-GRAMMAR-9, S-LIMIT-15",
        minimum="grammar_changed_choice grammar_by_draft_in_window grammar_forces_token grammar_sampled_rounds "
        "free_beside_grammar minimum_changed_choice minimum_of_first_row minimum_in_window",
        concerns=lambda evidence: evidence.scenario.is_constrained or evidence.scenario.has_minimum,
    ),
    equals(
        "commit.allowed",
        cites="S-GRAMMAR-5",
        minimum="grammar_after_partial grammar_rejects_draft",
        concerns=_constrained,
    ),
    listed(
        "output.grammar",
        _disobeys,
        ("accept.emitted",),
        by_round=False,
        partial=("accept.emitted",),
        cites="S-GRAMMAR-1, S-GRAMMAR-6",
        minimum="scenarios grammar_changed_choice grammar_ends",
        concerns=_constrained,
    ),
)
