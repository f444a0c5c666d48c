"""Draft trees in the engine: what rows see, where they lie, what is moved; whole runs against every contract."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from draftproof.engine import tree, verify_tree
from draftproof.engine.drafts import eagle_tree
from draftproof.engine.subject import EngineSubject
from draftproof.engine.tree import TreeConfig, above, ancestors, seen
from draftproof.harness.lockstep import evidence
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Graphs, Request, Scenario, States
from draftproof.properties.values.tree import Tree
from tests.properties.evidence import STATIC, TREE


def test_ancestors_are_listed_from_a_row_up():
    rows = ancestors(above(torch.tensor([[0, 0, 2, 3]])), 3)
    assert rows.tolist() == [[[0, -1, -1, -1], [1, 0, -1, -1], [2, 0, -1, -1], [3, 2, 0, -1], [4, 3, 2, 0]]]
    assert ancestors(torch.full((2, 1), -1), 2).tolist() == [[[0, -1, -1]], [[0, -1, -1]]]


def test_a_row_sees_its_context_and_its_path():
    table, own = torch.tensor([[0, 0], [5, 2]]), torch.tensor([[[4, -1], [5, 4]]])
    slots, ages = seen(table, torch.tensor([1]), torch.tensor([3]), 2, own, torch.tensor([[3, 4]]))
    assert slots.tolist() == [[10, 11, 4, -1, 4, -1], [10, 11, 4, -1, 5, 4]]
    assert ages.tolist() == [[3, 2, 1, 0, 0, 1], [4, 3, 2, 1, 0, 1]]


@pytest.mark.parametrize(("depth", "drafts", "columns"), [(0, 0, 1), (1, 3, 4), (2, 7, 8), (5, 7, 12)])
def test_a_round_has_columns_for_its_rows_and_for_its_draft_steps(depth: int, drafts: int, columns: int):
    tree = TreeConfig(topk=3, nodes=7)
    assert (tree.num_drafts(depth), tree.num_columns(depth)) == (drafts, columns)
    other = Tree(topk=3, nodes=7)
    assert (other.rows(depth), other.columns(depth)) == (drafts, columns)


def changed(scenario: Scenario, pages: int = 60, **fields: Any) -> Scenario:
    memory = replace(scenario.memory, page_size=fields.pop("page_size", 3), pages=pages)
    return validate(replace(scenario, memory=memory, **fields))


def drawn(request: Request, seed: int) -> Request:
    return replace(request, sampling=Sampling(temperature=2.0 + seed, seed=seed))


SCENARIOS = {
    "captured": TREE,
    "eager": changed(TREE, graphs=Graphs()),
    "padded": changed(TREE, graphs=Graphs(sizes=(4,))),
    "pages of one": changed(TREE, pages=200, page_size=1),
    "large pages": changed(TREE, page_size=16),
    "ties": changed(TREE, model=replace(TREE.model, logit_bits=1)),
    "few tokens": changed(TREE, draft=replace(TREE.draft, head_vocab=5, own_head=True)),
    "bushy": changed(TREE, tree=Tree(topk=4, nodes=36)),
    "sampled": changed(TREE, requests=tuple(map(drawn, TREE.requests, range(4)))),
    "sampled beside greedy": changed(TREE, requests=(drawn(TREE.requests[0], 9), *TREE.requests[1:])),
    "snapshots": changed(TREE, model=STATIC.model),
    "replays": changed(TREE, model=STATIC.model, states=States(commit="replay", checkpoint=2), variant="other_commit"),
    "eager replays": changed(TREE, model=STATIC.model, states=States(commit="replay"), graphs=Graphs()),
    "states beside checkpoints": changed(
        TREE, model=STATIC.model, states=States(checkpoint=2), graphs=Graphs(sizes=(4,))
    ),
    "states of sampled": changed(TREE, model=STATIC.model, requests=tuple(map(drawn, TREE.requests, range(4)))),
    "deep": changed(TREE, tree=Tree(topk=2, nodes=5), variant="graph_vs_eager"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_tree_passes_every_contract(name: str):
    judged = judge(evidence(EngineSubject("cpu"), SCENARIOS[name]))
    assert judged.passed, judged.first
    assert {"tree.steered", "tree.walked", "beam.candidates"} <= judged.results.keys()


def all_rows_seen(known: torch.Tensor, most: int) -> torch.Tensor:
    rows = ancestors(known, most)
    return torch.where(rows < 0, 0, rows)


def unmoved(_self: Any, _metadata: Any, outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return outputs


def one_shorter(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    table, rows, lengths, *others = arguments
    return seen(table, rows, lengths - 1, *others)


BREAKS: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "sees the root only": (tree, "ancestors", all_rows_seen, "verify.positions"),
    "nothing is moved": (verify_tree.TreeVerifier, "compacted", unmoved, "commit.kv"),
    "context of a verify is short": (tree, "seen", one_shorter, "verify.hidden"),
    "context of a step is short": (eagle_tree, "seen", one_shorter, "beam.candidates"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_mistake_in_a_tree_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch):
    place, function, wrong, contract = BREAKS[name]
    monkeypatch.setattr(place, function, wrong)
    results = judge(evidence(EngineSubject("cpu"), SCENARIOS["eager"])).results
    assert results[contract] is not None
