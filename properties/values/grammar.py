"""What the text of a request may be (docs/semantics/logits.md, S-GRAMMAR), and what tokens spell. Free of torch."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from draftproof.properties.lib.base import Value

DIGITS = "abc"


class Grammar(Value, frozen=True, kw_only=True):
    """The text is the beginning of a word of `pattern`, a regular expression; the end token comes after a word."""

    pattern: Annotated[str, Meta(min_length=1, max_length=64)]


def end_token(vocab: int) -> int:
    """Return the token that spells nothing and ends a word: the last one."""
    return vocab - 1


@lru_cache(maxsize=16)
def token_texts(vocab: int) -> tuple[str, ...]:
    """Return what each token spells (S-GRAMMAR-2): a, b, c, aa, ab, .. and in the end nothing."""
    texts = [""]
    while len(texts) <= vocab:
        shorter = [text for text in texts if len(text) == len(texts[-1])]
        texts += [text + digit for text in shorter for digit in DIGITS]
    return (*texts[1:vocab], "")
