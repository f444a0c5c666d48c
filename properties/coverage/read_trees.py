"""What rounds of draft trees were, and what came of drafts at all. `K` drafts of a round, of a tree its depth."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.drafts import kind_of
from draftproof.properties.values.scenario import Scenario, round_plan
from draftproof.properties.values.script import RoundScript
from draftproof.properties.values.tree import children, depths


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


def _is_first(parents: tuple[int, ...], walk: tuple[int, ...]) -> bool:
    return all(row == children(parents, at)[0] for at, row in zip((0, *walk), walk, strict=False))


def read_tree(
    evidence: Evidence, request: int, solved: RoundScript, depth: int, walk: tuple[int, ...]
) -> Iterator[str]:
    """Yield the facts of a round whose drafts form a tree; `walk` are the rows that were accepted."""
    tree, parents = evidence.scenario.tree, solved.parents
    if not parents or tree is None:
        return
    is_first, is_sampled = _is_first(parents, walk), evidence.scenario.requests[request].sampling is not None
    is_at_leaf = not children(parents, (0, *walk)[-1])
    is_so = {
        "tree_rounds": True,
        "trees_of_their_own": solved.forced is None,
        "trees_cut": depth < evidence.scenario.steps,
        "trees_cut_by_nodes": solved.forced is None and depth > 0 and len(parents) < tree.candidates(depth),
        "trees_rejected": not walk,
        "trees_off_first_branch": not is_first,
        "trees_ended_at_leaf": bool(walk) and is_at_leaf,
        "trees_ended_inside": bool(walk) and not is_at_leaf,
        "tree_entries_moved": walk != tuple(range(1, len(walk) + 1)),
        "trees_moved_to_another_page": _is_moved_to_another_page(solved.context, walk, evidence.page_size),
        "sampled_siblings_after_elder": is_sampled and not is_first,
        "sampled_tree_residuals": is_sampled and not is_at_leaf,
        "sampled_trees_rejected": is_sampled and not walk,
    }
    yield from (name for name, is_one in is_so.items() if is_one)
    if solved.forced is None and kind_of(evidence.scenario.draft).proposes == "lookup":
        yield from _found(parents, walk, tree.nodes)


def _found(parents: tuple[int, ...], walk: tuple[int, ...], nodes: int) -> Iterator[str]:
    """Yield the facts of a tree that several matches make."""
    branches = [row for row in range(len(parents)) if len(children(parents, row)) > 1]
    is_so = {
        "matches_branched": bool(branches),
        "matches_merged": any(branches),
        "matches_of_all_nodes": bool(branches) and len(parents) == nodes,
        "later_match_accepted": not _is_first(parents, walk),
    }
    yield from (name for name, is_one in is_so.items() if is_one)


def _is_moved_to_another_page(context: int, walk: tuple[int, ...], size: int) -> bool:
    """Return whether an accepted entry leaves its page: row r is at place n + r, the i-th of the path goes to n + i."""
    moves = ((context + row, context + place) for place, row in enumerate(walk, start=1) if row != place)
    return any(start // size != end // size for start, end in moves)
