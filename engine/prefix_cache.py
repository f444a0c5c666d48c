"""Committed pages kept for requests that begin with the same tokens: a radix tree in units of a page (S-CACHE).

A node is one page. An entry of the draft at position i is made of tokens up to i + `lookahead`, so that the key of a
page has so many tokens behind its own: SGLang's bigram keys of EAGLE, for any draft. `P` page size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Tokens = tuple[int, ...]


@dataclass(eq=False)
class Node:
    """A page behind that of its parent; `locks` requests run on it, and it was last used at the time `used`."""

    page: int
    key: Tokens
    parent: Node | None
    children: dict[Tokens, Node] = field(default_factory=dict)
    locks: int = 0
    used: int = 0


class PrefixCache:
    """The tree, with locks of running requests and eviction of what was used least recently.

    One that keeps nothing never finds anything.
    """

    def __init__(self, page_size: int, lookahead: int, *, keeps: bool) -> None:
        self._page_size, self._lookahead, self._keeps = page_size, lookahead, keeps
        self._root = Node(0, (), None)
        self._time = 0

    def nodes(self) -> Iterator[Node]:
        """Yield every page of the tree, parents before children."""
        found = list(self._root.children.values())
        while found:
            node = found.pop()
            yield node
            found.extend(node.children.values())

    def match(self, text: Tokens) -> tuple[Node, ...]:
        """Return the pages that hold the beginning of a text, of which at least the last token is left to run."""
        found, node = [], self._root
        for page in range((len(text) - max(1, self._lookahead)) // self._page_size):
            child = node.children.get(self._key(text, page))
            if child is None:
                break
            found.append(child)
            node = child
        return tuple(found)

    def lock(self, path: Sequence[Node]) -> None:
        """Keep pages for a request that runs on them."""
        self._use(path)
        for node in path:
            node.locks += 1

    def insert(self, text: Tokens, extended: int, pages: Sequence[int], locked: Sequence[Node]) -> tuple[int, ...]:
        """Keep the pages of a request that ran on `locked`, as far as they are final; return those to be freed.

        The draft's entries were extended to `extended` positions, of which the last may be made of guesses.
        """
        for node in locked:
            node.locks -= 1
        final = (extended - max(0, self._lookahead - 1)) // self._page_size if self._keeps else 0
        final = max(len(locked), final)
        path, freed = list[Node](), list(pages[final:])
        for number, page in enumerate(pages[:final]):
            parent, key = path[-1] if path else self._root, self._key(text, number)
            node = parent.children.setdefault(key, Node(page, key, parent))
            path.append(node)
            if node.page != page:
                freed.append(page)
        self._use(path)
        return tuple(freed)

    @property
    def evictable(self) -> int:
        """Return how many pages nobody runs on."""
        return sum(not node.locks for node in self.nodes())

    def evict(self, count: int) -> tuple[int, ...]:
        """Give up `count` pages: those used least recently, of which no page behind them is left."""
        evicted = []
        for _ in range(count):
            leaf = min((one for one in self.nodes() if not (one.locks or one.children)), key=lambda one: one.used)
            assert leaf.parent is not None
            del leaf.parent.children[leaf.key]
            evicted.append(leaf.page)
        return tuple(evicted)

    def prefix(self, node: Node) -> Tokens:
        """Return the tokens up to the end of a page, and those that its key has behind it."""
        above = self.prefix(node.parent) if node.parent else ()
        return above[: len(above) - self._lookahead] + node.key if above else node.key

    def check(self, running: Sequence[Sequence[Node]]) -> None:
        """Raise RuntimeError unless every page is locked once for each of the paths that run on it."""
        for node in self.nodes():
            if node.locks != sum(node in path for path in running):
                raise RuntimeError(f"page {node.page} of the prefix cache has {node.locks} locks")

    def _key(self, text: Tokens, page: int) -> Tokens:
        return text[page * self._page_size : (page + 1) * self._page_size + self._lookahead]

    def _use(self, path: Sequence[Node]) -> None:
        self._time += 1
        for node in path:
            node.used = self._time
