"""Scenarios whose drafts are trees: their sizes, and the shapes that plans force. `K` steps of a tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of, variant, within
from draftproof.properties.features.feature import Feature, field_is_not
from draftproof.properties.features.lasting import lasting
from draftproof.properties.features.sampling import with_greedy_drafts
from draftproof.properties.features.some_requests import together
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.chain_tree import pages_as_tree
from draftproof.properties.values.drafts import DraftKind, Eagle, Ngram, kind_of
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, pages_needed
from draftproof.properties.values.tree import Tree, TreeShape

_TOPK = (2, 3, 2, 4, 2, 3, 8, 1)
_MATCHES = (3, 4, 3, 2, 3, 1)
_MOST_NODES, _MOST_MORE = 24, 8
_BELOW, _BEHIND = 95, 65
_BESIDE = 2
# Of tokens that tie for the highest logit, the lowest id is chosen.
_LIKELY = 2
_ROUNDS = 2
"""Of all drafts right, that a request has budget for: rows of two trees are to meet in a batch."""
_LIMITED = (False, True, False)
"""Whether `max_len` ends requests where it was drawn so."""


def with_tree(choose: Choose, scenario: Scenario, beams: Sequence[int] = ()) -> Scenario:
    """Draw a tree with one of these numbers of `beams`, and a shape for every round that forces drafts.

    The scenario gets the pages that the tree needs.
    """
    steps, draft = scenario.steps, scenario.draft
    vocab = (draft.head_vocab if isinstance(draft, Eagle) else 0) or scenario.model.vocab
    looks = kind_of(draft).proposes == "lookup"
    beams = beams or (_MATCHES if looks else _TOPK)
    topk = choose.one_of([one for one in beams if one < vocab] or [2])
    most = min(Tree(topk=topk, nodes=1).candidates(steps), max(_MOST_NODES, steps))
    sizes = (min(2 * steps + 1, most), steps, most, min(steps + 2, most))
    # Matches are few, and should not all fit.
    nodes = choose.one_of((*sizes, steps, min(steps + 1, most)) if looks else sizes)
    plain, scenario = scenario, _with_history(choose, scenario) if looks else scenario
    scenario = lasting(together(scenario if choose.one_of(_LIMITED) else _with_room(scenario)), _ROUNDS)
    first, *others = scenario.requests
    drawn = tuple(
        replace(request, rounds=tuple(_shaped(choose, plan, topk, nodes) for plan in request.rounds))
        for request in (_with_own(first, steps), *others)
    )
    return _with_pages(replace(scenario, tree=Tree(topk=topk, nodes=nodes), requests=drawn), plain)


def _with_room(scenario: Scenario) -> Scenario:
    """Return the scenario with a `max_len` that ends no request."""
    longest = max(len(one.prompt) + one.budget for one in scenario.requests)
    return put_in(scenario, "memory", max_len=max(scenario.memory.max_len, longest + scenario.steps))


def _with_history(choose: Choose, scenario: Scenario) -> Scenario:
    """Return the scenario with prompts that begin with a history of likely tokens.

    Each of them is continued in one way once, and in another way twice; the latter two share their first tokens and
    then differ.
    """
    vocab, history = scenario.model.vocab, list[int]()
    for token in range(_LIKELY):
        once, *shared, last = (choose.integer(0, vocab - 1) for _ in range(5))
        first, other = ((one + choose.integer(1, vocab - 1)) % vocab for one in (once, last))
        twice = (token, first, *shared)
        history += (token, once, *shared, *twice, last, *twice, other)
    requests = tuple(replace(one, prompt=(*history, *one.prompt)) for one in scenario.requests)
    longer, draft = replace(scenario.memory, max_len=scenario.memory.max_len + len(history)), scenario.draft
    if isinstance(draft, Ngram):
        # A long suffix seldom has several places; of lengths that differ there stay two.
        most = min(draft.max_n, max(choose.one_of((1, 2, 1, draft.max_n)), 1 + (draft.min_n < draft.max_n)))
        draft = replace(draft, max_n=most, min_n=min(draft.min_n, most))
    return replace(scenario, requests=requests, memory=longer, draft=draft)


def _with_own(request: Request, steps: int) -> Request:
    """Return a request that verifies its own proposal in its second round, unless it does so already."""
    if any(plan.num_correct < 0 for plan in request.rounds[:2]):
        return request
    own = RoundPlan(num_drafts=steps, num_correct=-1)
    return replace(request, rounds=(request.rounds[0], own, *request.rounds[1:]))


def without_tree(scenario: Scenario) -> Scenario:
    """Return the scenario with chains of drafts, and without a variant that needs a tree.

    A plan then asks for as many right drafts as its path had rows.
    """
    if scenario.variant == "chain_as_tree":
        return replace(scenario, variant="none")
    if scenario.tree is None:
        return scenario
    return replace(scenario, tree=None, requests=tuple(map(_chained, scenario.requests)))


def _chained(request: Request) -> Request:
    return replace(request, rounds=tuple(replace(plan, shape=None) for plan in request.rounds))


def beside_tree(scenario: Scenario) -> Scenario:
    """Return a scenario whose chains are compared with trees of topk 1, with pages for both; it may not be valid.

    Its drafts are greedy, because drafts of trees are not drawn.
    """
    made = replace(with_greedy_drafts(scenario), variant="chain_as_tree")
    return made if made.tree else put_in(made, "memory", pages=max(made.memory.pages, pages_as_tree(made)))


def with_nodes(scenario: Scenario, nodes: int) -> Scenario:
    """Return a scenario with a tree of at most `nodes` nodes; shapes and the drafts of plans are cut to fit."""
    assert scenario.tree is not None
    tree = replace(scenario.tree, nodes=min(nodes, scenario.tree.candidates(scenario.steps)))
    requests = (replace(one, rounds=tuple(_cut_to(plan, tree) for plan in one.rounds)) for one in scenario.requests)
    return replace(scenario, tree=tree, requests=tuple(requests))


def _cut_to(plan: RoundPlan, tree: Tree) -> RoundPlan:
    """Return a plan whose shape fits its depth and the tree's nodes."""
    if plan.shape is None or not plan.num_drafts:
        return replace(plan, shape=None, num_correct=min(plan.num_correct, 0))
    shape = plan.shape.cut(plan.num_drafts, tree.nodes)
    return replace(plan, shape=shape, num_correct=len(shape.path))


