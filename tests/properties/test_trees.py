"""Draft trees as values: shapes and how they are cut, what is refused, what is generated and what is left out."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from draftproof.fuzz.shrinking.reductions import PASSES, of_pass
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.features.adaptive_steps import with_steps
from draftproof.properties.features.trees import with_nodes, without_tree
from draftproof.properties.fit import fit
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put_in
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import RoundPlan, Scenario, States, pages_needed
from draftproof.properties.values.tree import Tree, TreeShape, children, depths, lineage
from tests.named import named
from tests.properties.evidence import STATIC, TREE, evidence_of, forced_tree
from tests.properties.facts import taking
from tests.properties.ideal import IdealSubject

OF_TRIES = ("matches_branched", "matches_merged", "matches_of_all_nodes", "later_match_accepted")
BUSH = TreeShape(parents=(0, 0, 1, 2, 2, 4), path=(2, 4, 6))


def test_shapes():
    assert depths(BUSH.parents) == (0, 1, 1, 2, 2, 2, 3)
    assert [lineage(BUSH.parents, row) for row in (0, 3, 6)] == [(), (1, 3), (2, 4, 6)]
    assert [children(BUSH.parents, row) for row in (0, 2, 6)] == [(1, 2), (4, 5), ()]


@pytest.mark.parametrize(
    ("depth", "rows", "parents", "path"),
    [
        (3, 9, (0, 0, 1, 2, 2, 4), (2, 4, 6)),
        (2, 9, (0, 0, 1, 2, 2), (2, 4)),
        (1, 9, (0, 0), (2,)),
        (3, 3, (0, 0, 1), (2,)),
        (1, 1, (0,), ()),
    ],
)
def test_a_shape_is_cut_to_levels_and_rows(depth: int, rows: int, parents: tuple[int, ...], path: tuple[int, ...]):
    assert BUSH.cut(depth, rows) == TreeShape(parents=parents, path=path)


@pytest.mark.parametrize(
    ("topk", "depth", "rows", "parents", "path"),
    [
        (2, 3, 9, (0, 0, 1, 1, 2, 2, 3, 3, 5), (2, 5, 9)),
        (2, 3, 6, BUSH.parents, BUSH.path),
        (2, 3, 2, BUSH.parents, BUSH.path),
        (3, 3, 8, (0, 0, 0, 1, 1, 2, 2, 6), (2, 6, 8)),
        (2, 3, 99, (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6), (2, 5, 11)),
    ],
)
def test_a_shape_is_filled_level_after_level(
    topk: int, depth: int, rows: int, parents: tuple[int, ...], path: tuple[int, ...]
):
    assert BUSH.filled(topk, depth, rows) == TreeShape(parents=parents, path=path)


def planned(*rounds: RoundPlan, **changes: Any) -> Scenario:
    """The tree scenario in which the first request has these plans."""
    requests = (replace(TREE.requests[0], rounds=rounds or TREE.requests[0].rounds), *TREE.requests[1:])
    return replace(TREE, **{"requests": requests, **changes})


ODD = RoundPlan(num_drafts=3, num_correct=2, shape=TreeShape(parents=(0, 0, 1), path=(1,)))

REFUSED = {
    "tree.nodes 2: expected from steps = 3, the depth, to the 10 candidates": planned(tree=Tree(topk=2, nodes=2)),
    "tree.nodes 11: expected from steps = 3": planned(tree=Tree(topk=2, nodes=11)),
    "tree.topk 5: expected below the 4 tokens": planned(
        tree=Tree(topk=5, nodes=5), draft=replace(TREE.draft, head_vocab=4)
    ),
    "requests[0].rounds[0].shape given: expected none but in rounds of a tree": planned(tree=None),
    "requests[0].rounds[0].shape None: expected one": planned(RoundPlan(num_drafts=2, num_correct=1)),
    "requests[0].rounds[0].shape.parents of 6 rows: expected at most tree.nodes = 5": planned(
        forced_tree(3, 0, 0, 1, 1, 2, 2)
    ),
    "requests[0].rounds[0].shape.parents [0, 2]: expected rows before": planned(forced_tree(3, 0, 2)),
    "requests[0].rounds[0].shape.parents [0, 1, 0]: expected rows level after level": planned(forced_tree(3, 0, 1, 0)),
    "requests[0].rounds[0].shape.parents [0, 1]: expected a depth of 1": planned(forced_tree(1, 0, 1)),
    "requests[0].rounds[0].shape.parents 3 of one row: expected at most tree.topk = 2": planned(
        forced_tree(3, 0, 0, 0)
    ),
    "requests[0].rounds[0].shape.path [2, 3]: expected rows of which each": planned(
        forced_tree(3, 0, 0, 1, path=(2, 3))
    ),
    "requests[0].rounds[0].num_correct 2: expected the 1 rows of shape.path": planned(ODD),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_does_not_fit_together_is_named(sentence: str):
    with pytest.raises(InvalidScenarioError) as refused:
        validate(REFUSED[sentence])
    assert f"invalid {sentence}" in str(refused.value)


def test_pages_hold_the_columns_of_a_tree_beyond_the_longest_length():
    one = TREE.requests[0]
    most = len(one.prompt) + one.budget
    assert Tree(topk=2, nodes=5).columns(3) == 6
    assert pages_needed(TREE, one) == -(-(most + 6) // 3)
    short = replace(TREE, memory=replace(TREE.memory, max_len=12))
    assert pages_needed(short, one) == 6


REPLAYED = replace(named("tree_coded_ngram"), states=replace(named("tree_coded_ngram").states, commit="replay"))
OF_HEADS = ("tree_eagle", "tree_sampled", "tree_hybrid_snapshot", "tree_hybrid_replay")
OF_DRAFTS = {
    "eagle": (*map(named, OF_HEADS), put_in(named("tree_eagle"), "model", kv_bits=8)),
    "ngram": (named("tree_ngram"), named("tree_coded_ngram"), REPLAYED),
}


@pytest.mark.parametrize(
    ("draft", "others"),
    [
        ("eagle", {*OF_TRIES, "topk_1", "topk_2"}),
        ("ngram", {"beams", "topk_1", "topk_2", "topk_5_and_more"}),
    ],
)
def test_trees_of_a_draft_reach_every_count_of_trees_that_it_can(draft: Algorithm, others: set[str]):
    found = Counter[str]()
    for scenario in OF_DRAFTS[draft]:
        of = evidence(IdealSubject(), validate(scenario))
        assert judge(of).passed
        found.update(counts(of))
    assert {name for name in taking("trees") if not found[name]} == others | {
        "prefix_hits_of_trees",
        "variant_chain_as_tree",
    }


def test_counts_of_a_round_say_how_its_walk_went():
    found = counts(evidence_of("verify.parents"))
    assert {
        name: found[name] for name in sorted(taking("trees") - taking("sampling") - taking("hybrid") - set(OF_TRIES))
    } == {
        "beams": 9,
        "prefix_hits_of_trees": 0,
        "topk_1": 0,
        "topk_2": 1,
        "topk_3_to_4": 0,
        "topk_5_and_more": 0,
        "tree_rounds": 9,
        "trees_cut": 2,
        "trees_cut_by_limits": 1,
        "trees_cut_by_nodes": 3,
        "trees_ended_at_leaf": 6,
        "trees_ended_inside": 1,
        "trees_of_their_own": 3,
        "trees_moved_to_another_page": 4,
        "trees_off_first_branch": 2,
        "trees_rejected": 2,
        "variant_chain_as_tree": 0,
    }
    assert not any(found[name] for name in taking("trees") & taking("hybrid"))
    assert not any(counts(evidence_of("draft.step.ids"))[name] for name in taking("trees"))


@pytest.mark.parametrize("commit", ["snapshot", "replay"])
def test_counts_of_states_along_trees_are_of_paths_that_leave_the_first_rows(commit: Literal["snapshot", "replay"]):
    scenario = validate(replace(TREE, model=STATIC.model, states=States(commit=commit, checkpoint=2)))
    found, names = counts(evidence(IdealSubject(), scenario)), sorted(taking("trees") & taking("hybrid"))
    other = {"snapshot": "replay", "replay": "snapshot"}[commit]
    assert {name: found[name] for name in names} == {
        "tree_states_checkpoints": 5,
        "tree_states_off_first_branch": 3,
        f"tree_states_{commit}": 5,
        f"tree_states_{other}": 0,
    }


@pytest.mark.parametrize("path", [(), (1,)])
def test_a_chain_that_a_tree_of_several_beams_verifies_has_what_plain_decoding_says_behind_its_trap(path):
    shape = TreeShape(parents=(0, 1, 2), path=path)
    plan = RoundPlan(num_drafts=3, num_correct=len(path), wrong="far", shape=shape)
    assert TREE.tree is not None
    assert TREE.tree.topk > 1
    for seed in range(15):
        made = planned(plan, model=replace(TREE.model, seed=seed))
        assert judge(evidence(IdealSubject(), made)).first is None


def test_a_subject_without_trees_gets_chains():
    fitted = fit(TREE, Limits())
    assert fitted == validate(without_tree(TREE))
    assert fitted.tree is None
    assert [plan.num_correct for plan in fitted.requests[0].rounds] == [3, 0, -1]
    assert fit(TREE, NO_LIMITS) == TREE
    assert without_tree(STATIC) is STATIC


def test_fewer_steps_and_nodes_cut_shapes():
    fewer = validate(with_steps(TREE, 2))
    assert (fewer.steps, fewer.tree) == (2, Tree(topk=2, nodes=5))
    assert fewer.requests[0].rounds[0].shape == TreeShape(parents=(0, 0, 1, 2), path=(2, 4))
    small = validate(with_nodes(TREE, 3))
    assert small.requests[0].rounds[0] == replace(
        TREE.requests[0].rounds[0], num_correct=1, shape=TreeShape(parents=(0, 0, 1), path=(2,))
    )


def shrunk(scenario: Scenario, keeps: Callable[[Scenario], bool]) -> Scenario:
    """Take the first smaller scenario that keeps something, until there is none."""
    while smaller := next((one for each in PASSES for one in of_pass(each, scenario) if keeps(one)), None):
        scenario = smaller
    return scenario


def test_trees_shrink_to_chains_and_to_the_rows_that_matter():
    assert shrunk(TREE, lambda one: True).tree is None
    least = shrunk(TREE, lambda one: one.tree is not None)
    assert (least.tree, least.steps) == (Tree(topk=2, nodes=1), 1)
    plans = [plan for request in least.requests for plan in request.rounds]
    assert all(plan.shape is None or plan.shape == TreeShape(parents=(0,)) for plan in plans)

    def off_first(one: Scenario) -> bool:
        shapes = [plan.shape for request in one.requests for plan in request.rounds if plan.shape]
        return any(len(shape.path) == 2 and shape.path[0] > 1 for shape in shapes)

    (request,) = shrunk(TREE, off_first).requests
    assert [plan.shape for plan in request.rounds] == [TreeShape(parents=(0, 0, 2), path=(2, 3))]
