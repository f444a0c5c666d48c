"""A chain of drafts as the tree that it is: of one beam a step, whose nodes are its drafts (S-TREE-14)."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.values.scenario import RoundPlan, Scenario, pages_needed
from draftproof.properties.values.script import Script
from draftproof.properties.values.tree import Tree, TreeShape, chain


def as_tree(scenario: Scenario) -> Scenario:
    """Return a scenario of chains with trees of topk 1 in their place; drafts that plans force have that shape."""
    requests = (replace(one, rounds=tuple(map(_shaped, one.rounds))) for one in scenario.requests)
    return replace(scenario, tree=Tree(topk=1, nodes=scenario.steps), requests=tuple(requests))


def pages_as_tree(scenario: Scenario) -> int:
    """Return the pages with which no request waits for another's, either way; one that is refused takes none."""
    tree = as_tree(scenario)
    return sum(pages_needed(tree, request) for request in tree.requests if request.flaw == "none")


def script_as_tree(script: Script) -> Script:
    """Return the script of a scenario of chains with the parents that its drafts have as a tree."""
    requests = (
        replace(one, rounds=tuple(replace(round_, parents=chain(round_.num_verified)) for round_ in one.rounds))
        for one in script.requests
    )
    return Script(requests=tuple(requests))


def _shaped(plan: RoundPlan) -> RoundPlan:
    if plan.num_correct < 0 or not plan.num_drafts:
        return plan
    path = tuple(range(1, plan.num_correct + 1))
    return replace(plan, shape=TreeShape(parents=chain(plan.num_drafts), path=path))
