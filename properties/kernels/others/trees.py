"""Calls of ops on draft trees. `B` rows of a launch, `W` verify width: the nodes of a tree, its root among them.

Candidates are numbered as EAGLE does: `topk` of the first step, then `topk` children of each of `topk` beams a step.
Group g has the candidates g * topk ..; `parents[g]` is the candidate that is their parent.
"""

from __future__ import annotations

from itertools import pairwise

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls


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


def _trees(choose: Choose, batch: int) -> tuple[int, int, list[list[int]], list[list[int]]]:
    """Return topk, steps, and of each request the parents of groups and the candidates selected."""
    topk, steps = choose.one_of(((1, 3), (2, 3), (3, 2), (2, 4), (4, 3), (3, 1), (1, 5)))
    most = topk + (steps - 1) * topk * topk
    count = choose.integer(1, min(8, most))
    pick = bf.generator(choose)
    parents = [_candidates(pick, topk, steps) for _ in range(batch)]
    return topk, steps, parents, [_selected(pick, one, topk, count) for one in parents]


@calls()
def build_tree(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose chains, bushes and trees of up to eight nodes beside the root, of requests of any length."""
    batch = choose.integer(1, 5)
    topk, steps, parents, selected = _trees(choose, batch)
    width = len(selected[0]) + 1
    return {
        "positions": bf.unwritten(choose, (batch, width), torch.int64),
        "retrieve_index": bf.unwritten(choose, (batch, width), torch.int64),
        "next_token": bf.unwritten(choose, (batch, width), torch.int64),
        "next_sibling": bf.unwritten(choose, (batch, width), torch.int64),
        "mask": bf.unwritten(choose, (batch, width, width), torch.int64),
        "parents": bf.index(choose, parents),
        "selected": bf.index(choose, selected),
        "seq_lens": bf.index(choose, bf.numbers(choose, (batch,), 60)),
        "topk": topk,
        "steps": steps,
    }


@calls()
def tree_accept(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose trees of few tokens, so that walks go on, and end at siblings that do not fit; ends before the leaves."""
    batch = choose.integer(1, 5)
    topk, _, parents, selected = _trees(choose, batch)
    width = len(selected[0]) + 1
    links = [_links(one, chosen, topk) for one, chosen in zip(parents, selected, strict=True)]
    target = bf.numbers(choose, (batch, width), topk + 1)
    # Siblings have distinct tokens.
    tokens = [[7, *(candidate % topk for candidate in chosen)] for chosen in selected]
    deepest = choose.integer(1, width)
    return {
        "predict": bf.unwritten(choose, (batch, width), torch.int64),
        "accept_index": bf.unwritten(choose, (batch, deepest), torch.int64),
        "correct_len": bf.unwritten(choose, (batch,), torch.int64),
        "candidates": bf.index(choose, tokens),
        "next_token": bf.index(choose, [one[0] for one in links]),
        "next_sibling": bf.index(choose, [one[1] for one in links]),
        "target": bf.index(choose, target % max(2, topk)),
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
