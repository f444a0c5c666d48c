"""Verification of a tree by definition (S-TREE-7 .. S-TREE-12): each row is the end of a pass over its own path."""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.tree import children, lineage
from draftproof.reference.choose import Choice
from draftproof.reference.chooser import Chooser, TokenPlace, chooser_of
from draftproof.reference.decode import Verification
from draftproof.reference.memo import Pass
from draftproof.reference.protocols import ReferenceTarget


def verify_tree(
    target: ReferenceTarget,
    tokens: tuple[int, ...],
    drafts: tuple[int, ...],
    parents: tuple[int, ...],
    followed: tuple[int, ...] = (),
    sampling: Sampling | None = None,
) -> Verification:
    """Verify drafts in rows 1, 2, .. with their parent rows, after tokens t_0 .. t_n with t_n pending.

    After tokens that `followed` begins with, the choice is the token that follows there (S-FOLLOW-8). With `sampling` a
    row is drawn, given the drafts below it (S-TREE-11).
    """
    paths = [lineage(parents, row) for row in range(len(drafts) + 1)]
    texts = [tokens + tuple(drafts[row - 1] for row in path) for path in paths]
    passes = [target.forward(text, len(text) - 1) for text in texts]
    places = [
        TokenPlace(len(text), tuple(drafts[child - 1] for child in children(parents, row)))
        for row, text in enumerate(texts)
    ]
    chooser = chooser_of(target, sampling)
    choices = chooser.choices(np.stack([one.logits[-1] for one in passes]), places)
    if followed:
        rows = zip(choices, passes, texts, places, strict=True)
        choices = tuple(_following(chooser, *row, followed) for row in rows)
    walked = [0]
    while True:
        wanted = choices[walked[-1]].token
        child = next((row for row in children(parents, walked[-1]) if drafts[row - 1] == wanted), None)
        if child is None:
            break
        walked.append(child)
    return Verification(
        whole=passes[walked[-1]],
        choices=choices,
        rows=tuple((one, len(tokens) - 1 + len(path)) for one, path in zip(passes, paths, strict=True)),
        accepted=tuple(walked),
    )


def _following(
    chooser: Chooser, choice: Choice, whole: Pass, text: tuple[int, ...], place: TokenPlace, followed: tuple[int, ...]
) -> Choice:
    """Return the choice after a text, or the token with which the followed text goes on there."""
    follows = len(text) < len(followed) and followed[: len(text)] == text and followed[len(text)] != choice.token
    return chooser.instead(choice, whole.logits[-1], place, followed[len(text)]) if follows else choice
