"""The twins of ops on trees against every small tree: from lists of parents alone, without candidates' numbers."""

import itertools
from collections.abc import Iterator

import pytest
import torch

from draftproof.reference.others.trees import build_tree, tree_accept

WIDTH = 5


def parent_lists(width: int) -> Iterator[tuple[int, ...]]:
    """Yield each tree of so many nodes in level order, as the parent of each node but the root."""
    for parents in itertools.product(*(range(n) for n in range(1, width))):
        depth = [0]
        for parent in parents:
            depth.append(depth[parent] + 1)
        if list(parents) == sorted(parents) and depth == sorted(depth):
            yield parents


def candidates_of(parents: tuple[int, ...], topk: int) -> tuple[list[int], list[int]]:
    """Return the parents of groups and the candidates selected, numbered step by step, that make this tree."""
    number, used = {0: -1}, dict[int, int]()
    depth = [0]
    groups: list[int] = [-1]
    for node, parent in enumerate(parents, 1):
        depth.append(depth[parent] + 1)
        step = depth[node] - 1
        if parent == 0:
            group = 0
        else:
            # The groups of a step: its beams are those of the step before that have children, and fillers.
            first = 1 + (step - 1) * topk
            while len(groups) < first + topk:
                groups.append(-7)
            beams = groups[first : first + topk]
            if number[parent] not in beams:
                groups[first + beams.index(-7)] = number[parent]
            group = groups[first : first + topk].index(number[parent]) + first
        number[node] = group * topk + used.get(parent, 0)
        used[parent] = used.get(parent, 0) + 1
    return groups, [number[node] for node in range(1, len(parents) + 1)]


TREES = [parents for parents in parent_lists(WIDTH) if max(map(parents.count, parents)) <= 3]


def ancestors(parents: tuple[int, ...], node: int) -> set[int]:
    return {node} if node == 0 else {node} | ancestors(parents, parents[node - 1])


def built(parents: tuple[int, ...]) -> dict[str, torch.Tensor]:
    groups, selected = candidates_of(parents, 3)
    assert selected == sorted(selected)
    made = {name: torch.zeros(1, WIDTH, dtype=torch.int64) for name in ("positions", "index", "child", "sibling")}
    made["mask"] = torch.zeros(1, WIDTH, WIDTH, dtype=torch.int64)
    build_tree(*made.values(), torch.tensor([groups]), torch.tensor([selected]), torch.tensor([10]), 3, WIDTH)
    return made


def test_all_trees_of_five_nodes_are_there():
    assert len(TREES) == 13
    assert (0, 1, 2, 3) in TREES


@pytest.mark.parametrize("parents", TREES, ids=str)
def test_a_tree_is_laid_out_as_its_parents_say(parents):
    made = built(parents)
    for node in range(WIDTH):
        seen = ancestors(parents, node)
        assert made["positions"][0, node] == 10 + len(seen) - 1
        assert set(made["mask"][0, node].nonzero().flatten().tolist()) == seen
        children = [child for child, parent in enumerate(parents, 1) if parent == node]
        assert made["child"][0, node] == (children[0] if children else -1)
        for child, after in itertools.zip_longest(children, children[1:], fillvalue=-1):
            assert made["sibling"][0, child] == after


@pytest.mark.parametrize("parents", TREES[::3], ids=str)
def test_a_walk_is_the_longest_path_that_the_target_chose(parents):
    made = built(parents)
    tokens = torch.tensor([[9, *(parents[:node].count(parent) for node, parent in enumerate(parents))]])
    for choices in itertools.product(range(3), repeat=WIDTH):
        target = torch.tensor([choices])
        predict, index = torch.full((1, WIDTH), -5), torch.zeros(1, WIDTH, dtype=torch.int64)
        correct = torch.zeros(1, dtype=torch.int64)
        tree_accept(predict, index, correct, tokens, made["child"], made["sibling"], target)
        # A node is on the walk if each of its ancestors below the root is what the target chose at its parent.
        fits = [
            node
            for node in range(WIDTH)
            if all(tokens[0, one] == choices[parents[one - 1]] for one in ancestors(parents, node) - {0})
        ]
        assert index[0].tolist() == fits + [-1] * (WIDTH - len(fits))
        assert correct[0] == len(fits) - 1
        assert predict[0].tolist() == [choices[node] if node in fits else -5 for node in range(WIDTH)]