def _with_pages(scenario: Scenario, chained: Scenario) -> Scenario:
    """Return the scenario with pages for trees in the proportion in which it had them for chains."""
    before, after = (max(pages_needed(one, request) for request in one.requests) for one in (chained, scenario))
    pages = max(after, -(-scenario.memory.pages * after // before))
    return replace(scenario, memory=replace(scenario.memory, pages=pages))


def _shaped(choose: Choose, plan: RoundPlan, topk: int, nodes: int) -> RoundPlan:
    """Draw the shape of a plan: a path, and further rows below any row, before or behind the rows of the path."""
    if plan.num_correct < 0 or not plan.num_drafts:
        return plan
    right, depth = plan.num_correct, plan.num_drafts
    # Each row: its parent's place in this list (-1: row 0), its depth, and where it stands among rows of its depth.
    rows = [(place - 1, place + 1, _BEHIND) for place in range(right)]
    least = 0 if rows else 1
    for _ in range(choose.integer(least, max(least, min(_MOST_MORE, nodes - right)))):
        parents = [parent for parent, _, _ in rows]
        free = [
            place
            for place in range(-1, len(rows))
            if parents.count(place) < topk and (rows[place][1] if place >= 0 else 0) < depth
        ]
        # A chain may be as deep as this, and have room for one row less than the tree.
        if not free or len(rows) == nodes:
            break
        # Mostly beside a row of the path, or below its last, so that the walk has to choose.
        free += [place for place in free if place < right] * _BESIDE
        parent = free[choose.integer(0, _BELOW) % len(free)]
        rows.append((parent, (rows[parent][1] if parent >= 0 else 0) + 1, choose.integer(0, _BELOW)))
    order = sorted(range(len(rows)), key=lambda place: (rows[place][1], rows[place][2], place))
    number = {place: row for row, place in enumerate(order, start=1)} | {-1: 0}
    shape = TreeShape(
        parents=tuple(number[rows[place][0]] for place in order), path=tuple(number[place] for place in range(right))
    )
    return replace(plan, shape=shape)


def _is_beam(one: Any) -> bool:
    return "tree_rounds" in one.notes and one.depth > 1 and one.request.run.form.proposes == "steps"


def _is_path(commit: str) -> Callable[[Any], bool]:
    """Return a reader: the rows that were accepted are not the first ones of a tree, beside states of this commit."""
    return lambda one: one.request.run.layers == commit and "tree_entries_moved" in one.notes


def _passes_checkpoint(one: Any) -> bool:
    return one.is_hybrid and "tree_entries_moved" in one.notes and one.checkpoint in ("one", "two and more")


def _is_off_first_branch(one: Any) -> bool:
    return one.is_hybrid and "trees_off_first_branch" in one.notes


def _is_lookup(kind: DraftKind) -> bool:
    return kind.proposes == "lookup"


def _is_beamed(kind: DraftKind) -> bool:
    return kind.proposes != "lookup"


_round, _found = facts_of("round", real=False), facts_of("round", real=False, drafts=_is_lookup)
_sampled = facts_of("round", real=False, takes="sampling")
_states = facts_of("round", real=False, takes="hybrid")
_beamed = facts_of("round", drafts=_is_beamed)
_FACTS = (
    variant("chain_as_tree", real=False),
    *within("topk of a tree", "run", "topk", (1, 2, 3, 5), real=False),
    _beamed("beams", _is_beam, "tree: beams", channels="round.rows"),
    _round("tree_rounds", shown="tree: at all", real=_is_beamed, effect=True),
    _round("trees_of_their_own", shown="tree: proposed", real=_is_beamed),
    _round("trees_cut", shown="tree: cut"),
    _round("trees_cut_by_nodes", shown="tree: cut by its nodes", channels="round.rows"),
    _round(
        "trees_cut_by_limits",
        lambda one: "tree_rounds" in one.notes and one.limit in ("budget", "max_len"),
        "tree: cut by limits",
        channels="round.rows",
    ),
    _round("trees_rejected", shown="tree: rejected"),
    _round("trees_off_first_branch", shown="tree: off the first branch"),
    _round("trees_ended_at_leaf", shown="tree: ended at a leaf"),
    _round("trees_ended_inside", shown="tree: ended inside"),
    _round("trees_moved_to_another_page", shown="tree: moved to another page"),
    _found("matches_branched", shown="tree of matches: branched"),
    _found("matches_merged", shown="tree of matches: merged"),
    _found("matches_of_all_nodes", shown="tree of matches: all nodes"),
    _found("later_match_accepted", shown="tree of matches: a later one accepted"),
    _sampled("sampled_siblings_after_elder", shown="sampled tree: a sibling after its elder"),
    _sampled("sampled_tree_residuals", shown="sampled tree: ended above others"),
    _sampled("sampled_trees_rejected", shown="sampled tree: rejected"),
    _states("tree_states_snapshot", _is_path("snapshot"), "states of a tree: snapshots"),
    _states("tree_states_replay", _is_path("replay"), "states of a tree: replays"),
    _states("tree_states_off_first_branch", _is_off_first_branch, "states of a tree: off the first branch"),
    _states("tree_states_checkpoints", _passes_checkpoint, "states of a tree: checkpoints"),
)

FEATURE = Feature(
    name="trees",
    not_compared={"chain_as_tree": "its drafts are trees already"},
    what="drafts are trees",
    has=field_is_not("tree", None),
    without=without_tree,
    draw=with_tree,
    rule="S-TREE-1",
    drafts=lambda kind: kind.trees,
    because="it proposes chains or blocks",
    facts=_FACTS,
)
