"""Grammars in the engine: automata over tokens beside the reference's states; whole runs, and mistakes are noticed."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from draftproof.engine.grammar import EXCLUDED_LOGIT, GrammarStates, masked, token_automaton
from draftproof.engine.stages import Commit, DecodeRow, GrammarParams, PrefillRow, Proposal
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.judge import judge
from draftproof.properties.lib.pattern import NO_STRING, PatternError, parse
from draftproof.properties.validate import validate
from draftproof.properties.values.grammar import Grammar, end_token, token_texts
from draftproof.properties.values.scenario import Graphs, Scenario
from draftproof.reference.grammar import State, allowed, state_after
from tests.engine.scenarios import generation
from tests.grammars import drawn_pattern
from tests.properties.evidence import ADAPTIVE, STATIC, TREE

CPU = torch.device("cpu")
VOCAB = 14


def params(pattern: str, vocab: int = VOCAB) -> GrammarParams:
    return GrammarParams(pattern, token_texts(vocab), end_token(vocab))


@pytest.mark.parametrize("seed", range(60))
def test_automata_allow_what_the_reference_allows(seed: int):
    rng = random.Random(seed)
    pattern, vocab = drawn_pattern(rng), rng.choice((4, 5, 13, 40, 100))
    try:
        start = parse(pattern)
    except PatternError:
        return
    if start == NO_STRING:
        with pytest.raises(ValueError, match="expected one with a word that tokens spell"):
            token_automaton(params(pattern, vocab))
        return
    automaton = token_automaton(params(pattern, vocab))
    for _ in range(20):
        state, known = 0, start
        right: State = known
        for _ in range(8):
            tokens = tuple(np.flatnonzero(~automaton.excluded[state]).tolist())
            assert tokens == allowed(right, vocab), pattern
            token = rng.choice(tokens) if rng.random() < 0.8 else rng.randrange(vocab)
            state, right = automaton.step(state, token), state_after(right, token, vocab)


def first_row(number: int, pattern: str) -> PrefillRow:
    return PrefillRow(generation(number, (3,), grammar=params(pattern)), 1, 0, 0, 1)


def begun(**patterns: str) -> GrammarStates:
    states = GrammarStates(VOCAB, CPU)
    states.begin(
        [PrefillRow(generation(int(n[1:]), (3,), grammar=params(one)), 1, 0, 0, 1) for n, one in patterns.items()]
    )
    return states


def gained(request: int, *tokens: int) -> Commit:
    return Commit(request, 1, 0, 1, 0, tokens, 0, False)


def test_a_request_goes_on_from_what_it_emitted_and_is_forgotten():
    states = begun(r3="(ab)*", r5="c")
    assert 3 in states
    assert 4 not in states
    assert states.allowed(3) == allowed(parse("(ab)*"), VOCAB)
    states.advance([gained(3, 0), gained(4, 1, 1)])
    assert states.allowed(3) == allowed(parse("b(ab)*"), VOCAB)
    states.advance([gained(3, 1, 0)])
    assert states.allowed(3) == allowed(parse("b(ab)*"), VOCAB)
    states.begin([PrefillRow(generation(3, (3,), grammar=params("(ab)*")), 1, 0, 0, 1, round=2, emitted=(4,))])
    assert states.allowed(3) == allowed(parse("(ab)*"), VOCAB)
    states.release(3)
    states.release(3)
    assert 3 not in states
    assert states.allowed(5) == (2,)


def kept(masks: torch.Tensor) -> list[Any]:
    return [[tuple((~row).nonzero().flatten().tolist()) for row in of_request] for of_request in masks]


def proposal(drafts: Sequence[Sequence[int]], parents: Sequence[Sequence[int]] | None = None) -> Proposal:
    width = max(map(len, drafts))
    padded = torch.tensor([[*one, *[0] * (width - len(one))] for one in drafts])
    rows = None if parents is None else torch.tensor([[*one, *[0] * (width - len(one))] for one in parents])
    return Proposal(padded, tuple(map(len, drafts)), rows)


def row(request: int, count: int, pattern: str | None) -> DecodeRow:
    return DecodeRow(generation(request, grammar=params(pattern) if pattern else None), 1, 1, 3, 0, count)


def test_every_row_has_the_mask_of_its_own_text_and_surplus_rows_none():
    states, every = begun(r1="(ab)*"), tuple(range(VOCAB))
    batch = [row(1, 2, "(ab)*"), row(2, 3, None)]
    start, after = (allowed(parse(one), VOCAB) for one in ("(ab)*", "b(ab)*"))
    assert kept(states.masks(batch, proposal([(0, 1), (0, 0, 0)]), 4)) == [[start, after, start, every], [every] * 4]
    # What is not allowed, and all behind it, is free.
    assert kept(states.masks(batch[:1], proposal([(0, 0)]), 3)) == [[start, after, every]]
    assert kept(states.masks(batch[:1], proposal([(VOCAB - 1, 0)]), 3)) == [[start, every, every]]
    tree = states.masks(batch[:1], proposal([(0, 4, 1)], [(0, 0, 1)]), 4)
    assert kept(tree) == [[start, after, start, start]]
    assert states.allowed(1) == start
    assert kept(states.prompt_masks([first_row(1, "(ab)*")])[None])[0] == [start]


def test_excluded_logits_are_below_all_others_as_whole_numbers():
    made = masked(torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]), 1)
    assert made.dtype == torch.int64
    assert made.tolist() == [[EXCLUDED_LOGIT, 2]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_those_of_a_real_model_stay_floats(dtype: torch.dtype):
    made = masked(torch.tensor([[0.5, 2.25, -3.0]], dtype=dtype), torch.tensor([[True, False, False]]), 1 << 20)
    assert made.dtype == dtype
    assert made.tolist() == [[EXCLUDED_LOGIT, 2.25, -3.0]]


def constrained(scenario: Scenario, *patterns: str, **changes: Any) -> Scenario:
    """The scenario, whose first requests have grammars of these patterns."""
    end = end_token(scenario.model.vocab)
    own = [
        replace(one, grammar=Grammar(pattern=pattern), stops=(*one.stops, end))
        for one, pattern in zip(scenario.requests, patterns, strict=False)
    ]
    return validate(replace(scenario, requests=(*own, *scenario.requests[len(own) :]), **changes))


LOOSE = ("([ab]|cc?[ab])*", "(a|b|cc)*", "(abc)*")
SCENARIOS = {
    "captured": constrained(STATIC, *LOOSE),
    "eager": constrained(STATIC, *LOOSE, graphs=Graphs()),
    "padded": constrained(STATIC, *LOOSE, graphs=Graphs(sizes=(6,))),
    "dynamic": constrained(ADAPTIVE, *LOOSE),
    "tree": constrained(TREE, *LOOSE, "b+"),
    "tree that ends": constrained(TREE, "[abc]{2,5}", "(ab){3}"),
    "graph_vs_eager": constrained(TREE, *LOOSE, variant="graph_vs_eager"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_requests_with_grammars_pass_every_contract(name: str):
    judged = judge(evidence(EngineSubject("cpu"), SCENARIOS[name]))
    assert judged.passed, judged.first


def late(self: GrammarStates, request: int, drafts: Sequence[int], above: Sequence[int]) -> np.ndarray:
    automaton = self._automata[request]
    return np.repeat(automaton.excluded[[self._states[request]]], len(drafts) + 1, axis=0)


def without_bonus(self: GrammarStates, commits: Sequence[Commit]) -> None:
    for commit in commits:
        self._advance(commit.request, commit.emitted[:-1])


def test_a_mask_of_row_0_for_all_rows_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(GrammarStates, "_of_round", late)
    results = judge(evidence(EngineSubject("cpu"), SCENARIOS["eager"])).results
    assert results["verify.allowed"] is not None


def test_a_state_without_the_bonus_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(GrammarStates, "advance", without_bonus)
    results = judge(evidence(EngineSubject("cpu"), SCENARIOS["eager"])).results
    assert results["commit.allowed"] is not None


def test_logits_that_are_not_masked_are_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("draftproof.engine.verify.masked", lambda logits, *_: logits)
    results = judge(evidence(EngineSubject("cpu"), SCENARIOS["eager"])).results
    assert results["verify.choice"] is not None
    assert results["output.grammar"] is not None
