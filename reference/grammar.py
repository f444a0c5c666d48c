"""The target of a request with a grammar (S-GRAMMAR): logits of tokens that may not follow are none.

What may follow a text is read off the derivatives of its pattern; no automaton is built, and nothing is followed along.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from draftproof.properties.lib.pattern import NO_STRING, Expression, derivative, has_empty, parse
from draftproof.properties.values.grammar import Grammar, end_token, token_texts
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Request
from draftproof.reference.decode import Verification
from draftproof.reference.memo import Pass
from draftproof.reference.protocols import ReferenceTarget

LOGIT_OF_EXCLUDED = -(1 << 40)
"""The logit of a token that the grammar does not allow (S-GRAMMAR-4)."""
State = Expression | None
"""What may still come, as an expression; None where there is no grammar any more."""


def state_after(state: State, token: int, vocab: int) -> State:
    """Return the state after one more token (S-GRAMMAR-3)."""
    if state is None or token == end_token(vocab):
        return None
    for letter in token_texts(vocab)[token]:
        state = derivative(state, letter)
    return None if state == NO_STRING else state


@lru_cache(maxsize=1 << 14)
def state_of(grammar: Grammar, text: TokenIds, vocab: int) -> State:
    """Return the state after a text, which begins behind the prompt."""
    if not text:
        return parse(grammar.pattern)
    return state_after(state_of(grammar, text[:-1], vocab), text[-1], vocab)


@lru_cache(maxsize=1 << 12)
def allowed(state: State, vocab: int) -> TokenIds:
    """Return the tokens that a state allows."""
    if state is None:
        return tuple(range(vocab))
    # What a token spells without its last letter is spelled by one before it.
    after: dict[str, Expression] = {"": state}
    texts = token_texts(vocab)[:-1]
    for text in texts:
        after[text] = derivative(after[text[:-1]], text[-1])
    some = tuple(token for token, text in enumerate(texts) if after[text] != NO_STRING)
    return (*some, end_token(vocab)) if has_empty(state) else some


@lru_cache(maxsize=1 << 14)
def _allowed_after(grammar: Grammar, text: TokenIds, vocab: int) -> np.ndarray:
    some = np.array(allowed(state_of(grammar, text, vocab), vocab), dtype=np.int64)
    some.setflags(write=False)
    return some


class ConstrainedTarget:
    """A target for one request: each row only has logits of tokens that may follow the text after the prompt.

    The first `prompt` tokens are the prompt. With `known` the text ends after that many tokens for all rows.
    """

    def __init__(self, target: ReferenceTarget, prompt: int, grammar: Grammar, known: int | None = None) -> None:
        self._target, self._prompt, self._grammar, self._known = target, prompt, grammar, known
        self.layer_types, self.widened = target.layer_types, target.widened

    def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
        """Return the target's pass with its logits masked, except in rows before the end of the prompt."""
        whole = self._target.forward(tokens, first)
        logits, vocab = whole.logits_from(first), whole.logits.shape[1]
        for row in range(max(first, self._prompt - 1), len(tokens)):
            text = tokens[self._prompt : min(row + 1, self._known or len(tokens))]
            some = _allowed_after(self._grammar, text, vocab)
            logits[row] = LOGIT_OF_EXCLUDED
            logits[row, some] = whole.logits[row, some]
        return whole._replace(logits=logits)


def with_grammar(target: ReferenceTarget, request: Request) -> ReferenceTarget:
    """Return the target of a request with its grammar; the given one, if it has none."""
    return ConstrainedTarget(target, len(request.prompt), request.grammar) if request.grammar else target


def weakened_targets(target: ReferenceTarget, request: Request, pending: int) -> Iterator[tuple[str, ReferenceTarget]]:
    """Yield targets with less of the request's grammar, each with the count of choices that this changes.

    They are for a round with `pending` tokens committed and pending before it.
    """
    if request.grammar:
        yield "grammar_changed_choice", target
        yield "grammar_by_draft_in_window", ConstrainedTarget(target, len(request.prompt), request.grammar, pending)


def counted(
    request: Request, vocab: int, before: TokenIds, paths: tuple[TokenIds, ...], verified: Verification, free: int
) -> Iterator[str]:
    """Yield the counts of a grammar's round, after the tokens `before` that the request emitted.

    `paths` are the drafts on the way to each row of the verify; `free` drafts would be accepted without the grammar.
    """
    grammar = request.grammar
    if grammar is None:
        return
    states = [state_of(grammar, before + path, vocab) for path in paths]
    walked = [states[row] for row in verified.accepted]
    if any(len(allowed(state, vocab)) == 1 for state in walked):
        yield "grammar_forces_token"
    if free > verified.correct_len:
        yield "grammar_rejects_draft"
    after = state_of(grammar, before + verified.emitted, vocab)
    if 0 < verified.correct_len < len(paths) - 1 and any(
        allowed(state, vocab) != allowed(after, vocab) for state in states[verified.correct_len + 1 :]
    ):
        yield "grammar_after_partial"
    if end_token(vocab) in verified.emitted:
        yield "grammar_ends"
    if request.sampling:
        yield "grammar_sampled_rounds"
