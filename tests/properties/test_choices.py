"""What facts say of choices, of trees and of memory, by hand."""

from types import SimpleNamespace

import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.coverage.counts import counts
from draftproof.properties.coverage.facts import FACTS_BY_NAME
from draftproof.properties.coverage.read_trees import read_tree
from draftproof.properties.features.sampling import SAMPLING
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.script import RoundScript
from tests.properties.evidence import CACHED, PREEMPTED, STATIC, TREE, by_engine, evidence


def of_sampling(sampling: Sampling) -> set[str]:
    """Return the facts of how a request draws its tokens."""
    request = SimpleNamespace(request=SimpleNamespace(sampling=sampling))
    return {fact.name for fact in SAMPLING.facts if fact.of == "request" and fact.count(request)}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, set()),
        ({"top_k": 1}, set()),
        ({"top_k": 2}, {"filtered_by_top_k"}),
        ({"top_p": 0.5}, {"filtered_by_top_p"}),
        ({"min_p": 0.25}, {"filtered_by_min_p"}),
        ({"top_k": 3, "min_p": 0.25}, {"filtered_by_top_k", "filtered_by_min_p"}),
    ],
)
def test_filters_are_those_that_leave_something_out(fields: dict[str, float], names: set[str]) -> None:
    assert of_sampling(Sampling(**fields)) - {"temperatures_of_1"} == names  # type: ignore[arg-type]


def test_temperatures() -> None:
    named = [of_sampling(Sampling(temperature=one)) for one in (0.5, 1.0, 2.0)]
    assert named == [{"temperatures_below_1"}, {"temperatures_of_1"}, {"temperatures_above_1"}]


def of_tree(walk: tuple[int, ...], depth: int, solved: RoundScript) -> set[str]:
    return set(read_tree(lockstep(EngineSubject(), TREE), 0, solved, depth, walk))


# Rows 1 and 2 below row 0, 3 and 4 below 1, 5 below 4; a context of 4 on pages of 3: rows at 4 to 9, so that 6 and 9
# begin pages.
@pytest.mark.parametrize(
    ("walk", "path", "is_moved"),
    [
        ((), {"trees_rejected"}, False),
        ((1,), {"trees_ended_inside"}, False),
        ((1, 3), {"trees_ended_at_leaf", "tree_entries_moved"}, False),
        ((2,), {"trees_ended_at_leaf", "trees_off_first_branch", "tree_entries_moved"}, True),
        ((1, 4), {"trees_ended_inside", "trees_off_first_branch", "tree_entries_moved"}, False),
        ((1, 4, 5), {"trees_ended_at_leaf", "trees_off_first_branch", "tree_entries_moved"}, True),
    ],
)
def test_the_path_of_a_tree_and_what_it_moves(walk: tuple[int, ...], path: set[str], is_moved: bool) -> None:
    solved = RoundScript(
        context=4, drafts=3, forced=(9,) * 5, parents=(0, 0, 1, 1, 4), correct_len=len(walk), emitted=(1,)
    )
    moved = {"trees_moved_to_another_page"} if is_moved else set()
    assert of_tree(walk, TREE.steps, solved) == {"tree_rounds"} | path | moved
    assert "trees_cut" in of_tree(walk, TREE.steps - 1, solved)


def test_what_is_left_out_of_a_tree() -> None:
    solved = RoundScript(context=3, drafts=3, forced=None, parents=(0, 0), correct_len=1, emitted=(1, 1))
    assert "trees_moved_to_another_page" not in of_tree((2,), 1, solved)
    assert "trees_cut_by_nodes" not in of_tree((2,), 1, solved)
    assert "trees_cut_by_nodes" in of_tree((2,), 2, solved)


def test_memory_that_was_given_back_and_shared() -> None:
    gave, kept, plain = counts(by_engine(PREEMPTED)), counts(by_engine(CACHED)), counts(evidence(scenario=STATIC))
    assert gave["preemptions"] > 0
    assert kept["prefix_hits"] > 0
    of_memory = [name for name in FACTS_BY_NAME if name.startswith(("prefix_", "preempt", "resumed_"))]
    assert not any(plain[name] for name in of_memory)
    assert not any(gave[name] for name in of_memory if name.startswith("prefix_"))
