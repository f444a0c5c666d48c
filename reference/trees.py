"""Verification of a tree by definition (S-TREE-7, S-TREE-8): each row is the end of a pass over its own path."""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.tree import children, lineage
from draftproof.reference.choose import choose_rows
from draftproof.reference.decode import Verification
from draftproof.reference.protocols import ReferenceTarget


def verify_tree(
    target: ReferenceTarget, tokens: tuple[int, ...], drafts: tuple[int, ...], parents: tuple[int, ...]
) -> Verification:
    """tokens t_0 .. t_n, of which t_n is pending; drafts of rows 1, 2, .. with their parent rows."""
    paths = [lineage(parents, row) for row in range(len(drafts) + 1)]
    passes = [target.forward(tokens + tuple(drafts[row - 1] for row in path)) for path in paths]
    choices = choose_rows(np.stack([one.logits[-1] for one in passes]))
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
