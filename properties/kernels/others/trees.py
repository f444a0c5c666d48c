"""Calls of ops on draft trees. `B` rows of a launch, `W` verify width: the nodes of a tree, its root among them.

Candidates are numbered as EAGLE does: `topk` of the first step, then `topk` children of each of `topk` beams a step.
Group g is that of candidates g * topk ..; `parents[g]` is the candidate whose children they are.
"""

from __future__ import annotations

from itertools import pairwise

import torch

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls
from draftproof.properties.strategies.examples import integers, sampled


def _candidates(pick: torch.Generator, topk: int, steps: int) -> list[int]:
    """Return the parent of each group of candidates: -1 of the first, then of `topk` beams a step."""
    parents, beams = [-1], list(range(topk))
    for step in range(1, steps):
        parents += beams
        first = topk + (step - 1) * topk * topk
        beams = [first + one for one in torch.randperm(topk * topk, generator=pick)[:topk].tolist()]
    return parents


def _selected(pick: torch.Generator, parents: list[int], topk: int, count: int) -> list[int]:
    """Return that many candidates, in order of their numbers: each one's parent is among them."""
    chosen: list[int] = []
    for _ in range(count):
        free = [
            g * topk + j
            for g, parent in enumerate(parents)
            if parent < 0 or parent in chosen
            for j in range(topk)
            if g * topk + j not in chosen
        ]
        chosen.append(free[int(torch.randint(len(free), (1,), generator=pick))])
    return sorted(chosen)


def _trees(draw: Draw, batch: int) -> tuple[int, int, list[list[int]], list[list[int]]]:
    """Return topk, steps, and of each request the parents of groups and the candidates selected."""
    topk, steps = draw(sampled(((1, 3), (2, 3), (3, 2), (2, 4), (4, 3), (3, 1), (1, 5))))
    most = topk + (steps - 1) * topk * topk
    count = draw(integers(1, min(8, most)))
    pick = torch.Generator().manual_seed(draw(integers(0, 2**32 - 1)))
    parents = [_candidates(pick, topk, steps) for _ in range(batch)]
    return topk, steps, parents, [_selected(pick, one, topk, count) for one in parents]


@calls()
def build_tree(draw: Draw) -> Arguments:
    """Draw chains, bushes and trees of up to eight nodes beside the root, of requests of any length."""
    batch = draw(integers(1, 5))
    topk, steps, parents, selected = _trees(draw, batch)
    width = len(selected[0]) + 1
    return {
        "positions": bf.unwritten(draw, (batch, width), torch.int64),
        "retrieve_index": bf.unwritten(draw, (batch, width), torch.int64),
        "next_token": bf.unwritten(draw, (batch, width), torch.int64),
        "next_sibling": bf.unwritten(draw, (batch, width), torch.int64),
        "mask": bf.unwritten(draw, (batch, width, width), torch.int64),
        "parents": bf.index(draw, parents),
        "selected": bf.index(draw, selected),
        "seq_lens": bf.index(draw, bf.numbers(draw, (batch,), 60)),
        "topk": topk,
        "steps": steps,
    }


@calls()
def tree_accept(draw: Draw) -> Arguments:
    """Draw trees of few tokens, so that walks go on, and end at siblings that do not fit; ends before the leaves."""
    batch = draw(integers(1, 5))
    topk, _, parents, selected = _trees(draw, batch)
    width = len(selected[0]) + 1
    links = [_links(one, chosen, topk) for one, chosen in zip(parents, selected, strict=True)]
    target = bf.numbers(draw, (batch, width), topk + 1)
    # Siblings have distinct tokens.
    tokens = [[7, *(candidate % topk for candidate in chosen)] for chosen in selected]
    deepest = draw(integers(1, width))
    return {
        "predict": bf.unwritten(draw, (batch, width), torch.int64),
        "accept_index": bf.unwritten(draw, (batch, deepest), torch.int64),
        "correct_len": bf.unwritten(draw, (batch,), torch.int64),
        "candidates": bf.index(draw, tokens),
        "next_token": bf.index(draw, [one[0] for one in links]),
        "next_sibling": bf.index(draw, [one[1] for one in links]),
        "target": bf.index(draw, target % max(2, topk)),
    }


def _links(parents: list[int], selected: list[int], topk: int) -> tuple[list[int], list[int]]:
    """Return the first child of each node of a tree, and the next sibling; -1 if there is none."""
    above = [-1, *(1 + selected.index(parents[one // topk]) if one >= topk else 0 for one in selected)]
    children = [[m for m, parent in enumerate(above) if parent == n] for n in range(len(above))]
    sibling = [-1] * len(above)
    for row in children:
        for one, after in pairwise(row):
            sibling[one] = after
    return [row[0] if row else -1 for row in children], sibling
