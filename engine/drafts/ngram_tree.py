"""N-gram drafts as a tree: what followed several occurrences of the longest suffix, merged in a trie.

Nothing is launched, as of a chain. Sources: SGLang's n-gram draft; docs/semantics/ngram.md, S-NGRAM-4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from draftproof.engine.drafts.ngram import NgramDraft, NgramIndex
from draftproof.engine.models.base import NgramSettings
from draftproof.engine.stages import DecodeRow, HostDrafts


class NgramTreeIndex(NgramIndex):
    """With the places behind all occurrences of each n-gram, ascending."""

    def __init__(self, settings: NgramSettings, tokens: Sequence[int]) -> None:
        self._behind = defaultdict[tuple[int, ...], list[int]](list)
        super().__init__(settings, tokens)

    def advance(self, tokens: Sequence[int]) -> None:
        """See NgramIndex."""
        first = len(self._tokens)
        super().advance(tokens)
        for place in range(first, len(self._tokens)):
            for size in self._sizes:
                if size <= place:
                    self._behind[tuple(self._tokens[place - size : place])].append(place)

    def paths(self, most: int, count: int) -> list[list[int]]:
        """Return at most `most` tokens after each of `count` occurrences of the match, the one that counts first."""
        size, _ = self._longest()
        if not size:
            return []
        places = self._behind[tuple(self._tokens[-size:])]
        return [self._tokens[at : at + most] for at in islice(places if self._earliest else reversed(places), count)]


class _Node:
    """A token of a trie, with the row that it becomes: how many paths go through it, and its children by token."""

    def __init__(self, token: int = 0, above: _Node | None = None) -> None:
        self.token, self.above, self.count, self.row = token, above, 0, 0
        self.children: dict[int, _Node] = {}

    def insert(self, path: Iterable[int]) -> None:
        """Count a path that begins here; children stand in the order in which they came."""
        node = self
        for token in path:
            node = node.children.setdefault(token, _Node(token, node))
            node.count += 1

    def levels(self) -> list[_Node]:
        """Return everything below, level after level."""
        found, level = list[_Node](), list(self.children.values())
        while level:
            found += level
            level = [child for node in level for child in node.children.values()]
        return found


def merge(paths: Iterable[Sequence[int]], nodes: int) -> tuple[list[int], list[int]]:
    """Return the tokens and parents of the rows that several paths make: at most `nodes`, shared the most.

    A child is shared by no more paths than its parent and stands behind it, so that the parent of what is kept is kept.
    """
    root = _Node()
    for path in paths:
        root.insert(path)
    found = root.levels()
    best = sorted(range(len(found)), key=lambda at: -found[at].count)[:nodes]
    tokens, parents = list[int](), list[int]()
    for at in sorted(best):
        node = found[at]
        assert node.above is not None
        tokens.append(node.token)
        parents.append(node.above.row)
        node.row = len(tokens)
    return tokens, parents


class NgramTreeDraft(NgramDraft):
    """A `Draft`."""

    index = NgramTreeIndex
    _indices: dict[int, NgramTreeIndex]  # type: ignore[assignment]  # each was made by `index`

    def look_up(self, batch: tuple[DecodeRow, ...]) -> HostDrafts:
        """Return the trie of each row, as deep as its num_drafts."""
        self._catch_up()
        tree = self.context.config.tree
        assert tree is not None
        paths = [self._indices[row.request.id].paths(row.num_drafts, tree.topk) for row in batch]
        found = [merge(each, tree.nodes) for each in paths]
        return HostDrafts([tokens for tokens, _ in found], [parents for _, parents in found])


ALGORITHM = NgramTreeDraft
