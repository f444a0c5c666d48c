"""Committed pages kept for requests that begin with the same tokens: a radix tree in units of a page (S-CACHE).

A node is one page. An entry of the draft at position i depends on tokens up to i + `lookahead`, so the key of a page
has `lookahead` tokens more than the page: SGLang's bigram keys of EAGLE, for any draft. For a model with recurrent
states a page is served only up to one with a checkpoint: the state after its last token (SGLang's MambaRadixCache).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from draftproof.engine.states.slots import StateSlots

Tokens = tuple[int, ...]


@dataclass(eq=False)
class Node:
    """A page behind its parent's; `locks` requests run on it, and it was last used at the time `used`.

    `checkpoint` is the slot of the state after it (0: none), last used at the time `restored`.
    """

    page: int
    key: Tokens
    parent: Node | None
    children: dict[Tokens, Node] = field(default_factory=dict)
    locks: int = 0
    used: int = 0
    checkpoint: int = 0
    restored: int = 0


class Evicted(NamedTuple):
    """Pages that a cache gave up, and the slots of their checkpoints."""

    pages: tuple[int, ...] = ()
    checkpoints: tuple[int, ...] = ()


class PrefixCache:
    """The tree, with locks of running requests and eviction of what was used least recently.

    One that keeps nothing never finds anything. `checkpoints` are the slots of states, None of a model without any.
    """

    def __init__(self, page_size: int, lookahead: int, *, keeps: bool, checkpoints: StateSlots | None = None) -> None:
        self._page_size, self._lookahead, self.keeps = page_size, lookahead, keeps
        self.checkpoints = checkpoints
        self._root = Node(0, (), None)
        self._time = 0

    def nodes(self) -> Iterator[Node]:
        """Yield every page of the tree, parents before children."""
        found = list(self._root.children.values())
        while found:
            node = found.pop()
            yield node
            found.extend(node.children.values())

    def match(self, text: Tokens, most: int) -> tuple[Node, ...]:
        """Return the pages that hold the beginning of a text: at most `most` tokens of it, and never the last one."""
        found, node = [], self._root
        for page in range(min(most, len(text) - max(1, self._lookahead)) // self._page_size):
            child = node.children.get(self._key(text, page))
            if child is None:
                break
            found.append(child)
            node = child
        while self.checkpoints and found and not found[-1].checkpoint:
            found.pop()
        return tuple(found)

    def lock(self, path: Sequence[Node]) -> None:
        """Keep pages for a request that runs on them."""
        self._use(path)
        for node in path:
            node.locks += 1
        if path:
            path[-1].restored = self._time

    def keep(self, text: Tokens, extended: int, pages: Sequence[int], locked: Sequence[Node]) -> tuple[Node, ...]:
        """Keep and lock the final pages of a request that goes on, up to the first that is kept on another page.

        It ran on `locked`; return what it runs on now. See `insert`.
        """
        path = list(locked)
        for number in range(len(path), self._final(extended)):
            parent, key = path[-1] if path else self._root, self._key(text, number)
            if key in parent.children:
                break
            path.append(Node(pages[number], key, parent, locks=1))
            parent.children[key] = path[-1]
        return tuple(path)

    def insert(
        self, text: Tokens, extended: int, pages: Sequence[int], locked: Sequence[Node]
    ) -> tuple[tuple[int, ...], tuple[Node, ...]]:
        """Keep the pages of a request that ran on `locked`, as far as they are final.

        The draft's entries were extended to `extended` positions; the last of these may depend on guesses. Return the
        pages to free, and the nodes that hold its text.
        """
        for node in locked:
            node.locks -= 1
        final = max(len(locked), self._final(extended))
        path, freed = list[Node](), list(pages[final:])
        for number, page in enumerate(pages[:final]):
            parent, key = path[-1] if path else self._root, self._key(text, number)
            node = parent.children.setdefault(key, Node(page, key, parent))
            path.append(node)
            if node.page != page:
                freed.append(page)
        self._use(path)
        return tuple(freed), tuple(path)

    def keep_state(self, path: Sequence[Node], tokens: int) -> int:
        """Return the slot for the state after `tokens` tokens, 0 unless a page of the path ends there without a state.

        If no slot is free, the least recently used state gives up its slot.
        """
        page, rest = divmod(tokens, self._page_size)
        if not self.checkpoints or rest or not 0 < page <= len(path) or path[page - 1].checkpoint:
            return 0
        if not self.checkpoints.free:
            kept = [node for node in self.nodes() if node.checkpoint]
            if not kept:
                return 0
            oldest = min(kept, key=lambda one: one.restored)
            self.checkpoints.give_back(oldest.checkpoint)
            oldest.checkpoint = 0
        self._time += 1
        path[page - 1].checkpoint, path[page - 1].restored = self.checkpoints.take(), self._time
        return path[page - 1].checkpoint

    @property
    def evictable(self) -> int:
        """Return how many pages no request runs on."""
        return sum(not node.locks for node in self.nodes())

    def evict(self, count: int) -> Evicted:
        """Give up `count` pages with their checkpoints: those used least recently, with no page behind them left."""
        evicted, states = [], []
        for _ in range(count):
            leaf = min((one for one in self.nodes() if not (one.locks or one.children)), key=lambda one: one.used)
            assert leaf.parent is not None
            del leaf.parent.children[leaf.key]
            evicted.append(leaf.page)
            if self.checkpoints and leaf.checkpoint:
                states.append(leaf.checkpoint)
                self.checkpoints.give_back(leaf.checkpoint)
        return Evicted(tuple(evicted), tuple(states))

    def prefix(self, node: Node) -> Tokens:
        """Return the tokens up to the end of a page, and those that its key has behind it."""
        pages = [node.key]
        while node.parent is not None:
            node = node.parent
            pages.append(node.key[: self._page_size])
        return tuple(chain.from_iterable(reversed(pages)))

    def check(self, running: Sequence[Sequence[Node]]) -> None:
        """Raise RuntimeError unless pages are locked once for each path that runs on them, and no slot is lost."""
        for node in self.nodes():
            if node.locks != sum(node in path for path in running):
                raise RuntimeError(f"page {node.page} of the prefix cache has {node.locks} locks")
        if self.checkpoints:
            self.checkpoints.check([node.checkpoint for node in self.nodes() if node.checkpoint])

    def _final(self, extended: int) -> int:
        return max(0, extended - max(0, self._lookahead - 1)) // self._page_size if self.keeps else 0

    def _key(self, text: Tokens, page: int) -> Tokens:
        return text[page * self._page_size : (page + 1) * self._page_size + self._lookahead]

    def _use(self, path: Sequence[Node]) -> None:
        self._time += 1
        for node in path:
            node.used = self._time
