"""A tree of EAGLE drafts by definition (S-TREE-2 .. S-TREE-5): every candidate with all that led to it.

The entry of a beam is the last of a pass over the true entries and one for each token of the beam's path: so it is at
position n + depth - 1, and sees the true entries and its own ancestors. Sources: Li et al., EAGLE-2 (2024).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from draftproof.properties.values.tree import Tree
from draftproof.reference.drafts.base import ReferenceProposal, Said, vector
from draftproof.reference.drafts.eagle import ReferenceEagle
from draftproof.reference.memo import Pass
from draftproof.reference.protocols import ReferenceHead


class _Candidate(NamedTuple):
    """A token with its number, its score, the tokens and the candidates before it, and the entries up to its parent."""

    number: int
    score: float
    path: tuple[int, ...]
    parent: int | None
    stand_ins: np.ndarray
    """States that entries from the first guess on consume, [depth, L]: the last is what its parent handed on."""


class _Closest:
    """By how little the closest choice of a proposal was made: the least difference of two that were ranked.

    A score is a sum of differences of logits: `terms` of them are what two scores are made of.
    """

    gap = float("inf")

    def see(self, ranked: list[float], terms: int) -> None:
        gaps = (above - below for above, below in itertools.pairwise(ranked))
        self.gap = min(self.gap, *(gap / terms for gap in gaps), float("inf"))


class ReferenceEagleTree(ReferenceEagle):
    """The draft of a scenario with a tree."""

    def __init__(self, head: ReferenceHead, tree: Tree) -> None:
        super().__init__(head)
        self._tree = tree

    def propose(self, tokens: tuple[int, ...], whole: Pass, count: int) -> ReferenceProposal:
        """Return the drafts of the tree of `count` steps, in ascending order; see `ReferenceDraft`."""
        if not count:
            return ReferenceProposal((), (Said("propose.parents", ()),))
        ids, hidden, said = tokens[1:], self._states(self._given(whole)), list[Said]()
        closest = _Closest()
        entries = self.head.forward(ids, hidden)
        candidates = [
            _Candidate(number, score, (token,), None, entries.hidden[-1:])
            for number, (token, score) in enumerate(self._best_of(entries.logits[-1], closest))
        ]
        beams = list(candidates)
        for step in range(1, count):
            first = len(candidates)
            for row, beam in enumerate(beams):
                entries = self.head.forward(ids + beam.path, np.concatenate((hidden, beam.stand_ins)))
                found = self._best_of(entries.logits[-1], closest)
                said.append(Said("draft.beam.ids", beam.path[-1], step=step, row=row))
                said.append(Said("draft.beam.positions", len(ids) + step - 1, step=step, row=row))
                said.append(Said("draft.beam.hidden_in", vector(beam.stand_ins[-1]), step=step, row=row))
                said.append(Said("draft.beam.candidates", tuple(token for token, _ in found), step=step, row=row))
                stand_ins = np.concatenate((beam.stand_ins, entries.hidden[-1:]))
                for token, score in found:
                    number, path = len(candidates), (*beam.path, token)
                    candidates.append(_Candidate(number, beam.score + score, path, beam.number, stand_ins))
            beams = _best(candidates[first:], self._tree.topk)
            scores = [one.score for one in _best(candidates[first:], self._tree.topk + 1)]
            closest.see(scores, 2 * (step + 1))
        kept = sorted(_best(candidates, self._tree.nodes), key=lambda one: one.number)
        closest.see([one.score for one in _best(candidates, self._tree.nodes + 1)[-2:]], 2 * count)
        rows = {one.number: row for row, one in enumerate(kept, start=1)}
        parents = tuple(0 if one.parent is None else rows[one.parent] for one in kept)
        said.append(Said("propose.parents", parents, near=lambda: ((0, closest.gap),)))
        return ReferenceProposal(tuple(one.path[-1] for one in kept), tuple(said), parents)

    def _best_of(self, logits: np.ndarray, closest: _Closest) -> list[tuple[int, float]]:
        """Return the best tokens of a row [V], and how far each is below the best."""
        # Of equals, which this sort leaves as they are, the lowest id.
        ranked = np.argsort(-logits, kind="stable")[: self._tree.topk + 1].tolist()
        closest.see(logits[ranked].tolist(), 1)
        order = ranked[: self._tree.topk]
        tokens = order if self.head.ids is None else [self.head.ids[place] for place in order]
        return [(token, float(logits[place] - logits[order[0]])) for token, place in zip(tokens, order, strict=True)]


def _best(candidates: list[_Candidate], count: int) -> list[_Candidate]:
    """Return the candidates with the highest scores, best first; of equals the lowest number first."""
    return sorted(candidates, key=lambda one: (-one.score, one.number))[:count]
