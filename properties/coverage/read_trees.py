"""What rounds of draft trees were, and what came of drafts at all. `K` drafts of a round, of a tree its depth."""

from __future__ import annotations

from typing import NamedTuple

from draftproof.properties.values.drafts import kind_of
from draftproof.properties.values.scenario import Scenario, round_plan
from draftproof.properties.values.script import RoundScript
from draftproof.properties.values.tree import children, depths

SAMPLED_TREES = ("sampled_siblings_after_elder", "sampled_tree_residuals", "sampled_trees_rejected")
"""Of sampled requests: a walk went on with a row whose elder sibling was rejected; it ended at a row with rows below;
it ended at row 0."""
OF_TREES = (
    "tree_rounds",
    "trees_of_their_own",
    "trees_cut",
    "trees_rejected",
    "trees_off_first_branch",
    "trees_ended_at_leaf",
    "trees_ended_inside",
    "tree_entries_moved",
)
"""Counts of rounds whose drafts are a tree, by what it is and how the walk went."""
OF_TRIES = ("matches_branched", "matches_merged", "matches_of_all_nodes", "later_match_accepted")
"""Of trees that several matches make: they begin or go on in different ways; they begin alike and go on differently;
there are as many rows as the tree may have; a walk left the first branch."""


def accept_of(drafts: int, correct_len: int) -> str:
    if not drafts:
        return "no drafts"
    if not correct_len:
        return "none"
    return "all" if correct_len == drafts else "partial"


def levels_of(solved: RoundScript) -> int:
    """Return how many levels of drafts a round of a tree verified."""
    return max(depths(solved.parents))


def asked_of_tree(scenario: Scenario, request: int, number: int, depth: int, levels: int) -> str:
    """Return what the plan of a round asks for, as in `RoundSample`."""
    plan = round_plan(scenario.requests[request], number)
    if scenario.requests[request].sampling and plan.num_correct >= 0:
        return "drawn"
    if levels and plan.num_correct < 0:
        return "own"
    shape = plan.shape.cut(depth, scenario.most_drafts(depth)) if plan.shape and depth else None
    return accept_of(levels, len(shape.path) if shape else 0)


class OfTree(NamedTuple):
    """Values of coverpoints of one round, None where its drafts are no tree."""

    path: str | None = None
    topk: str | None = None
    nodes: str | None = None
    moved: str | None = None


def tree_values(
    scenario: Scenario, solved: RoundScript, context: int, depth: int, walk: tuple[int, ...], size: int
) -> OfTree:
    """Return what a round was, of which the rows of `walk` were accepted, behind a context on pages of `size`."""
    tree, parents = scenario.tree, solved.parents
    if tree is None or not parents:
        return OfTree()
    some = len(parents) < tree.candidates(depth)
    return OfTree(
        path=_path(parents, walk),
        topk=str(tree.topk) if tree.topk < 3 else "3 and 4" if tree.topk < 5 else "5 and more",
        nodes=None if solved.forced is not None or not depth else "some" if some else "all",
        moved=_moved(context, walk, size),
    )


def _path(parents: tuple[int, ...], walk: tuple[int, ...]) -> str:
    """Return which way the walk went, and whether to a row with none below."""
    if not walk:
        return "nothing"
    branch = "first" if _is_first(parents, walk) else "other"
    return f"{branch} branch" if children(parents, walk[-1]) else f"{branch} to its end"


def _is_first(parents: tuple[int, ...], walk: tuple[int, ...]) -> bool:
    return all(row == children(parents, at)[0] for at, row in zip((0, *walk), walk, strict=False))


def _moved(context: int, walk: tuple[int, ...], size: int) -> str:
    """Return how far accepted entries move: row r is at place n + r, and the i-th of the path goes to n + i."""
    moves = [(context + row, context + place) for place, row in enumerate(walk, start=1) if row != place]
    if not moves:
        return "nothing"
    return "to another page" if any(start // size != end // size for start, end in moves) else "in a page"


def read_tree(
    scenario: Scenario, solved: RoundScript, depth: int, walk: tuple[int, ...], *, is_sampled: bool
) -> frozenset[str]:
    """Return the counts of trees that a round adds to, of which the rows of `walk` were accepted."""
    parents = solved.parents
    if not parents or scenario.tree is None:
        return frozenset()
    first = _is_first(parents, walk)
    branches = [row for row in range(len(parents)) if len(children(parents, row)) > 1]
    is_found = solved.forced is None and kind_of(scenario.draft).proposes == "lookup"
    is_so = {
        "tree_rounds": True,
        "trees_of_their_own": solved.forced is None,
        "trees_cut": depth < scenario.steps,
        "trees_rejected": not walk,
        "trees_off_first_branch": not first,
        "trees_ended_at_leaf": bool(walk) and not children(parents, walk[-1]),
        "trees_ended_inside": bool(walk) and bool(children(parents, walk[-1])),
        "tree_entries_moved": walk != tuple(range(1, len(walk) + 1)),
        "matches_branched": is_found and bool(branches),
        "matches_merged": is_found and any(branches),
        "matches_of_all_nodes": is_found and bool(branches) and len(parents) == scenario.tree.nodes,
        "later_match_accepted": is_found and not first,
        "sampled_siblings_after_elder": is_sampled and not first,
        "sampled_tree_residuals": is_sampled and bool(children(parents, (0, *walk)[-1])),
        "sampled_trees_rejected": is_sampled and not walk,
    }
    return frozenset(name for name, is_one in is_so.items() if is_one)
