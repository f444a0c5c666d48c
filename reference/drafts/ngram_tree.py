"""A tree of n-gram drafts by definition (S-NGRAM-4): all paths that matches give, cut to the most shared nodes.

A node is the tokens from row 0 to it. Sources: SGLang's n-gram draft, which has a trie of matches and ranks by
frequency.
"""

from __future__ import annotations

from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.observed import NgramMatch
from draftproof.properties.values.tree import Tree
from draftproof.reference.drafts.base import ReferenceProposal, Said
from draftproof.reference.drafts.ngram import ReferenceNgram
from draftproof.reference.memo import Pass

Node = tuple[int, ...]


class ReferenceNgramTree(ReferenceNgram):
    """The draft of a scenario with a tree."""

    def __init__(self, spec: Ngram, tree: Tree) -> None:
        super().__init__(spec)
        self._tree = tree

    def propose(self, tokens: tuple[int, ...], whole: Pass, count: int) -> ReferenceProposal:
        """As of `ReferenceDraft`: the rows of the tree of `count` steps, level after level."""
        paths = [tokens[place:][:count] for place in self._places(tokens)]
        kept = self._kept(paths)
        rows = {(): 0} | {node: row for row, node in enumerate(kept, start=1)}
        parents = tuple(rows[node[:-1]] for node in kept)
        said = (Said("propose.match", NgramMatch(*self.match(tokens))), Said("propose.parents", parents))
        return ReferenceProposal(tuple(node[-1] for node in kept), said, parents)

    def _places(self, tokens: tuple[int, ...]) -> list[int]:
        """Where the tokens behind the longest suffix begin, of all earlier occurrences the first k that count."""
        length = self.match(tokens).length
        suffix = tokens[len(tokens) - length :]
        places = [place for place in range(length, len(tokens)) if length and tokens[place - length : place] == suffix]
        return (places if self.spec.match == "earliest" else places[::-1])[: self._tree.topk]

    def _kept(self, paths: list[Node]) -> list[Node]:
        """Return the nodes that the most paths share, in the order of levels; of equals the first ones."""
        order: list[Node] = [()]
        for node in order:
            longer = [path[: len(node) + 1] for path in paths if path[: len(node)] == node and len(path) > len(node)]
            order += dict.fromkeys(longer)
        shared = {node: sum(path[: len(node)] == node for path in paths) for node in order}
        best = sorted(order[1:], key=lambda node: (-shared[node], order.index(node)))[: self._tree.nodes]
        return sorted(best, key=order.index)
