"""Draft trees: their sizes, and the shapes that plans force (docs/semantics/trees.md, S-TREE).

`K` drafts of a chain, here the depth of a tree; a row's parent is a row before it, row 0 is the pending token.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from draftproof.properties.lib.base import Value

Row = Annotated[int, Meta(ge=0, le=64)]


class Tree(Value, frozen=True, kw_only=True):
    """A tree with `topk` beams a step, of which the `nodes` best candidates are verified; or one with as many matches.

    With a `topk` of 1 it is a chain.
    """

    topk: Annotated[int, Meta(ge=1, le=8)]
    nodes: Annotated[int, Meta(ge=1, le=64)]

    def candidates(self, depth: int) -> int:
        """Return how many candidates a tree of `depth` steps has."""
        return self.topk + (depth - 1) * self.topk**2 if depth else 0

    def rows(self, depth: int) -> int:
        """Return how many drafts a round of this depth verifies if nothing is forced."""
        return min(self.nodes, self.candidates(depth))

    def entries(self, depth: int) -> int:
        """Return how many entries the draft steps of a round of this depth make."""
        return max(depth - 1, 0) * self.topk

    def columns(self, depth: int) -> int:
        """Return how many columns of the page table a round of this depth takes, from its context on."""
        return max(self.rows(depth) + 1, self.entries(depth))


class TreeShape(Value, frozen=True, kw_only=True):
    """`parents` of rows 1, 2, .., level after level, and the `path` of those rows that are to be right."""

    parents: Annotated[tuple[Row, ...], Meta(min_length=1)]
    path: tuple[Row, ...] = ()

    def cut(self, depth: int, rows: int) -> TreeShape:
        """Return the part of the shape that a round of this depth with this many rows verifies."""
        deep = depths(self.parents)
        count = min(rows, sum(one <= depth for one in deep[1:]))
        return TreeShape(parents=self.parents[:count], path=tuple(row for row in self.path if row <= count))

    def filled(self, topk: int, depth: int, rows: int) -> TreeShape:
        """Return the shape with up to `rows` rows, the first rows of each level with all their `topk` children."""
        more, parents, number, level = rows - len(self.parents), list[int](), {0: 0}, [(0, 0)]
        for _ in range(depth):
            below = list[tuple[int, int]]()
            for own, at in level:
                old = children(self.parents, own) if own >= 0 else ()
                new = max(0, min(more, topk - len(old)))
                more -= new
                for child in (*old, *(-1,) * new):
                    parents.append(at)
                    number[child] = len(parents)
                    below.append((child, len(parents)))
            level = below
        return TreeShape(parents=tuple(parents), path=tuple(number[row] for row in self.path))

    def without(self, leaf: int) -> TreeShape:
        """Return the shape without a row that has no children and is not on the path."""
        kept = (parent for row, parent in enumerate(self.parents, start=1) if row != leaf)
        return TreeShape(
            parents=tuple(parent - (parent > leaf) for parent in kept),
            path=tuple(row - (row > leaf) for row in self.path),
        )


def depths(parents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the depth of every row, row 0 first."""
    found = [0]
    for parent in parents:
        found.append(found[parent] + 1)
    return tuple(found)


def lineage(parents: tuple[int, ...], row: int) -> tuple[int, ...]:
    """Return the ancestors of a row and itself, from below row 0 on: none of row 0."""
    return (*lineage(parents, parents[row - 1]), row) if row else ()


def children(parents: tuple[int, ...], row: int) -> tuple[int, ...]:
    """Return the children of a row."""
    return tuple(child for child, parent in enumerate(parents, start=1) if parent == row)


def chain(count: int) -> tuple[int, ...]:
    """Return the parents of the drafts of a chain: each is the row before it."""
    return tuple(range(count))
