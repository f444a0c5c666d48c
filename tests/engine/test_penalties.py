"""Penalties in the engine: tables of counts by request row; whole runs, and mistakes in what is kept, are noticed."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from draftproof.engine.arena import Arena
from draftproof.engine.penalties import PenaltyTables, shapes
from draftproof.engine.penalty_params import PenaltyParams, penalty_columns
from draftproof.engine.stages import Commit, PrefillRow
from draftproof.engine.subject import EngineSubject
from draftproof.engine.upload import uploaded
from draftproof.engine.verify import Verifier
from draftproof.harness.lockstep import evidence
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.penalties import Penalties, TokenBias
from draftproof.properties.values.scenario import Graphs, Scenario
from tests.engine.scenarios import generation
from tests.properties.evidence import ADAPTIVE, STATIC, TREE

CPU = torch.device("cpu")
VOCAB = 6
OWN = Penalties(bias=(TokenBias(token=3, amount=1 << 22),), repetition=1.5, frequency=-(1 << 22), presence=3 << 21)


def tables() -> tuple[PenaltyTables, Arena]:
    arena = Arena(shapes(4, VOCAB), CPU)
    arena.memory.fill_(0x5A)
    return PenaltyTables(arena, 1), arena


def admitted(row: int, prompt: tuple[int, ...], penalties: PenaltyParams | None = None) -> PrefillRow:
    return PrefillRow(generation(row, prompt, penalties=penalties), row, 0, 0, len(prompt))


def gained(row: int, *tokens: int) -> Commit:
    return Commit(row, row, 0, 1, 0, tokens, 0, False)


def test_a_row_begins_with_its_own_prompt_and_biases_and_nothing_else():
    made, arena = tables()
    for again in range(2):
        made.begin([admitted(2, (1, 1, 5)), admitted(3, (0,), PenaltyParams(bias=((4, -7), (0, 2))))])
        assert arena["penalty.prompt"][2:].tolist() == [[0, 2, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0]]
        assert arena["penalty.output"][2:].tolist() == [[0] * VOCAB] * 2
        assert arena["penalty.bias"][2:].tolist() == [[0] * VOCAB, [2, 0, 0, 0, -7, 0]]
        made.advance([gained(3, 4, 4, 2), gained(2, 1)])
        made.advance([gained(3, 4)])
        assert arena["penalty.output"][2:].tolist() == [[0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 3, 0]], again
    assert (arena["penalty.output"][:2] == 0x5A5A5A5A5A5A5A5A).all()
    made.begin([])
    made.advance([])


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_the_text_of_the_row_s_request(seed: int):
    rng, (made, arena) = random.Random(seed), tables()
    texts: dict[int, list[int]] = {}
    for _ in range(60):
        row = rng.randint(1, 3)
        if row not in texts or rng.random() < 0.2:
            texts[row] = []
            made.begin([admitted(row, tuple(rng.choices(range(VOCAB), k=3)))])
        batch = [one for one in texts if rng.random() < 0.7]
        commits = [gained(one, *rng.choices(range(VOCAB), k=rng.randint(1, 4))) for one in batch]
        for commit in commits:
            texts[commit.req_row] += commit.emitted
        made.advance(commits)
        for one, text in texts.items():
            counted = Counter(text)
            assert arena["penalty.output"][one].tolist() == [counted[token] for token in range(VOCAB)]


def test_inputs_are_in_sixteenths_and_of_rows_without_penalties_change_nothing():
    inputs = uploaded(penalty_columns([PenaltyParams(repetition=1.5, frequency=-3, presence=4), None]), CPU)
    assert {name: values.tolist() for name, values in inputs.items()} == {
        "repetitions": [24, 16],
        "frequencies": [-3, 0],
        "presences": [4, 0],
    }
    made, _ = tables()
    made.begin([admitted(1, (0, 1))])
    made.advance([gained(1, 2, 2)])
    logits = torch.arange(2 * VOCAB, dtype=torch.float32).view(2, VOCAB)
    ids, parents = torch.tensor([[2, 3]]), torch.tensor([[-1, 0]])
    got = made.apply(logits, ids, parents, torch.tensor([1]), uploaded(penalty_columns([None]), CPU))
    assert got.dtype == torch.int64
    assert got.tolist() == logits.tolist()
    own = uploaded(penalty_columns([PenaltyParams(frequency=10, presence=100)]), CPU)
    got = made.apply(logits, ids, parents, torch.tensor([1]), own)
    assert got.tolist() == [[0, 1, 2 - 120, 3, 4, 5], [6, 7, 8 - 120, 9 - 110, 10, 11]]


def penalised(scenario: Scenario, **changes: Any) -> Scenario:
    """Return the scenario with penalties of every request but the last, all others than the first's without bias."""
    first, *others = scenario.requests
    own = [replace(first, penalties=OWN), *(replace(one, penalties=replace(OWN, bias=())) for one in others[:-1])]
    return validate(replace(scenario, requests=(*own, *others[-1:]), **changes))


SCENARIOS = {
    "captured": penalised(STATIC),
    "eager": penalised(STATIC, graphs=Graphs()),
    "padded": penalised(STATIC, graphs=Graphs(sizes=(6,))),
    "dynamic": penalised(ADAPTIVE),
    "tree": penalised(TREE),
    "tree that repeats itself": replace(
        TREE, requests=tuple(replace(one, penalties=Penalties(frequency=-(1 << 24))) for one in TREE.requests)
    ),
    "graph_vs_eager": penalised(TREE, variant="graph_vs_eager"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_penalised_requests_pass_every_contract(name: str):
    judged = judge(evidence(EngineSubject("cpu"), SCENARIOS[name]))
    assert judged.passed, judged.first


def not_begun(self: PenaltyTables, batch: list[PrefillRow]) -> None:
    self.advance([gained(row.req_row, *row.request.prompt) for row in batch])


def last_only(advance: Callable[..., None]) -> Callable[..., None]:
    def wrong(self: PenaltyTables, commits: list[Commit]) -> None:
        advance(self, [gained(one.req_row, *one.emitted[-1:]) for one in commits])

    return wrong


def window_left_out(apply: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def wrong(self: PenaltyTables, logits: torch.Tensor, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        return apply(self, logits, torch.full_like(ids, -1), *rest)

    return wrong


def twice(apply: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def wrong(self: PenaltyTables, logits: torch.Tensor, *rest: Any) -> torch.Tensor:
        return apply(self, apply(self, logits, *rest), *rest)

    return wrong


BREAKS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "rows do not begin": (PenaltyTables, "begin", not_begun),
    "one token a round": (PenaltyTables, "advance", last_only(PenaltyTables.advance)),
    "drafts in no text": (PenaltyTables, "apply", window_left_out(PenaltyTables.apply)),
    "twice": (PenaltyTables, "apply", twice(PenaltyTables.apply)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch):
    place, function, wrong = BREAKS[name]
    monkeypatch.setattr(place, function, wrong)
    results = judge(evidence(EngineSubject("cpu"), SCENARIOS["eager"])).results
    assert results["verify.choice"] is not None


def test_a_tree_penalised_as_a_chain_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("draftproof.engine.verify_tree.TreeVerifier._above", Verifier._above)
    results = judge(evidence(EngineSubject("cpu"), SCENARIOS["tree that repeats itself"])).results
    assert results["verify.choice"] is not None
