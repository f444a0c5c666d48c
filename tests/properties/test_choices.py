"""What coverage says of choices, of trees and of memory, by hand."""

from __future__ import annotations

import pytest

from draftproof.properties.coverage import bins, split
from draftproof.properties.coverage.counts import counts
from draftproof.properties.coverage.read_choices import Choices, read_choices
from draftproof.properties.coverage.read_trees import tree_values
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.grammar import Grammar
from draftproof.properties.values.penalties import Penalties
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Request, RoundPlan
from draftproof.properties.values.script import RoundScript
from tests.properties.evidence import STATIC, TREE, cached, evidence, preempted

PLAIN = Request(arrival=0, prompt=(1,), budget=4, rounds=(RoundPlan(num_drafts=1, num_correct=0),))


def read(*told: str, own: bool = False, beside: bool = False, **fields: object) -> Choices:
    request = Request(**{name: getattr(PLAIN, name) for name in PLAIN.__struct_fields__} | fields)  # type: ignore[arg-type]
    return read_choices(request, frozenset(told), drafts=True, own=own, beside=beside)


def test_a_greedy_request_has_no_more_than_its_neighbours() -> None:
    assert read() == Choices("greedy", None, None, None, None, None, None, None)
    assert read(beside=True).choice == "beside sampled"
    assert read(sampling=Sampling(), beside=True).choice == "sampled"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "none"),
        ({"top_k": 1, "top_p": 0.5}, "top-k 1"),
        ({"top_k": 2}, "top-k"),
        ({"top_p": 0.5}, "top-p"),
        ({"min_p": 0.25}, "min-p"),
        ({"top_k": 3, "min_p": 0.25}, "several"),
    ],
)
def test_filters_are_those_that_leave_something_out(fields: dict[str, float], name: str) -> None:
    assert read(sampling=Sampling(**fields)).filter == name  # type: ignore[arg-type]


def test_temperatures_and_drawn_drafts() -> None:
    named = [read(sampling=Sampling(temperature=one)).temperature for one in (0.5, 1.0, 2.0)]
    assert named == ["below 1", "1", "above 1"]
    drawn = Sampling(draft="sampled")
    assert [read(sampling=one, own=own).drawn for one in (Sampling(), drawn) for own in (False, True)] == [
        *("no", "no"),
        *("no", "yes"),
    ]
    assert read_choices(PLAIN, frozenset(), drafts=False, own=True, beside=False).drawn is None


def test_the_most_that_penalties_and_grammars_did() -> None:
    changed, drafted = "penalty_changed_choice", "penalty_by_draft_in_window"
    assert read(changed).penalty is None
    assert [read(*told, penalties=Penalties()).penalty for told in ((), (changed,), (changed, drafted))] == [
        *("same choice", "other choice", "other by draft")
    ]
    grammar = Grammar(pattern="a*")
    told = ["grammar_changed_choice", "grammar_ends", "grammar_forces_token"]
    assert [read(*told[:count], grammar=grammar).grammar for count in range(4)] == [
        *("same choice", "other choice", "ends", "one token")
    ]
    assert [read(logprobs=count).logprobs for count in (None, 0, 2)] == [None, "of the token", "with others"]


# Rows 1 and 2 below row 0, 3 and 4 below 1, 5 below 4; a context of 4 on pages of 3: rows at 4 to 9, so that 6 and 9
# begin pages.
@pytest.mark.parametrize(
    ("walk", "path", "moved"),
    [
        ((), "nothing", "nothing"),
        ((1,), "first branch", "nothing"),
        ((1, 3), "first to its end", "in a page"),
        ((2,), "other to its end", "to another page"),
        ((1, 4), "other branch", "in a page"),
        ((1, 4, 5), "other to its end", "to another page"),
    ],
)
def test_the_path_of_a_tree_and_what_it_moves(walk: tuple[int, ...], path: str, moved: str) -> None:
    solved = RoundScript(
        context=4, drafts=3, forced=(9,) * 5, parents=(0, 0, 1, 1, 4), correct_len=len(walk), emitted=(1,)
    )
    read = tree_values(TREE, solved, 4, 3, walk, 3)
    assert (read.path, read.topk, read.nodes, read.moved) == (path, "2", None, moved)


def test_a_move_inside_a_page_and_what_is_left_out_of_a_tree() -> None:
    solved = RoundScript(context=3, drafts=3, forced=None, parents=(0, 0), correct_len=1, emitted=(1, 1))
    assert tree_values(TREE, solved, 3, 1, (2,), 3).moved == "in a page"
    assert tree_values(TREE, solved, 3, 1, (2,), 3).nodes == "all"
    assert tree_values(TREE, solved, 3, 2, (2,), 3).nodes == "some"
    assert tree_values(STATIC, solved, 3, 1, (2,), 3) == (None,) * 4


def values(of: Evidence, point: str) -> set[str]:
    return {split(name)[1][point] for name in bins(of) if split(name)[0] == point}


def test_memory_that_was_given_back_and_shared() -> None:
    gave, kept = preempted(), cached()
    assert counts(gave)["preemptions"]
    assert values(gave, "attempt") == {"first", "again"}
    assert values(gave, "prefix") == set()
    assert values(kept, "prefix") >= {"nothing", "all"} or values(kept, "prefix") >= {"nothing", "in part"}
    for point, name in (("evicted", "prefix_evictions"), ("copied", "prefix_copies"), ("shared", "prefix_shared")):
        assert values(kept, point) == {"yes" if counts(kept)[name] else "no"}
    assert values(evidence(scenario=STATIC), "attempt") == set()
